// conv-args.ts: arguments of convolutions, and sizes of windows that move over an image. Contract:
// native/backend/conv_args.h. Sizes: N batch, C channels, O filters, G groups.
import type { Activation, ActivationDType, Activations } from './linear-args.js'
import type { FloatCompute, Weight } from './weight-args.js'

/** Channels of a group in 16 bits are padded to a multiple of this, 16 bytes. */
export const channelUnit = 8

/** Channels of a group in bytes are padded to a multiple of this, 16 bytes. */
export const byteChannelUnit = 16

/** Channels and filters of convolutions in tiles of 2 x 2 on CUDA are multiples of this. */
export const tileUnit = 16

/** Windows that move along one to three axes. */
export interface WindowShape {
  /** Sizes of the image along its axes. */
  image: readonly number[]
  /** Sizes of the window. */
  kernel: readonly number[]
  /** Sizes of the output. */
  out: readonly number[]
  /** At least 1. */
  strides: readonly number[]
  /** At least 1. */
  dilations: readonly number[]
  /** Positions in front of the image, along each axis; a convolution takes negative ones and leaves out so many. */
  padsBegin: readonly number[]
}

/**
 * Sizes of a convolution; C is what the columns of the weight, [O, C/G · taps], say. See `ConvShape` in
 * native/backend/conv_args.h.
 */
export interface ConvShape extends WindowShape {
  /** N */
  batch: number
  /** G */
  groups: number
}

/** y = activation(conv(x, W) + bias) + residual; see `ConvArgs` in native/backend/conv_args.h. */
export interface ConvArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, C, image] of f32, or [N, image, C] of the number of `compute`. */
  x: Activations
  /**
   * Of `x`: f32, or the number of `compute`, beside `channelsLast` where the channels of a group are a multiple of
   * {@link channelUnit}. Default: f32.
   */
  xDtype?: ActivationDType | undefined
  /** [O]; absent: 0. */
  bias?: Float32Array | undefined
  /** [N, O, out]; absent: 0. May be `y` of f32. */
  residual?: Float32Array | undefined
  /** Whether the residual is added before the activation. */
  residualFirst?: boolean | undefined
  /** Default: none. */
  activation?: Activation | undefined
  /** bf16; f16, for weights of f16 and f32. Default: f32. */
  compute?: FloatCompute | undefined
  /** Output, [N, O, out] of f32, or [N, out, O] of the number of `compute`. */
  y: Activations
  /** Of `y`, as `xDtype`, with the filters of a group. Default: f32. */
  yDtype?: ActivationDType | undefined
  /** Output beside a `y` of f32: what `y` would be in the number of `compute`. */
  yChannelsLast?: Uint16Array | undefined
  /** The weight from `winogradWeight`, for kernels of 3 x 3 that it fits: the CPU convolves in tiles, rounding otherwise. */
  winograd?: Float32Array | undefined
  /**
   * Tiles of 4 x 4 outputs of an image from which on `winograd` is used, and below which `weight`. 0: always, and no elements of `weight`
   * are read. Default: 0.
   */
  minTiles?: number | undefined
  /**
   * The weight in the numbers of `compute`, bf16 or f16, as `channels_last` of native/backend/conv_args.h lays it out, on a multiple of
   * 16 bytes: CUDA reads it in the place of the elements of `weight`.
   */
  channelsLast?: Uint16Array | undefined
  /**
   * Whether `channelsLast` is the weight transformed for tiles of 2 x 2 outputs, as `takes_tiles()` of native/backend/conv_args.h says: for
   * kernels of 3 x 3 along two axes with strides, dilations and groups of 1, and multiples of {@link tileUnit} channels and filters.
   * Rounds otherwise. Default: false.
   */
  inTiles?: boolean | undefined
  /**
   * Whether x is compact, [N, image, C], where an image has at most 64 positions: in f32, of a convolution of one group, or a depthwise
   * one of 3 x 3 or 5 x 5 whose steps are 1 or 2. Beside `winograd` with `minTiles` alone. Default: false.
   */
  xCompact?: boolean | undefined
  /** The same for y, [N, out, O], and the residual. */
  yCompact?: boolean | undefined
}

/** Gradients of a convolution; see `ConvBackwardArgs` in native/backend/conv_args.h. */
export interface ConvBackwardArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, C, image]; only dweight needs it. */
  x?: Float32Array | undefined
  /** [N, O, out] */
  dy: Float32Array
  /** Output, [N, C, image]; absent: not computed. */
  dx?: Float32Array | undefined
  /** Output, [O, C/G · taps]; absent: not computed. */
  dweight?: Float32Array | undefined
  /** Output, [O]; absent: not computed. */
  dbias?: Float32Array | undefined
  /** Of dx and dweight; as that of {@link ConvArgs}. */
  compute?: FloatCompute | undefined
}

/** A transposed convolution, its shape that from y to x; see `ConvTransposeArgs` in native/backend/conv_args.h. */
export interface ConvTransposeArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, O, out] */
  x: Float32Array
  /** [C]; absent: 0. */
  bias?: Float32Array | undefined
  /** Output, [N, C, image]. */
  y: Float32Array
  /** As that of {@link ConvArgs}. */
  compute?: FloatCompute | undefined
}

/**
 * y = activation(depthwise(h, W) + bias) with h = pointwiseActivation(P x + pointwiseBias); see `PointwiseDepthwiseArgs` in
 * native/backend/conv_args.h. The shape is that of the depthwise convolution, of C groups, channels and filters.
 */
export interface PointwiseDepthwiseArgs extends ConvShape {
  /** P, [C, K] */
  pointwise: Weight
  /** [C]; absent: 0. */
  pointwiseBias?: Float32Array | undefined
  /** Default: none. */
  pointwiseActivation?: Activation | undefined
  /** W, [C, taps] */
  weight: Weight
  /** [N, K, image] */
  x: Float32Array
  /** [C]; absent: 0. */
  bias?: Float32Array | undefined
  /** Default: none. */
  activation?: Activation | undefined
  /** Output, [N, C, out]. */
  y: Float32Array
  /** As that of {@link ConvArgs}. */
  xCompact?: boolean | undefined
  /** As that of {@link ConvArgs}. */
  yCompact?: boolean | undefined
}

/** Arguments of convolutions. */
export interface ConvKernelArgs {
  /** A convolution. */
  conv: ConvArgs
  /** Its gradients. */
  convBackward: ConvBackwardArgs
  /** A pointwise convolution, and a depthwise one behind it. */
  pointwiseDepthwise: PointwiseDepthwiseArgs
  /** A transposed convolution. */
  convTranspose: ConvTransposeArgs
}
