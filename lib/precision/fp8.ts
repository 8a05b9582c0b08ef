import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectOneOf,
} from '../core/checks.js'
import {
  decode,
  type QuantizerInput,
  type QuantizerTensor,
  quantizerArguments,
  quantizerSource,
} from './casts.js'
import { runPrecisionKernel } from './kernels.js'

/** A weight [rows, cols] in FP8 with a scale per row. Element (r, c) is `e4m3(data[r, c]) · rowScale[r]`. */
export interface FP8Weight {
  /** Name of the format. */
  readonly format: 'f8_e4m3'
  /** E4M3 codes, [rows, cols]. */
  readonly data: Uint8Array
  /** Multiplier of each row, [rows]: the row's largest magnitude / 448, or 1 where that is 0. */
  readonly rowScale: Float32Array
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
}

/**
 * A weight [rows, cols] in FP8 with a scale per square block. Element (r, c) is
 * `e4m3(data[r, c]) · scale[⌊r / blockSize⌋, ⌊c / blockSize⌋]`: the layout of DeepSeek checkpoints (`weight`,
 * `weight_scale_inv`). Kernels do not read it: decode it, or quantize it anew.
 */
export interface FP8BlockWeight {
  /** Name of the format. */
  readonly format: 'f8_e4m3_block'
  /** E4M3 codes, [rows, cols]. */
  readonly data: Uint8Array
  /**
   * Multiplier of each block, [⌈rows / blockSize⌉, ⌈cols / blockSize⌉]: the block's largest magnitude / 448, or 1 where
   * that is 0.
   */
  readonly scale: Float32Array
  /** Rows and columns of a block; blocks at the lower and right edges may be smaller. */
  readonly blockSize: number
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
}

/** Options of {@link quantizeFP8}. */
export interface QuantizeFP8Options {
  /**
   * What shares a scale: each row, the whole matrix (then all elements of `rowScale` are equal), or each square block.
   * Default: 'row'.
   */
  scaling?: 'row' | 'tensor' | 'block'
  /** Rows and columns of a block when `scaling` is 'block'. Default: 128. */
  blockSize?: number
}

/**
 * Quantizes a matrix to FP8 (E4M3) with a scale per row, per matrix or per block (docs/numerics.md).
 * @param values - [rows, cols], row-major, or a tensor
 * @param shape - [rows, cols]; more leading dimensions count as rows. Default: the shape of the tensor
 * @throws SparkError ERR_SHAPE when `values` does not fit `shape`; ERR_NOT_FINITE with the first element that is infinite
 * or NaN; ERR_DTYPE when `values` is not f32, f16 or bf16; ERR_ARGUMENT for an option
 */
export function quantizeFP8(
  values: QuantizerInput,
  shape: readonly number[],
  options: QuantizeFP8Options & { scaling: 'block' },
): FP8BlockWeight
export function quantizeFP8(
  values: QuantizerInput,
  shape: readonly number[],
  options?: QuantizeFP8Options & { scaling?: 'row' | 'tensor' },
): FP8Weight
export function quantizeFP8(
  tensor: QuantizerTensor,
  options: QuantizeFP8Options & { scaling: 'block' },
): FP8BlockWeight
export function quantizeFP8(
  tensor: QuantizerTensor,
  options?: QuantizeFP8Options & { scaling?: 'row' | 'tensor' },
): FP8Weight
export function quantizeFP8(
  values: QuantizerInput,
  shapeOrOptions?: readonly number[] | QuantizeFP8Options,
  third?: QuantizeFP8Options,
): FP8Weight | FP8BlockWeight {
  const { shape, options } = quantizerArguments<QuantizeFP8Options>(values, shapeOrOptions, third)
  expectKnownOptions('options', options, ['scaling', 'blockSize'])
  const { scaling = 'row', blockSize = 128 } = options
  expectOneOf('scaling', scaling, ['row', 'tensor', 'block'])
  expectInteger('blockSize', blockSize, 1)
  if (scaling !== 'block' && options.blockSize !== undefined) {
    throw argumentError('blockSize', `absent when scaling is '${scaling}'`, blockSize)
  }
  const { src, srcDtype, rows, cols } = quantizerSource(values, shape)
  const data = new Uint8Array(rows * cols)
  const quantizeBy = (blockRows: number, blockCols: number): Float32Array => {
    const scale = new Float32Array(Math.ceil(rows / blockRows) * Math.ceil(cols / blockCols))
    const sizes = { srcDtype, rows, cols, blockRows, blockCols }
    runPrecisionKernel('fp8Quantize', { ...sizes, src, codes: data, scale })
    return scale
  }
  if (scaling === 'block') {
    return { format: 'f8_e4m3_block', rows, cols, data, scale: quantizeBy(blockSize, blockSize), blockSize }
  }
  const rowScale = new Float32Array(rows).fill(1)
  const scale = quantizeBy(scaling === 'row' ? 1 : Math.max(rows, 1), Math.max(cols, 1))
  if (scale.length === rows) rowScale.set(scale)
  else if (scale.length === 1) rowScale.fill(scale[0])
  return { format: 'f8_e4m3', rows, cols, data, rowScale }
}

/**
 * The numbers that an FP8 weight stands for.
 * @returns [rows, cols], row-major
 * @throws SparkError ERR_SHAPE when an array does not fit rows and cols; ERR_ARGUMENT for anything else that is wrong
 */
export function dequantizeFP8(weight: FP8Weight | FP8BlockWeight): Float32Array {
  expectObject('weight', 'what quantizeFP8 gives', weight)
  const { data, rows, cols } = weight
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  if (!(data instanceof Uint8Array) || data.length !== rows * cols) {
    throw argumentError('data', `a Uint8Array of ${rows * cols} elements`, data, 'ERR_SHAPE')
  }
  const values = decode(data, 'f8_e4m3')
  if ('blockSize' in weight) {
    const { scale, blockSize } = weight
    expectInteger('blockSize', blockSize, 1)
    const across = Math.ceil(cols / blockSize)
    expectScales('scale', scale, Math.ceil(rows / blockSize) * across)
    for (let i = 0; i < values.length; i++) {
      const row = Math.trunc(i / cols)
      values[i] *= scale[Math.trunc(row / blockSize) * across + Math.trunc((i % cols) / blockSize)]
    }
    return values
  }
  const { rowScale } = weight
  expectScales('rowScale', rowScale, rows)
  for (let i = 0; i < values.length; i++) values[i] *= rowScale[Math.trunc(i / cols)]
  return values
}

function expectScales(name: string, scales: unknown, count: number): void {
  if (!(scales instanceof Float32Array) || scales.length !== count) {
    throw argumentError(name, `a Float32Array of ${count} elements`, scales, 'ERR_SHAPE')
  }
}
