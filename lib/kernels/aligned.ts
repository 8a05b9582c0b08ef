// aligned.ts: memory that no vector of the CPU reads across two cache lines: such loads take two turns.
import type { Kernels } from './kernels.js'

/** Memory, and where in it the elements begin. */
export interface Room {
  readonly buffer: ArrayBuffer
  readonly offset: number
}

const lineBytes = 64

/**
 * Room for so many bytes, at a place where the kernels read fastest.
 * @throws RangeError when the process cannot have it
 */
export function allocateRoom(bytes: number, { padding }: Pick<Kernels, 'padding'>): Room {
  if (!padding || bytes < lineBytes) return { buffer: new ArrayBuffer(bytes), offset: 0 }
  const buffer = new ArrayBuffer(bytes + lineBytes)
  return { buffer, offset: padding(buffer) }
}
