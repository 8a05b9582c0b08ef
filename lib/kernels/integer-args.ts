// integer-args.ts: arguments of int8 operations. Contract: native/backend/integer_args.h. Sizes: T tokens, I in features,
// O out features or filters.
import type { ConvShape } from './conv-args.js'

/** i8 or u8. */
export type ByteArray = Int8Array | Uint8Array

/** Zero points, sums and bias of a weight, and how sums become y; see `IntegerResult` in native/backend/integer_args.h. */
export interface IntegerFeatures {
  /** Whether x is i8, else u8. */
  xSigned: boolean
  /** [O]; absent: 0. */
  wZero?: Int32Array | undefined
  /** [O], sums of the rows of w; absent: computed. */
  wSum?: Int32Array | undefined
  /** [O]; absent: 0. */
  bias?: Int32Array | undefined
  /** [O]; absent: y is the sums, in i32. */
  scale?: Float32Array | undefined
  /** Type of y where there is a scale. */
  yDtype?: 'u8' | 'i8' | undefined
  /** [1], with a scale; absent: 0. */
  yZero?: Int32Array | undefined
}

/** y = (x − xZero) · (w − wZero)ᵀ + bias; see `LinearIntegerArgs` in native/backend/integer_args.h. */
export interface LinearIntegerArgs extends IntegerFeatures {
  /** T */
  tokens: number
  /** O */
  rows: number
  /** I */
  cols: number
  /** Whether w is i8, else u8. */
  wSigned: boolean
  /** Whether w is i8 in panels of 32 features that are interleaved by four: [⌈O/32⌉, ⌈I/4⌉, 32, 4]. */
  packed?: boolean | undefined
  /** [T, I] */
  x: ByteArray
  /** [O, I] */
  w: ByteArray
  /** [T]; absent: 0. */
  xZero?: Int32Array | undefined
  /** Output, [T, O]. */
  y: Int32Array | ByteArray
}

/** y = conv(x − xZero, w − wZero) + bias; see `ConvIntegerArgs` in native/backend/integer_args.h. */
export interface ConvIntegerArgs extends ConvShape, IntegerFeatures {
  /** O */
  rows: number
  /** C/G · taps */
  cols: number
  /** [N, C, image], or [N, image, C] beside `xOutside`. */
  x: ByteArray
  /**
   * [{@link byteChannelUnit}], each the zero point of an x with its channels last, beside `channelsLast` where the channels of a group
   * are a multiple of {@link byteChannelUnit}. Absent: x is planes.
   */
  xOutside?: ByteArray | undefined
  /**
   * Whether the weight has the channels of each tap side by side: [O, taps, C/G rounded up to a multiple of
   * {@link byteChannelUnit}]. For CUDA, where it multiplies on tensor cores. Default: false.
   */
  channelsLast?: boolean | undefined
  /** [O, its bytes rounded up to a multiple of 64], with zeros behind channels and rows. */
  w: Int8Array
  /** [1]; absent: 0. */
  xZero?: Int32Array | undefined
  /** Output, [N, O, out]; may be absent beside `yChannelsLast`. */
  y?: Int32Array | ByteArray | undefined
  /**
   * Output: what y would be with its channels last, [N, out, O], in bytes, beside `channelsLast` where the filters of a group are a multiple
   * of {@link byteChannelUnit}.
   */
  yChannelsLast?: ByteArray | undefined
}

/** Quantized elements with a scale and a zero point for each channel. */
export interface AffineShape {
  /** Of the bytes. */
  dtype: 'u8' | 'i8'
  /** Size of the axes in front of the channels. */
  outer: number
  /** Number of scales. */
  channels: number
  /** Size of the axes behind. */
  inner: number
  /** [channels] */
  scale: Float32Array
  /** [channels]; absent: 0. */
  zero?: Int32Array | undefined
}

/** y = saturate(round(x / scale) + zero); see `QuantizeArgs` in native/backend/integer_args.h. */
export interface QuantizeArgs extends AffineShape {
  /** [outer, channels, inner] */
  x: Float32Array
  /** Output, as x. */
  y: ByteArray
}

/** y = (x − zero) · scale; see `DequantizeArgs` in native/backend/integer_args.h. */
export interface DequantizeArgs extends AffineShape {
  /** [outer, channels, inner] */
  x: ByteArray
  /** Output, as x. */
  y: Float32Array
}

/** y = table[x]; see `LookupArgs` in native/backend/integer_args.h. */
export interface LookupArgs {
  /** Number of elements. */
  count: number
  /** Whether x is i8, else u8. */
  xSigned: boolean
  /** Whether table and y are i8, else u8. */
  ySigned: boolean
  /** What is looked up. */
  x: ByteArray
  /** [256] */
  table: ByteArray
  /** Output; may be x. */
  y: ByteArray
}

/** y = quantized(a ∘ b), one scale each; see `BinaryBytesArgs` in native/backend/integer_args.h. */
export interface BinaryBytesArgs {
  /** What is computed. */
  fn: 'add' | 'mul'
  /** Number of elements. */
  count: number
  /** Type of a. */
  aDtype: 'u8' | 'i8'
  /** [count] */
  a: ByteArray
  /** [1] */
  aScale: Float32Array
  /** [1]; absent: 0. */
  aZero?: Int32Array | undefined
  /** Type of b. */
  bDtype: 'u8' | 'i8'
  /** [count] */
  b: ByteArray
  /** [1] */
  bScale: Float32Array
  /** [1]; absent: 0. */
  bZero?: Int32Array | undefined
  /** Type of y. */
  yDtype: 'u8' | 'i8'
  /** [1] */
  yScale: Float32Array
  /** [1]; absent: 0. */
  yZero?: Int32Array | undefined
  /** Output, [count]; may be a or b. */
  y: ByteArray
}

/** y = quantized means of rows; see `MeanBytesArgs` in native/backend/integer_args.h. */
export interface MeanBytesArgs {
  /** Number of means. */
  rows: number
  /** At least 1. */
  cols: number
  /** Type of x. */
  xDtype: 'u8' | 'i8'
  /** [rows, cols] */
  x: ByteArray
  /** [1] */
  xScale: Float32Array
  /** [1]; absent: 0. */
  xZero?: Int32Array | undefined
  /** Type of y. */
  yDtype: 'u8' | 'i8'
  /** [1] */
  yScale: Float32Array
  /** [1]; absent: 0. */
  yZero?: Int32Array | undefined
  /** Output, [rows]. */
  y: ByteArray
}

/** Arguments of int8 operations. */
export interface IntegerKernelArgs {
  /** A linear layer of quantized integers. */
  linearInteger: LinearIntegerArgs
  /** A convolution of quantized integers. */
  convInteger: ConvIntegerArgs
  /** From floats to bytes. */
  quantize: QuantizeArgs
  /** From bytes to floats. */
  dequantize: DequantizeArgs
  /** A function of one byte. */
  lookup: LookupArgs
  /** Sums and products of bytes. */
  binaryBytes: BinaryBytesArgs
  /** Means of bytes. */
  meanBytes: MeanBytesArgs
}
