// layer-args.ts: arguments of pooling, resizing, dropout and recurrent layers. Contract: native/backend/layer_args.h.
import type { ElementArray } from '../core/dtype.js'
import type { WindowShape } from './conv-args.js'
import type { KernelType } from './precision-args.js'
import type { UnaryFn } from './strided-args.js'

/** Ways to make one number of a window. */
export const poolFns = ['max', 'average'] as const
/** A pooling. */
export type PoolFn = (typeof poolFns)[number]

/** Windows that move over planes. */
export interface Windows extends WindowShape {
  /** Number of planes: batch by channels. */
  planes: number
  /** Positions behind the image, along each axis. */
  padsEnd: readonly number[]
}

/** y = max or mean of each window; see `PoolArgs` in native/backend/layer_args.h. */
export interface PoolArgs extends Windows {
  /** What is computed. */
  fn: PoolFn
  /** Of x and y; f32, for a max without indices also u8 and i8. */
  dtype: KernelType
  /** Whether a mean counts the pads. */
  countPad: boolean
  /** [planes, image] */
  x: ElementArray
  /** Output, [planes, out]. */
  y: ElementArray
  /** Output, [planes, out]: index in x of the first max; absent: not computed. */
  indices?: BigInt64Array | undefined
  /**
   * Channels of images whose channels come last where they have at most 64 positions: x is then [N, image, channels] and y [N, out,
   * channels]. In f32, without indices. Absent: planes.
   */
  compactChannels?: number | undefined
}

/** The gradient of {@link PoolArgs}; see `PoolBackwardArgs` in native/backend/layer_args.h. */
export interface PoolBackwardArgs extends Windows {
  /** What was computed. */
  fn: PoolFn
  /** Of all operands; f32. */
  dtype: KernelType
  /** Whether the mean counted the pads. */
  countPad: boolean
  /** [planes, image]; max only. */
  x?: ElementArray | undefined
  /** [planes, out] */
  dy: ElementArray
  /** Output, [planes, image]. */
  dx: ElementArray
}

/** One axis of a resized image; see `ResampleArgs` in native/backend/layer_args.h. */
export interface ResampleArgs {
  /** Size of the axes in front. */
  outer: number
  /** Size of the axis in x. */
  size: number
  /** Size of the axes behind. */
  inner: number
  /** Size of the axis in y. */
  out: number
  /** Taps of a position. */
  count: number
  /** [outer, size, inner] */
  x: Float32Array
  /** [out, count], in [0, size). */
  taps: Int32Array
  /** [out, count] */
  weights: Float32Array
  /** [out]; absent: 0. */
  offset?: Float32Array | undefined
  /** Output, [outer, out, inner]. */
  y: Float32Array
}

/** mask = 0 with probability `ratio`, else 1 / (1 − ratio); see `DropoutMaskArgs` in native/backend/layer_args.h. */
export interface DropoutMaskArgs {
  /** Elements of the mask. */
  count: number
  /** In [0, 1]. */
  ratio: number
  /** Which mask of a step it is; below 2^32. */
  stream: number
  /** Seed, step and part of the step: [3]. */
  state: Uint32Array
  /** Output, [count]. */
  mask: Float32Array
}

/** An image at the points of a grid; see `GridSampleArgs` in native/backend/layer_args.h. */
export interface GridSampleArgs {
  /** Between elements; cubic for two axes. */
  interpolation: 'nearest' | 'linear' | 'cubic'
  /** What is outside. */
  outOfImage: 'zeros' | 'border' | 'reflection'
  /** Whether −1 and 1 are centers of elements rather than edges. */
  alignCorners: boolean
  /** Samples. */
  batch: number
  /** Channels. */
  channels: number
  /** Points of a sample. */
  points: number
  /** Sizes of two or three axes. */
  image: readonly number[]
  /** [batch, channels, image] */
  x: Float32Array
  /** [batch, points, axes], the last axis first. */
  grid: Float32Array
  /** Output, [batch, channels, points]. */
  y: Float32Array
}

