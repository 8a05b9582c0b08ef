// loaded-weights.ts: the weights of a model in memory, each in the format of its file.
import { type ElementType, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { transpose } from '../../core/transpose.js'
import { Constant, type NumericType } from '../../graph/constant.js'
import { weightConstant } from '../../graph/weight-constant.js'
import { decode } from '../../precision/casts.js'
import { concatWeights, rowsOf } from '../../weights/concat.js'
import type { FloatWeight, Weight } from '../../weights/weight.js'
import type { MatrixStack, WeightSource } from '../architectures/config.js'

/** A tensor of a model file. */
export interface LoadedTensor {
  /** Sizes, the outermost first. */
  readonly shape: readonly number[]
  /** Its elements, whose rows are all dimensions but the last. */
  readonly weight: Weight
  /**
   * The tensor as f32.
   * @param transposed - whether it is [in features, out features]
   */
  constant(transposed: boolean): Constant
}

/** The tensors of a file by name. */
export class LoadedWeights implements WeightSource {
  readonly #tensors: Map<string, LoadedTensor>

  constructor(tensors: ReadonlyMap<string, LoadedTensor>) {
    this.#tensors = new Map(tensors)
  }

  get names(): readonly string[] {
    return [...this.#tensors.keys()]
  }

  has(name: string): boolean {
    return this.#tensors.has(name)
  }

  shape(name: string): readonly number[] {
    return this.#tensor(name).shape
  }

  constant(name: string, transposed = false): Constant {
    return this.#tensor(name).constant(transposed)
  }

  stack(names: readonly string[]): MatrixStack {
    const tensors = names.map(name => this.#tensor(name))
    const [first] = tensors
    const odd = names.find((_, i) => tensors[i]!.shape.join() !== first!.shape.join())
    if (odd !== undefined)
      throw new SparkError(
        'ERR_FORMAT',
        `'${odd}' is [${this.shape(odd).join(', ')}], but '${names[0]}' is [${first!.shape.join(', ')}]`,
      )
    const { stack, factors } = stackTensors(tensors)
    // The memory of the matrices is free once they are parts of the stack.
    const { weight } = stack
    const rows = weight.rows / names.length
    for (const [i, name] of names.entries())
      this.#tensors.set(name, new WeightTensor(scaled(rowsOf(weight, i * rows, rows), factors?.[i])))
    const list = factors && Constant.f32(factors)
    return { weight: stack.constant(false), factors: list }
  }

  #tensor(name: string): LoadedTensor {
    const tensor = this.#tensors.get(name)
    if (!tensor) throw new SparkError('ERR_FORMAT', `the file has no tensor '${name}'`)
    return tensor
  }
}

/** Element types of floats that files store without blocks. */
export type FloatType = FloatWeight['format']

/** A tensor of floats. */
export class FloatTensor implements LoadedTensor {
  readonly shape: readonly number[]
  readonly dtype: FloatType
  readonly data: Float32Array | Uint16Array

  /** @param bytes - of the elements, row-major, in memory of their own */
  constructor(shape: readonly number[], dtype: FloatType, bytes: Uint8Array) {
    this.shape = shape
    this.dtype = dtype
    const array = elementArrayOf(dtype as ElementType) as unknown as Float32ArrayConstructor
    this.data = new array(bytes.buffer as ArrayBuffer, bytes.byteOffset, numel(shape))
  }

  get weight(): FloatWeight {
    const { shape, dtype, data } = this
    return { format: dtype, rows: numel(shape.slice(0, -1)), cols: shape.at(-1) ?? 1, data }
  }

  /** Matrices [matrices, rows, cols] as [matrices, cols, rows]. */
  withSwappedMatrices(): FloatTensor {
    const [count, rows, cols] = this.shape as [number, number, number]
    const size = rows * cols
    const data = this.data.slice()
    for (let i = 0; i < count; i++)
      data.set(transpose(this.data.subarray(i * size, (i + 1) * size), rows, cols), i * size)
    return new FloatTensor([count, cols, rows], this.dtype, new Uint8Array(data.buffer))
  }

  constant(transposed: boolean): Constant {
    const { shape, dtype, data } = this
    if (dtype === 'f32') return Constant.from('f32' as NumericType, shape, data)
    if (shape.length < 2) return Constant.from('f32', shape, decode(data as Uint16Array, dtype))
    // A product reads weights by out features.
    const weight = transposed ? transposedWeight(this.weight) : this.weight
    return weightConstant(shape, weight, { transposed, exact: true })
  }
}

/** The columns of [rows, cols] one after another. */
function transposedWeight({ format, rows, cols, data }: FloatWeight): FloatWeight {
  return { format, rows: cols, cols: rows, data: transpose(data, rows, cols) }
}

/** A matrix in a format of its own, [out features, in features], or one for each expert. */
export class WeightTensor implements LoadedTensor {
  readonly shape: readonly number[]
  readonly weight: Weight

  /** @param weight - with the rows of all experts */
  constructor(weight: Weight, experts?: number) {
    const { rows, cols } = weight
    this.shape = experts === undefined ? [rows, cols] : [experts, rows / experts, cols]
    this.weight = weight
  }

  constant(transposed: boolean): Constant {
    const shape = transposed ? [...this.shape].reverse() : this.shape
    return weightConstant(shape, this.weight, { transposed, exact: true })
  }
}

/** Matrices of one shape as one tensor, in their format where it is the same, and a factor of each that has one of its own. */
function stackTensors(tensors: readonly LoadedTensor[]): { stack: LoadedTensor; factors?: number[] } {
  const shape = [tensors.length, ...tensors[0]!.shape]
  const weights = tensors.map(tensor => tensor.weight)
  const factors = factorsOf(weights)
  const weight = concatWeights(factors ? weights.map(each => scaled(each, 1)) : weights)
  if (weight.format !== 'f32' && weight.format !== 'f16' && weight.format !== 'bf16')
    return { stack: new WeightTensor(weight, tensors.length), ...(factors && { factors }) }
  const { buffer, byteOffset, byteLength } = weight.data
  return { stack: new FloatTensor(shape, weight.format, new Uint8Array(buffer, byteOffset, byteLength)) }
}

/** Scales of whole matrices of NVFP4, where they differ. */
function factorsOf(weights: readonly Weight[]): number[] | undefined {
  const factors = weights.flatMap(weight => (weight.format === 'nvfp4' ? [weight.tensorScale] : []))
  const differ = factors.length === weights.length && factors.some(factor => factor !== factors[0])
  return differ ? factors : undefined
}

/** A weight of NVFP4 with another scale; any weight without one. */
const scaled = (weight: Weight, tensorScale: number | undefined): Weight =>
  weight.format === 'nvfp4' && tensorScale !== undefined ? { ...weight, tensorScale } : weight
