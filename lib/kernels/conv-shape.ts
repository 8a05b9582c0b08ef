// conv-shape.ts: the sizes of windows that move over an image, and of convolutions of floats or of bytes.

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
 * A convolution. C channels, O filters and G groups; the weight is [O, C/G · taps], C being what its columns say.
 * Position q of the output and tap k read position q · stride + k · dilation − pad of the image, which is 0 outside;
 * the sizes of the output are therefore free.
 */
export interface ConvShape extends WindowShape {
  /** N */
  batch: number
  /** G */
  groups: number
}
