import { argumentError, expectInteger } from '../core/checks.js'
import { decode, type QuantizerInput, quantizerSource } from './casts.js'
import { runPrecisionKernel } from './kernels.js'

/** A matrix [rows, cols] in FP8 with a scale per row. Element (r, c) is `e4m3(codes[r, c]) · rowScale[r]`. */
export interface FP8Matrix {
  /** E4M3 codes, [rows, cols]. */
  readonly codes: Uint8Array
  /** Multiplier of each row, [rows]: the row's largest magnitude / 448, or 1 where that is 0. */
  readonly rowScale: Float32Array
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
}

/**
 * Quantizes a matrix to FP8 (E4M3) with a scale per row (docs/numerics.md).
 * @param values - [rows, cols], row-major
 * @param shape - [rows, cols]; more leading dimensions count as rows
 * @throws SparkError ERR_SHAPE when `values` does not fit `shape`; ERR_NOT_FINITE with the first element that is infinite
 * or NaN; ERR_DTYPE when `values` is not f32, f16 or bf16
 */
export function quantizeFP8(values: QuantizerInput, shape: readonly number[]): FP8Matrix {
  const { src, srcDtype, rows, cols } = quantizerSource(values, shape)
  const codes = new Uint8Array(rows * cols)
  const rowScale = new Float32Array(rows)
  runPrecisionKernel('fp8Quantize', { srcDtype, rows, cols, src, codes, rowScale })
  return { codes, rowScale, rows, cols }
}

/**
 * The numbers that an FP8 matrix stands for.
 * @returns [rows, cols], row-major
 * @throws SparkError ERR_SHAPE when an array does not fit rows and cols; ERR_ARGUMENT for anything else that is wrong
 */
export function dequantizeFP8(matrix: FP8Matrix): Float32Array {
  const { codes, rowScale, rows, cols } = matrix
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  if (!(codes instanceof Uint8Array) || codes.length !== rows * cols) {
    throw argumentError('codes', `a Uint8Array of ${rows * cols} elements`, codes, 'ERR_SHAPE')
  }
  if (!(rowScale instanceof Float32Array) || rowScale.length !== rows) {
    throw argumentError('rowScale', `a Float32Array of ${rows} elements`, rowScale, 'ERR_SHAPE')
  }
  const values = decode(codes, 'f8_e4m3')
  for (let i = 0; i < values.length; i++) values[i] *= rowScale[Math.trunc(i / cols)]
  return values
}
