// data-check.ts: values of batches that are not finite.
import { type ElementArray, type ElementType, isHalf } from '../core/dtype.js'
import { decode } from '../precision/casts.js'
import type { Batch, BatchTensor } from './dataset.js'

/**
 * The first value of a batch that is NaN or infinite, in words; undefined when all are finite.
 * @param types - element types of fields by name, for 16-bit floats as bit patterns
 * @param samples - indices of the samples in their dataset, if known
 */
export function describeNotFinite(
  batch: Batch,
  types: ReadonlyMap<string, ElementType>,
  samples?: readonly number[],
): string | undefined {
  for (const [name, field] of Object.entries(batch)) {
    const values = numbersOf(field.data, types.get(name))
    const at = values ? values.findIndex(value => !Number.isFinite(value)) : -1
    if (at < 0) continue
    const row = rowOf(field, at)
    const where =
      row === undefined ? '' : samples ? ` in sample ${samples[row]}` : ` in row ${row} of its batch`
    return `field '${name}' of the data has ${values![at]}${where}`
  }
  return undefined
}

/** The elements of floats; undefined for others. */
function numbersOf(
  data: ElementArray,
  dtype: ElementType | undefined,
): Float32Array | Float64Array | undefined {
  if (data instanceof Float32Array || data instanceof Float64Array) return data
  return data instanceof Uint16Array && dtype && isHalf(dtype) ? decode(data, dtype) : undefined
}

/** The sample that an element belongs to; undefined where all samples share the tensor. */
function rowOf({ shape, axis = 0 }: BatchTensor, element: number): number | undefined {
  if (axis === null) return undefined
  const inner = shape.slice(axis + 1).reduce((product, size) => product * size, 1)
  return Math.floor(element / inner) % shape[axis]!
}
