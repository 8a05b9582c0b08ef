// model-tensors.ts: the tensors of a model file, each in the format of its file.
import { numel } from '../../core/shape.js'
import { transpose } from '../../core/transpose.js'
import { Constant, type ConstantWeight } from '../../graph/constant.js'
import { sharedConstant, weightConstant } from '../../graph/weight-constant.js'
import { decode } from '../../precision/casts.js'
import {
  changedWhenRead,
  isLazy,
  type LazyWeight,
  readWeight,
  weightOfBytes,
} from '../../weights/lazy-weight.js'
import { inOrder } from '../../weights/ordered-weight.js'
import { SharedWeight } from '../../weights/shared-weight.js'
import type { FloatWeight, Weight } from '../../weights/weight.js'

/** A tensor of a model file. */
export interface ModelTensor {
  /** Sizes, the outermost first. */
  readonly shape: readonly number[]
  /** Its elements, whose rows are all dimensions but the last. */
  readonly weight: Weight | LazyWeight
  /**
   * The tensor as f32.
   * @param transposed - whether it is [in features, out features]
   */
  constant(transposed: boolean): Constant
}

/** Element types of floats that files store without blocks. */
export type FloatType = FloatWeight['format']

/** Rows and columns of a tensor as a matrix whose rows are all dimensions but the last. */
export const matrixSizes = (shape: readonly number[]): [rows: number, cols: number] => [
  numel(shape.slice(0, -1)),
  shape.at(-1) ?? 1,
]

/** A tensor of floats. */
export class FloatTensor implements ModelTensor {
  readonly shape: readonly number[]
  readonly weight: FloatWeight | LazyWeight

  /** @param weight - of a {@link FloatType} */
  constructor(shape: readonly number[], weight: FloatWeight | LazyWeight) {
    this.shape = shape
    this.weight = weight
  }

  /** A tensor of elements in memory, row-major. */
  static of(shape: readonly number[], format: FloatType, bytes: Uint8Array): FloatTensor {
    const [rows, cols] = matrixSizes(shape)
    return new FloatTensor(shape, weightOfBytes({ format, cols }, rows, bytes) as FloatWeight)
  }

  /** Matrices [matrices, rows, cols] as [matrices, cols, rows]. */
  withSwappedMatrices(): FloatTensor {
    const [count, rows, cols] = this.shape as [number, number, number]
    const weight = changed(this.weight, count * cols, rows, ({ data }) => {
      const size = rows * cols
      const swapped = data.slice()
      for (let i = 0; i < count; i++)
        swapped.set(transpose(data.subarray(i * size, (i + 1) * size), rows, cols), i * size)
      return swapped
    })
    return new FloatTensor([count, cols, rows], weight)
  }

  constant(transposed: boolean): Constant {
    const { shape, weight } = this
    if (weight.format === 'f32') return floatConstant(shape, weight)
    if (shape.length < 2) {
      const { data } = readWeight(weight) as FloatWeight
      return Constant.from('f32', shape, decode(data as Uint16Array, weight.format as 'f16' | 'bf16'))
    }
    const { rows, cols } = weight
    // A product reads weights by out features.
    const byOutFeatures = transposed
      ? changed(weight, cols, rows, ({ data }) => transpose(data, rows, cols))
      : weight
    return weightConstant(shape, byOutFeatures, { transposed, exact: true })
  }
}

/** A weight of other sizes, with the elements that `change` makes of its own. */
function changed(
  weight: FloatWeight | LazyWeight,
  rows: number,
  cols: number,
  change: (weight: FloatWeight) => FloatWeight['data'],
): FloatWeight | LazyWeight {
  const whole = (read: FloatWeight): FloatWeight => ({ format: read.format, rows, cols, data: change(read) })
  if (!isLazy(weight)) return whole(weight)
  return changedWhenRead(weight, rows, cols, read => whole(read as FloatWeight))
}

/** A constant of f32, which stays in its file as long as its weight does. */
function floatConstant(shape: readonly number[], weight: FloatWeight | LazyWeight): Constant {
  if (!isLazy(weight)) return Constant.from('f32', shape, weight.data)
  const bytesOf = ({ data: { buffer, byteOffset, byteLength } }: Weight): Uint8Array =>
    new Uint8Array(buffer, byteOffset, byteLength)
  return Constant.lazy('f32', shape, {
    byteLength: 4 * numel(shape),
    read: () => bytesOf(weight.read()),
    load: async () => bytesOf(await weight.load()),
    fileParts: weight.fileParts,
  })
}

/** What a {@link WeightTensor} has beside its weight. */
interface WeightTensorOptions {
  /** How many matrices it has, one below the other. Absent: it is one. */
  readonly experts?: number | undefined
  /** The in feature of each column, where they have an order of their own. */
  readonly order?: Int32Array | undefined
  /** As that of a {@link ConstantWeight}. */
  readonly inputScale?: ConstantWeight['inputScale']
}

/** A matrix in a format of its own, [out features, in features], or one for each expert. */
export class WeightTensor implements ModelTensor {
  readonly shape: readonly number[]
  /** Its constants keep it in the layout that a backend asked for, so that the one of the file can be let go. */
  readonly #shared: SharedWeight
  readonly #order: Int32Array | undefined
  readonly #inputScale: number | undefined

  /** @param weight - with the rows of all experts */
  constructor(weight: Weight | LazyWeight, { experts, order, inputScale }: WeightTensorOptions = {}) {
    const { rows, cols } = weight
    this.shape = experts === undefined ? [rows, cols] : [experts, rows / experts, cols]
    this.#shared = new SharedWeight(weight)
    this.#order = order
    this.#inputScale = inputScale
  }

  get weight(): Weight | LazyWeight {
    const order = this.#order
    if (order) return inOrder({ weight: this.#shared.kept, order })
    return this.#shared.lazy ?? this.#shared.kept
  }

  constant(transposed: boolean): Constant {
    const shape = transposed ? [...this.shape].reverse() : this.shape
    const [order, inputScale] = [this.#order, this.#inputScale]
    return sharedConstant(shape, this.#shared, { transposed, exact: true, order, inputScale })
  }
}

/** A tensor of floats or in another format, by that of its weight. */
export const tensorOf = (
  shape: readonly number[],
  weight: Weight | LazyWeight,
  inputScale?: number | undefined,
): ModelTensor =>
  isFloat(weight)
    ? new FloatTensor(shape, weight)
    : new WeightTensor(weight, { experts: shape.length === 2 ? undefined : shape[0], inputScale })

/** A tensor scale of activations that a file has; undefined where that is none, or of numbers that f32 does not hold. */
export const usableScale = (scale: number | undefined): number | undefined =>
  scale !== undefined && scale > 0 && scale < 2 ** 100 ? scale : undefined

const isFloat = (weight: Weight | LazyWeight): weight is FloatWeight | LazyWeight =>
  weight.format === 'f32' || weight.format === 'f16' || weight.format === 'bf16'
