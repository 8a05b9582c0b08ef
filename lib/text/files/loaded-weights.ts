// loaded-weights.ts: the weights of a model in memory, each in the format of its file.
import { type ElementType, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { Constant, type NumericType } from '../../graph/constant.js'
import { weightConstant } from '../../graph/weight-constant.js'
import { decode } from '../../precision/casts.js'
import type { FloatWeight, Weight } from '../../weights/weight.js'
import type { WeightSource } from '../architectures/config.js'

/** A tensor of a model file. */
export interface LoadedTensor {
  /** Sizes, the outermost first. */
  readonly shape: readonly number[]
  /**
   * The tensor as f32.
   * @param transposed - whether it is [in features, out features]
   */
  constant(transposed: boolean): Constant
}

/** Several tensors of one shape as one, with a dimension in front. */
export type Stack = (tensors: readonly LoadedTensor[]) => LoadedTensor

/** The tensors of a file by name. */
export class LoadedWeights implements WeightSource {
  readonly #tensors: ReadonlyMap<string, LoadedTensor>

  constructor(tensors: ReadonlyMap<string, LoadedTensor>) {
    this.#tensors = tensors
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

  stack(names: readonly string[]): Constant {
    const tensors = names.map(name => this.#tensor(name))
    const [first] = tensors
    const odd = names.find((_, i) => tensors[i]!.shape.join() !== first!.shape.join())
    if (odd !== undefined)
      throw new SparkError(
        'ERR_FORMAT',
        `'${odd}' is [${this.shape(odd).join(', ')}], but '${names[0]}' is [${first!.shape.join(', ')}]`,
      )
    return stackTensors(tensors).constant(false)
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

  constant(transposed: boolean): Constant {
    const { shape, dtype, data } = this
    if (dtype === 'f32') return Constant.from('f32' as NumericType, shape, data)
    if (shape.length < 2) return Constant.from('f32', shape, decode(data as Uint16Array, dtype))
    const cols = shape.at(-1)!
    const rows = numel(shape) / cols
    // A product reads weights by out features.
    const weight: Weight = transposed
      ? { format: dtype, rows: cols, cols: rows, data: transposedCodes(data as Uint16Array, rows, cols) }
      : { format: dtype, rows, cols, data }
    return weightConstant(shape, weight, { transposed, exact: true })
  }
}

/** The columns of [rows, cols] one after another. */
function transposedCodes(codes: Uint16Array, rows: number, cols: number): Uint16Array {
  const result = new Uint16Array(codes.length)
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) result[c * rows + r] = codes[r * cols + c]!
  return result
}

/** Tensors of one shape and type as one. */
function stackTensors(tensors: readonly LoadedTensor[]): LoadedTensor {
  const floats = tensors.map(tensor => {
    if (tensor instanceof FloatTensor) return tensor
    throw new SparkError('ERR_UNSUPPORTED', 'experts in separate matrices of blocks are not supported')
  })
  const [{ shape, dtype, data: first }] = floats as [FloatTensor, ...FloatTensor[]]
  if (floats.some(tensor => tensor.dtype !== dtype))
    throw new SparkError('ERR_FORMAT', 'matrices of the experts of a layer have different element types')
  const bytes = new Uint8Array(floats.length * first.byteLength)
  for (const [i, { data }] of floats.entries())
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), i * first.byteLength)
  return new FloatTensor([floats.length, ...shape], dtype, bytes)
}
