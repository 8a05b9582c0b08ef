// untransferable.ts: ArrayBuffers that cannot be transferred to another thread.
import { markAsUntransferable } from 'node:worker_threads'

/**
 * Makes Node refuse to transfer `buffer`, for good: from then on structuredClone() and postMessage() throw, or copy it
 * (Node 20). Two ways past it remain before Node 24: byte streams, which take over what they read into or are given, and
 * `ArrayBuffer.prototype.transfer`.
 */
export function makeUntransferable(buffer: ArrayBuffer): void {
  // Node 24 ends the process when a WebAssembly.Memory grows whose buffer, which cannot be transferred anyway, is marked.
  if (isTransferable(buffer)) markAsUntransferable(buffer)
}

/** Asks structuredClone(), which looks at what is to be transferred first and gives up before it transfers anything. */
function isTransferable(buffer: ArrayBuffer): boolean {
  const stop = new Error()
  const value = {
    get uncloneable() {
      throw stop
    },
  }
  try {
    structuredClone(value, { transfer: [buffer] })
    return true
  } catch (error) {
    return error === stop
  }
}
