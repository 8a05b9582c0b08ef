// axes.ts: taking tensors apart and putting them together along an axis.
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { type HostTensor, hostTensor, hostZeros } from '../values.js'

/** Copies elements that lie one behind the other to where element `at` is. */
function copyRun(
  from: HostTensor['data'],
  [start, end]: readonly [number, number],
  to: HostTensor['data'],
  at: number,
): void {
  if (Array.isArray(from)) for (let i = start; i < end; i++) (to as string[])[at + i - start] = from[i]
  else (to as Float64Array).set((from as Float64Array).subarray(start, end), at)
}

/** The elements from `start` to `end` along an axis; `squeeze` leaves the axis out. */
export function sliceAlong(
  { dtype, shape, data }: HostTensor,
  axis: number,
  [start, end]: readonly [number, number],
  squeeze = false,
): HostTensor {
  const sizes = shape.map((size, i) => (i === axis ? end - start : size))
  const result = hostZeros(dtype, sizes)
  const [inner, width] = [numel(shape.slice(axis + 1)), shape[axis]!]
  const length = (end - start) * inner
  for (let outer = 0; outer < numel(shape.slice(0, axis)); outer++) {
    const first = (outer * width + start) * inner
    copyRun(data, [first, first + length], result.data, outer * length)
  }
  return squeeze ? { ...result, shape: sizes.filter((_, i) => i !== axis) } : result
}

/** The elements at the given indices along an axis. */
export function takeAlong(
  { dtype, shape, data }: HostTensor,
  axis: number,
  indices: readonly number[],
): HostTensor {
  const result = hostZeros(
    dtype,
    shape.map((size, i) => (i === axis ? indices.length : size)),
  )
  const [inner, width] = [numel(shape.slice(axis + 1)), shape[axis]!]
  for (let outer = 0; outer < numel(shape.slice(0, axis)); outer++) {
    for (const [i, index] of indices.entries()) {
      const first = (outer * width + index) * inner
      copyRun(data, [first, first + inner], result.data, (outer * indices.length + i) * inner)
    }
  }
  return result
}

/**
 * Tensors one behind the other along an axis.
 * @throws SparkError ERR_SHAPE when they differ otherwise
 */
export function concatAlong(parts: readonly HostTensor[], axis: number): HostTensor {
  const [{ dtype, shape }] = parts as [HostTensor]
  const mismatch = parts.find(
    part =>
      part.shape.length !== shape.length || part.shape.some((size, i) => i !== axis && size !== shape[i]),
  )
  if (mismatch) {
    const shapes = `[${shape.join(', ')}] and [${mismatch.shape.join(', ')}]`
    throw new SparkError('ERR_SHAPE', `tensors of the shapes ${shapes} cannot be joined along axis ${axis}`)
  }
  const width = parts.reduce((sum, part) => sum + part.shape[axis]!, 0)
  const sizes = shape.map((size, i) => (i === axis ? width : size))
  const result = hostZeros(dtype, sizes)
  const [inner, outers] = [numel(shape.slice(axis + 1)), numel(shape.slice(0, axis))]
  let start = 0
  for (const part of parts) {
    const length = part.shape[axis]! * inner
    for (let outer = 0; outer < outers; outer++) {
      const run = [outer * length, (outer + 1) * length] as const
      copyRun(part.data, run, result.data, (outer * width + start) * inner)
    }
    start += part.shape[axis]!
  }
  return result
}

/** Tensors of one shape as one with a new axis. */
export function stackAlong(parts: readonly HostTensor[], axis: number): HostTensor {
  const widened = parts.map(({ dtype, shape, data }) =>
    hostTensor(dtype, [...shape.slice(0, axis), 1, ...shape.slice(axis)], data),
  )
  return concatAlong(widened, axis)
}
