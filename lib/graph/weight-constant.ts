// weight-constant.ts: constants whose elements stay in the format of a weight.
import type { RoundedRows } from '../core/activation-types.js'
import { transpose } from '../core/transpose.js'
import { decodeWeight } from '../weights/encode.js'
import type { LazyWeight } from '../weights/lazy-weight.js'
import { byFeatures } from '../weights/ordered-weight.js'
import { SharedWeight } from '../weights/shared-weight.js'
import type { Weight } from '../weights/weight.js'
import { Constant, type ConstantWeight } from './constant.js'

/** A constant of f32 that is decoded when somebody reads its elements; `use` as in {@link ConstantWeight}. */
export function weightConstant(
  shape: readonly number[],
  weight: Weight | LazyWeight,
  use: Omit<ConstantWeight, 'shared'>,
): Constant {
  return sharedConstant(shape, new SharedWeight(weight), use)
}

/** {@link weightConstant} of a weight that other constants may have, too. */
export function sharedConstant(
  shape: readonly number[],
  shared: SharedWeight,
  use: Omit<ConstantWeight, 'shared'>,
): Constant {
  const { rows, cols } = shared
  const decode = (weight: Weight): Uint8Array => {
    const decoded = decodeWeight(weight)
    const values = use.order ? byFeatures(decoded, use.order) : decoded
    const elements = use.transposed ? transpose(values, rows, cols) : values
    return new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength)
  }
  const read = (): Uint8Array => decode(shared.kept)
  return Constant.lazy('f32', shape, {
    ...{ byteLength: 4 * rows * cols, read, weight: { shared, ...use } },
    get load() {
      const { lazy } = shared
      return lazy && (async () => decode(await lazy.load()))
    },
    get fileParts() {
      return shared.lazy?.fileParts
    },
  })
}

/** A constant whose products round the rows that it is multiplied with; itself where it is kept as no weight. */
export function roundingRows(constant: Constant, activations: RoundedRows): Constant {
  const { weight, shape, byteLength } = constant
  if (!weight) return constant
  const read = (): Uint8Array => constant.bytes
  return Constant.lazy('f32', shape, {
    ...{ byteLength, read, weight: { ...weight, activations } },
    get fileParts() {
      return constant.fileParts
    },
  })
}
