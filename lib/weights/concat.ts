// concat.ts: several weights below each other as one.
import { SparkError } from '../core/errors.js'
import { decodeWeight } from './encode.js'
import { inRows } from './panels.js'
import { arraysOf, type Weight } from './weight.js'

/**
 * The rows of all weights, which have as many columns. It is in their format, or in f32 where they share no format or no scale.
 * @throws SparkError ERR_SHAPE for different numbers of columns
 */
export function concatWeights(weights: readonly Weight[]): Weight {
  const [first, ...others] = weights
  if (!first) throw new SparkError('ERR_SHAPE', 'there is no weight to put others below')
  const odd = others.find(({ cols }) => cols !== first.cols)
  if (odd) throw new SparkError('ERR_SHAPE', `a weight has ${odd.cols} columns, but the first ${first.cols}`)
  const isUniform = others.every(weight => joins(first, weight))
  const all = isUniform ? weights.map(inRows) : weights.map(inFloats)
  const rows = all.reduce((sum, weight) => sum + weight.rows, 0)
  const arrays = arraysOf(all[0]!).map(([name]) => {
    const list = all.map(weight => (weight as unknown as Record<string, Float32Array>)[name]!)
    return [name, concatArrays(list)] as const
  })
  return { ...all[0]!, ...Object.fromEntries(arrays), rows } as Weight
}

/** `count` of the rows of a weight in rows, from row `from` on, in the same memory. Blocks of rows are not cut. */
export function rowsOf(weight: Weight, from: number, count: number): Weight {
  const arrays = arraysOf(weight).map(([name, array]) => {
    const each = array.length / weight.rows
    return [name, array.subarray(from * each, (from + count) * each)] as const
  })
  return { ...weight, ...Object.fromEntries(arrays), rows: count } as Weight
}

/** Whether the arrays of `next` can follow those of `first`. */
function joins(first: Weight, next: Weight): boolean {
  if (first.format !== next.format) return false
  if (first.format === 'nvfp4' && next.format === 'nvfp4') return first.tensorScale === next.tensorScale
  if (first.format === 'f8_e4m3_block' && next.format === 'f8_e4m3_block')
    return first.blockSize === next.blockSize && first.rows % first.blockSize === 0
  return true
}

const inFloats = (weight: Weight): Weight => {
  const { rows, cols } = weight
  return { format: 'f32', rows, cols, data: decodeWeight(weight) }
}

function concatArrays(arrays: readonly Float32Array[]): Float32Array {
  const [first] = arrays as [Float32Array, ...Float32Array[]]
  const all = new (first.constructor as Float32ArrayConstructor)(
    arrays.reduce((n, { length }) => n + length, 0),
  )
  let at = 0
  for (const array of arrays) {
    all.set(array, at)
    at += array.length
  }
  return all
}
