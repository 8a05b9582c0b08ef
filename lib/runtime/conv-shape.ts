// conv-shape.ts: the sizes of a convolution, of floats or of bytes.

/**
 * A convolution along one to three axes. C channels, O filters and G groups; the weight is [O, C/G · taps], C being
 * what its columns say. Position q of the output and tap k read position q · stride + k · dilation − pad of the image,
 * which is 0 outside; the sizes of the output are therefore free.
 */
export interface ConvShape {
  /** N */
  batch: number
  /** G */
  groups: number
  /** Sizes of the image along its axes, one to three. */
  image: readonly number[]
  /** Sizes of the kernel. */
  kernel: readonly number[]
  /** Sizes of the output. */
  out: readonly number[]
  /** At least 1. */
  strides: readonly number[]
  /** At least 1. */
  dilations: readonly number[]
  /** Zeros in front of the image, along each axis; negative: so many positions are left out. */
  padsBegin: readonly number[]
}