/** A plane of pixels in the bytes of a frame: (row, column) is at offset + row · pitch + column · step. */
export interface PixelPlane {
  /** At least 1. */
  height: number
  /** At least 1. */
  width: number
  /** Of the first pixel. */
  offset: number
  /** From a row to the next one. */
  pitch: number
  /** From a pixel to the next one: 2 where U and V alternate. */
  step: number
}

/** Frames of a camera as driving models read them; see `WarpFramesArgs` in native/backend/layer_args.h. */
export interface WarpFramesArgs {
  /** How many. */
  frames: number
  /** From one to the next. */
  frameBytes: number
  /** Y, U and V in a frame. */
  planes: readonly PixelPlane[]
  /** Even. */
  outHeight: number
  /** Even. */
  outWidth: number
  /** The projection from points of the result to points of the frame, nine numbers by rows. */
  matrix: readonly number[]
  /** [frames, frameBytes] */
  x: Uint8Array
  /** Output, [frames, 6, outHeight / 2, outWidth / 2]. */
  y: Uint8Array
}

/** A function and its parameters. */
export interface FunctionArgs {
  /** What is computed. */
  fn: UnaryFn
  /** Parameter α. */
  alpha?: number
  /** Parameter β. */
  beta?: number
}

/** A recurrent layer of ONNX: D directions, G gates of H units; see `RecurrentArgs` in native/backend/layer_args.h. */
export interface RecurrentArgs {
  /** Which layer. */
  cell: 'rnn' | 'gru' | 'lstm'
  /** D: 1, or 2, of which the second one goes from the last step to the first. */
  directions: number
  /** T */
  steps: number
  /** B */
  batch: number
  /** H */
  hidden: number
  /** The first direction goes from the last step to the first. */
  reverse: boolean
  /** GRU: the reset gate is applied to the product. */
  linearBeforeReset: boolean
  /** LSTM: the forget gate is 1 minus the input gate. */
  coupleGates: boolean
  /** Of what functions take; absent: none. */
  clip?: number | undefined
  /** f, g, h of ONNX, as many as the layer has, of each direction. */
  functions: readonly FunctionArgs[]
  /** x · Wᵀ + bias, [T, B, D, G · H]. */
  gates: Float32Array
  /** R is in panels, as `packWeight` writes them for each direction; CPU only. */
  packed?: boolean | undefined
  /** Rᵀ, [D, H, G · H]; packed: the panels of R, [D, G · H, H]. */
  recurrence: Float32Array
  /** [D, G · H], added to h · Rᵀ; absent: 0. */
  bias?: Float32Array | undefined
  /** LSTM: [D, 3 · H] for i, o, f; absent: 0. */
  peepholes?: Float32Array | undefined
  /** [D, B, H]; absent: 0. */
  initialH?: Float32Array | undefined
  /** LSTM: [D, B, H]; absent: 0. */
  initialC?: Float32Array | undefined
  /** [B]; absent: T. */
  lengths?: Int32Array | undefined
  /** Output, [T, D, B, H]; absent: not computed. */
  y?: Float32Array | undefined
  /** Output, [D, B, H]. */
  lastH: Float32Array
  /** Output, LSTM: [D, B, H]. */
  lastC?: Float32Array | undefined
  /** Overwritten, [D, B, (G + 1) · H]. */
  scratch: Float32Array
}

/** Arguments of these layers. */
export interface LayerKernelArgs {
  /** Largest elements or means of windows. */
  pool: PoolArgs
  /** Its gradient. */
  poolBackward: PoolBackwardArgs
  /** One axis of a resized image. */
  resample: ResampleArgs
  /** A mask of dropout. */
  dropoutMask: DropoutMaskArgs
  /** An image at points. */
  gridSample: GridSampleArgs
  /** Frames of a camera through a projection, packed. */
  warpFrames: WarpFramesArgs
  /** A recurrent layer. */
  recurrent: RecurrentArgs
}
