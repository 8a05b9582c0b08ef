import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectObject,
  expectOneOf,
} from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { type QuantizerInput, type QuantizerTensor, quantizerArguments, quantizerSource } from './casts.js'
import type { NVFP4Recipe } from './kernel-args.js'
import { largestFloat, nvfp4Block, nvfp4TensorScale, runPrecisionKernel } from './kernels.js'

/**
 * A weight [rows, cols] in NVFP4, 4.5 bits an element. Element (r, c) is
 * `e2m1(nibble of data[r, c/2]) · (e4m3(blockScale[r, c/16]) · tensorScale)`, the low nibble being the even column:
 * the layout of ModelOpt checkpoints (`weight`, `weight_scale`, `weight_scale_2`).
 */
export interface NVFP4Weight {
  /** Name of the format. */
  readonly format: 'nvfp4'
  /** Pairs of E2M1 codes, [rows, cols/2]. */
  readonly data: Uint8Array
  /** E4M3 codes, one per 16 columns, [rows, cols/16]. */
  readonly blockScale: Uint8Array
  /** Multiplier of all block scales, an f32: amax / 2688. */
  readonly tensorScale: number
  /** Number of rows. */
  readonly rows: number
  /** Number of columns, a multiple of 16. */
  readonly cols: number
}

/** Options of {@link quantizeNVFP4}; `amax` and `tensorScale` exclude each other. */
export interface QuantizeNVFP4Options {
  /**
   * How block scales are chosen: 'modelopt', the bytes of NVIDIA ModelOpt; 'te', the bytes of TransformerEngine, which
   * multiplies by reciprocals and is the fastest on a GPU; 'mse', the best of nine scales for each block by squared
   * error, about a quarter less of it than the other two. All of them give the same layout. Default: 'modelopt'.
   */
  recipe?: NVFP4Recipe
  /**
   * Largest magnitude to provide for; by default that of `values`. Give the largest of several matrices that must share
   * a tensor scale (fused query, key and value). Larger elements saturate.
   */
  amax?: number
  /** The tensor scale itself, positive and not below 2^-126. Default: amax / 2688, at least 2^-126. */
  tensorScale?: number
}

const smallestNormal = 2 ** -126

/**
 * Quantizes a matrix to NVFP4, by default by the recipe of NVIDIA ModelOpt, byte for byte (docs/numerics.md).
 * @param values - [rows, cols], row-major, or a tensor
 * @param shape - [rows, cols]; more leading dimensions count as rows. cols must be a multiple of 16. Default: the shape of
 * the tensor
 * @throws SparkError ERR_SHAPE when cols is not a multiple of 16 or `values` does not fit `shape`; ERR_NOT_FINITE with
 * the first element that is infinite or NaN; ERR_DTYPE when `values` is not f32, f16 or bf16; ERR_ARGUMENT for an option
 * @example
 * const weight = Tensor.random([512, 784])
 * const q = quantizeNVFP4(weight)
 * q.data.length + q.blockScale.length // 512 · 784 · 4.5 / 8
 */
export function quantizeNVFP4(
  values: QuantizerInput,
  shape: readonly number[],
  options?: QuantizeNVFP4Options,
): NVFP4Weight
export function quantizeNVFP4(tensor: QuantizerTensor, options?: QuantizeNVFP4Options): NVFP4Weight
export function quantizeNVFP4(
  values: QuantizerInput,
  shapeOrOptions?: readonly number[] | QuantizeNVFP4Options,
  third?: QuantizeNVFP4Options,
): NVFP4Weight {
  const { shape, options } = quantizerArguments<QuantizeNVFP4Options>(values, shapeOrOptions, third)
  expectKnownOptions('options', options, ['recipe', 'amax', 'tensorScale'])
  const { recipe = 'modelopt' } = options
  expectOneOf('recipe', recipe, ['modelopt', 'te', 'mse'])
  const { src, srcDtype, rows, cols, amax } = quantizerSource(values, shape)
  expectWholeBlocks(cols)
  const scales = chooseScales(amax, options)
  const data = new Uint8Array((rows * cols) / 2)
  const blockScale = new Uint8Array((rows * cols) / nvfp4Block)
  const sizes = { srcDtype, rows, cols, recipe }
  runPrecisionKernel('nvfp4Quantize', { ...sizes, ...scales, src, packed: data, blockScale })
  return { format: 'nvfp4', rows, cols, data, blockScale, tensorScale: scales.tensorScale }
}

/**
 * The numbers that an NVFP4 weight stands for.
 * @returns [rows, cols], row-major; NaN where a block scale is NaN
 * @throws SparkError ERR_SHAPE when an array does not fit rows and cols; ERR_ARGUMENT for anything else that is wrong
 */
export function dequantizeNVFP4(weight: NVFP4Weight): Float32Array {
  expectObject('weight', 'what quantizeNVFP4 gives', weight)
  const { data, blockScale, tensorScale, rows, cols } = weight
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  expectWholeBlocks(cols)
  expectNumber('tensorScale', tensorScale, -largestFloat, largestFloat)
  expectBytes('data', data, (rows * cols) / 2)
  expectBytes('blockScale', blockScale, (rows * cols) / nvfp4Block)
  const dst = new Float32Array(rows * cols)
  runPrecisionKernel('nvfp4Dequantize', { rows, cols, tensorScale, packed: data, blockScale, dst })
  return dst
}

function chooseScales(
  measured: number,
  { amax, tensorScale }: QuantizeNVFP4Options,
): { tensorScale: number; encodeScale: number } {
  if (tensorScale !== undefined) {
    expectNumber('tensorScale', tensorScale, smallestNormal, largestFloat)
    if (amax !== undefined) {
      throw new SparkError('ERR_ARGUMENT', 'amax and tensorScale exclude each other; give one of them')
    }
    const scale = Math.fround(tensorScale)
    return { tensorScale: scale, encodeScale: Math.fround(1 / scale) }
  }
  if (amax !== undefined) expectNumber('amax', amax, 0, largestFloat)
  const largest = Math.fround(amax ?? measured)
  return {
    tensorScale: nvfp4TensorScale(largest),
    encodeScale: Math.min(Math.fround(2688 / largest), 2 ** 126),
  }
}

function expectWholeBlocks(cols: number): void {
  if (cols % nvfp4Block !== 0) {
    throw new SparkError(
      'ERR_SHAPE',
      `cols is ${cols}; nvfp4 needs a multiple of ${nvfp4Block}: pad the rows with zeros or keep another format`,
    )
  }
}

function expectBytes(name: string, array: unknown, length: number): void {
  if (!(array instanceof Uint8Array) || array.length !== length) {
    throw argumentError(name, `a Uint8Array of ${length} elements`, array, 'ERR_SHAPE')
  }
}
