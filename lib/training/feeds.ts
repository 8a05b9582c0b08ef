// feeds.ts: fields of batches as inputs of a plan.
import { type ElementArray, type ElementType, elementArrayOf, isHalf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { encode } from '../precision/casts.js'
import type { Batch } from './dataset.js'

/** Throws ERR_ARGUMENT unless a batch has exactly the fields that are read. */
export function expectFields(batch: Batch, inputs: readonly string[]): void {
  const fields = Object.keys(batch)
  if (fields.length === inputs.length && inputs.every(name => fields.includes(name))) return
  throw new SparkError(
    'ERR_ARGUMENT',
    `a batch has the fields ${fields.join(', ') || 'none'}; the step reads ${inputs.join(', ')}`,
  )
}

/** The elements in the array of `dtype`: numbers of f32 as halves, and integers where none is changed by it. */
export function converted(data: ElementArray, dtype: ElementType): ElementArray {
  if (isHalf(dtype) && data instanceof Float32Array) return encode(data, dtype)
  const array = elementArrayOf(dtype)
  if (data.constructor === array || isFloat(data) || array === Float32Array || array === Float64Array)
    return data
  const convert = array === BigInt64Array || array === BigUint64Array ? BigInt : Number
  return (array as Int32ArrayConstructor).from(data as Int32Array, convert as NumberConstructor)
}

const isFloat = (data: ElementArray): boolean => data instanceof Float32Array || data instanceof Float64Array
