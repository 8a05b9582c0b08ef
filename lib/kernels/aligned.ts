// aligned.ts: memory that no vector of the CPU reads across two cache lines: such loads take two turns.
import type { Kernels } from './kernels.js'

/** Memory, and where in it the elements begin. */
export interface Allocation {
  readonly buffer: ArrayBuffer
  readonly offset: number
}

const lineBytes = 64

/**
 * Allocates bytes at an address where the kernels read fastest.
 * @throws RangeError when the process cannot have it
 */
export function allocate(bytes: number, { padding }: Pick<Kernels, 'padding'>): Allocation {
  if (!padding || bytes < lineBytes) return { buffer: new ArrayBuffer(bytes), offset: 0 }
  const buffer = new ArrayBuffer(bytes + lineBytes)
  return { buffer, offset: padding(buffer) }
}
