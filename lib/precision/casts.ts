import { argumentError, expectAttached, expectKnownOptions, expectOneOf } from '../core/checks.js'
import { type DType, type DTypeArray, dtypeArray, dtypes, type TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { bitsFloat, codesOf, floatFormats } from './float-formats.js'
import { runPrecisionKernel } from './kernels.js'

/** Options of {@link cast} and {@link encode}. */
export interface CastOptions {
  /**
   * Whether a value that is out of range for an f8 format, infinity included, becomes the largest finite one. When
   * false it becomes NaN (f8_e4m3) or infinity (f8_e5m2). f16 and bf16 always overflow to infinity. Default: true.
   */
  saturate?: boolean
}

/**
 * Converts numbers from one format to another, rounding once to the nearest value, ties to even. NaN stays NaN. The
 * recipe is in docs/numerics.md; the addon and the TypeScript code give the same bits.
 * @param values - elements of `from`; 16-bit and 8-bit floats as bit patterns
 * @param from - format of `values`
 * @param to - format of the result
 * @returns as many elements of `to`, in a new array
 * @throws SparkError ERR_DTYPE when `values` is not the array that holds `from`
 */
export function cast<To extends DType>(
  values: DTypeArray,
  from: DType,
  to: To,
  options: CastOptions = {},
): TypedArrayOf<To> {
  expectOneOf('from', from, dtypes)
  expectOneOf('to', to, dtypes)
  expectKnownOptions('options', options, ['saturate'])
  expectArrayOf('values', values, from)
  const dst = dtypeArray(to, values.length)
  const { saturate = true } = options
  runPrecisionKernel('cast', {
    srcDtype: from,
    dstDtype: to,
    count: values.length,
    saturate,
    src: values,
    dst,
  })
  return dst
}

/**
 * Converts f32 numbers to another format: {@link cast} from 'f32'.
 * @param values - numbers
 * @param dtype - format of the result
 * @returns as many elements of `dtype`, in a new array
 * @throws SparkError ERR_DTYPE when `values` is not a Float32Array
 * @example
 * encode(new Float32Array([1, -2]), 'f8_e4m3') // Uint8Array [0x38, 0xC0]
 */
export function encode<To extends DType>(
  values: Float32Array,
  dtype: To,
  options: CastOptions = {},
): TypedArrayOf<To> {
  return cast(values, 'f32', dtype, options)
}

/**
 * Converts elements of a format to f32, which holds each of them exactly: {@link cast} to 'f32'.
 * @param values - elements of `dtype`; 16-bit and 8-bit floats as bit patterns
 * @param dtype - format of `values`
 * @returns as many numbers, in a new array
 * @throws SparkError ERR_DTYPE when `values` is not the array that holds `dtype`
 */
export function decode(values: DTypeArray, dtype: DType): Float32Array {
  return cast(values, dtype, 'f32')
}

/** Elements of a matrix to quantize: numbers, or the bit patterns of a 16-bit format. A tensor on the host fits. */
export type QuantizerInput =
  | Float32Array
  | {
      /** Elements, row-major; f16 and bf16 as bit patterns. */
      readonly data: DTypeArray
      /** Their format. */
      readonly dtype: Extract<DType, 'f32' | 'f16' | 'bf16'>
    }

/** A matrix to quantize that knows its shape, such as a tensor. */
export type QuantizerTensor = Exclude<QuantizerInput, Float32Array> & {
  /** [rows, cols]; more leading dimensions count as rows. */
  readonly shape: readonly number[]
}

/** The shape and the options of a quantizer, whose shape may be left out for a tensor. */
export function quantizerArguments<Options extends object>(
  values: QuantizerInput,
  shapeOrOptions: readonly number[] | Options | undefined,
  options: Options | undefined,
): { shape: readonly number[] | undefined; options: Options | Record<string, never> } {
  if (Array.isArray(shapeOrOptions)) return { shape: shapeOrOptions, options: options ?? {} }
  const given = shapeOrOptions as Options | undefined
  return { shape: (values as Partial<QuantizerTensor> | null)?.shape, options: given ?? options ?? {} }
}

/** A checked {@link QuantizerInput}. */
export interface QuantizerSource {
  readonly src: DTypeArray
  readonly srcDtype: DType
  readonly rows: number
  readonly cols: number
  /** Largest magnitude, finite. */
  readonly amax: number
}

/**
 * Checks a matrix to be quantized; the leading dimensions of `shape` together are the rows.
 * @internal
 * @throws SparkError ERR_DTYPE, ERR_SHAPE, or ERR_NOT_FINITE naming the first element that is infinite or NaN
 */
export function quantizerSource(
  values: QuantizerInput,
  shape: readonly number[] | undefined,
): QuantizerSource {
  const { data, dtype } =
    values instanceof Float32Array ? { data: values, dtype: 'f32' as const } : (values ?? {})
  expectOneOf('values.dtype', dtype, ['f32', 'f16', 'bf16'])
  expectArrayOf('values', data, dtype)
  if (!Array.isArray(shape) || shape.length < 2 || !shape.every(n => Number.isSafeInteger(n) && n >= 0)) {
    throw argumentError('shape', '[rows, cols] (more leading dimensions may precede)', shape, 'ERR_SHAPE')
  }
  const cols = shape[shape.length - 1]
  const rows = numel(shape.slice(0, -1))
  if (rows * cols !== data.length) {
    throw new SparkError(
      'ERR_SHAPE',
      `values has ${data.length} elements; shape [${shape.join(', ')}] needs ${rows * cols}`,
    )
  }
  const out = new Float32Array(1)
  runPrecisionKernel('amax', { dtype, count: data.length, src: data, out })
  if (!Number.isFinite(out[0])) throw notFinite(data, dtype)
  return { src: data, srcDtype: dtype, rows, cols, amax: out[0] }
}

function notFinite(data: DTypeArray, dtype: DType): SparkError {
  const decodeElement = (code: number): number => bitsFloat(floatFormats[dtype].decode(code))
  const index = codesOf(data).findIndex((code: number) => !Number.isFinite(decodeElement(code)))
  const value = decodeElement(codesOf(data)[index])
  return new SparkError(
    'ERR_NOT_FINITE',
    `values[${index}] is ${value}; a quantizer takes finite numbers only: replace or clip such elements first`,
  )
}

function expectArrayOf(name: string, values: unknown, dtype: DType): asserts values is DTypeArray {
  const Expected = dtypeArray(dtype, 0).constructor as new () => DTypeArray
  if (!(values instanceof Expected)) {
    throw argumentError(name, `a ${Expected.name} (the elements of ${dtype})`, values, 'ERR_DTYPE')
  }
  expectAttached(name, values)
}
