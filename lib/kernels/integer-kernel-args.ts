// integer-kernel-args.ts: what operations on numbers of 8 bits take. native/backend/integer_args.h and backend.h are the
// contract (formulas, aliasing); field names are the same. Sizes: T tokens, I in features, O out features or filters.
import type { ConvShape } from './conv-shape.js'

/** i8 or u8. */
export type ByteArray = Int8Array | Uint8Array

/** Zero points, sums and bias of a weight, and what becomes of sums of products. */
export interface IntegerFeatures {
  /** Whether x is i8, else u8. */
  xSigned: boolean
  /** [O]; left out: 0. */
  wZero?: Int32Array | undefined
  /** [O], sums of the rows of w; left out: they are computed. */
  wSum?: Int32Array | undefined
  /** [O], added to the sums. */
  bias?: Int32Array | undefined
  /** [O]; y is saturate(round(sum · scale) + yZero), to nearest even. Left out: y is the sums, modulo 2^32. */
  scale?: Float32Array | undefined
  /** Type of y where there is a scale. */
  yDtype?: 'u8' | 'i8' | undefined
  /** [1], with a scale; left out: 0. */
  yZero?: Int32Array | undefined
}

/** y = (x − xZero) · (w − wZero)ᵀ + bias, exact in int32 (modulo 2^32 beyond it), and rounded where there is a scale. */
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
  /** [T]; left out: 0. */
  xZero?: Int32Array | undefined
  /** Output, [T, O]. */
  y: Int32Array | ByteArray
}

/**
 * y = conv(x − xZero, w − wZero) + bias, exact in int32 (modulo 2^32 beyond it), and rounded where there is a scale.
 * Outside of the image x is its zero point.
 */
export interface ConvIntegerArgs extends ConvShape, IntegerFeatures {
  /** O */
  rows: number
  /** C/G · taps */
  cols: number
  /** [N, C, image] */
  x: ByteArray
  /** [O, cols rounded up to a multiple of 64], rows ending in zeros. */
  w: Int8Array
  /** [1]; left out: 0. */
  xZero?: Int32Array | undefined
  /** Output, [N, O, out]. */
  y: Int32Array | ByteArray
}

/** Numbers of 8 bits, their scales and zero points by channel. */
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
  /** [channels]; left out: 0. */
  zero?: Int32Array | undefined
}

/** y = saturate(round(x / scale) + zero), to nearest even; a NaN gives 0. */
export interface QuantizeArgs extends AffineShape {
  /** [outer, channels, inner] */
  x: Float32Array
  /** Output, as x. */
  y: ByteArray
}

/** y = (x − zero) · scale */
export interface DequantizeArgs extends AffineShape {
  /** [outer, channels, inner] */
  x: ByteArray
  /** Output, as x. */
  y: Float32Array
}

/** y = table[x], signed bytes being counted as their bits. */
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

/** y = quantized(a ∘ b) of bytes with one scale each: every step in f32, rounded as {@link QuantizeArgs} says. */
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
  /** [1]; left out: 0. */
  aZero?: Int32Array | undefined
  /** Type of b. */
  bDtype: 'u8' | 'i8'
  /** [count] */
  b: ByteArray
  /** [1] */
  bScale: Float32Array
  /** [1]; left out: 0. */
  bZero?: Int32Array | undefined
  /** Type of y. */
  yDtype: 'u8' | 'i8'
  /** [1] */
  yScale: Float32Array
  /** [1]; left out: 0. */
  yZero?: Int32Array | undefined
  /** Output, [count]; may be a or b. */
  y: ByteArray
}

/** y = quantized means of rows of bytes: sums are exact, means are rounded to f32 once. */
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
  /** [1]; left out: 0. */
  xZero?: Int32Array | undefined
  /** Type of y. */
  yDtype: 'u8' | 'i8'
  /** [1] */
  yScale: Float32Array
  /** [1]; left out: 0. */
  yZero?: Int32Array | undefined
  /** Output, [rows]. */
  y: ByteArray
}

/** Arguments of operations on numbers of 8 bits. */
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
