// ordered-weight.ts: weights whose columns are in another order than the in features.
import { decodeWeight } from './encode.js'
import type { Weight } from './weight.js'

/** A weight, and the in feature of each of its columns. */
export interface OrderedWeight {
  readonly weight: Weight
  /** As many as there are columns; each in feature is there once. */
  readonly order: Int32Array
}

/** Whether the columns of a weight are in an order of their own. */
export const isOrdered = (weight: Weight | OrderedWeight): weight is OrderedWeight => 'order' in weight

/** Elements [rows, columns] by in features. */
export function byFeatures(values: Float32Array, order: Int32Array): Float32Array {
  const sorted = new Float32Array(values.length)
  const cols = order.length
  for (let row = 0; row < values.length; row += cols)
    for (let c = 0; c < cols; c++) sorted[row + order[c]!] = values[row + c]!
  return sorted
}

/** A weight with its columns in the order of the in features: in f32 where they are not. */
export function inOrder(weight: Weight | OrderedWeight): Weight {
  if (!isOrdered(weight)) return weight
  const { rows, cols } = weight.weight
  return { format: 'f32', rows, cols, data: byFeatures(decodeWeight(weight.weight), weight.order) }
}
