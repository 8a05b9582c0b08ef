// cpu-bandwidth.ts: bandwidth of main memory, measured with the C library's copy and search.
import { Worker } from 'node:worker_threads'

/** How memory is used: all of it read, or one half copied to the other. */
export type MemoryUse = 'read' | 'copy'

/** Bytes of a thread: beyond its share of a cache, and all threads' together within the memory of the machine. */
const maxThreadBytes = 128 * 2 ** 20
const minThreadBytes = 16 * 2 ** 20
const measureMs = 200

/** Uses its memory until the time is over; reports bytes per ms. */
const script = `
const { parentPort, workerData: { bytes, measureMs, use, gate } } = require('node:worker_threads')
const memory = Buffer.alloc(bytes, 2)
const half = bytes / 2
const once = use === 'read' ? () => memory.indexOf(1) : () => memory.copy(memory, half, 0, half)
once()
parentPort.postMessage('ready')
Atomics.wait(new Int32Array(gate), 0, 0)
const begin = performance.now()
let runs = 0
for (; performance.now() - begin < measureMs; ++runs) once()
parentPort.postMessage((runs * bytes) / (performance.now() - begin))
`

/**
 * 10^9 bytes per second that threads move; a copy counts bytes read and bytes written.
 * @param availableBytes - memory that may be used
 * @returns null where it is too little to tell memory from caches
 */
export async function cpuBandwidth(
  threads: number,
  use: MemoryUse,
  availableBytes: number,
): Promise<number | null> {
  const share = Math.floor(availableBytes / 4 / threads / 4096) * 4096
  const bytes = Math.min(maxThreadBytes, share)
  if (bytes < minThreadBytes) return null
  const gate = new SharedArrayBuffer(4)
  const workerData = { bytes, measureMs, use, gate }
  const workers = Array.from({ length: threads }, () => new Worker(script, { eval: true, workerData }))
  const next = (worker: Worker): Promise<number> =>
    new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
  try {
    await Promise.all(workers.map(next))
    const rates = workers.map(next)
    Atomics.store(new Int32Array(gate), 0, 1)
    Atomics.notify(new Int32Array(gate), 0)
    const perMs = (await Promise.all(rates)).reduce((a, b) => a + b, 0)
    return perMs / 1e6
  } finally {
    await Promise.all(workers.map(worker => worker.terminate()))
  }
}
