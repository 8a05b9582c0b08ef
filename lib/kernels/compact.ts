// compact.ts: images whose channels come last, [N, image, C], and the convolutions that take them. Contract:
// native/backend/conv_args.h.

import { roundUp, type Size, sameSize } from '../core/size.js'

/** Positions up to which an image is compact where a plan lets it be. */
export const fewPositions = 64

/** Positions up to which it is so if its channels fill vectors of some floats as well as its positions would. */
export const mostCompactPositions = 256
const unit = 16

/** Whether images of a size are compact where a plan lets them be. */
export const isSmallImage = (positions: number, channels: number): boolean =>
  positions <= fewPositions ||
  (positions <= mostCompactPositions &&
    channels * roundUp(positions, unit) >= positions * roundUp(channels, unit))

/** The window of a convolution along its axes: numbers, or sizes still to be known. */
export interface WindowSizes {
  readonly image: readonly Size[]
  readonly kernel: readonly Size[]
  readonly out: readonly Size[]
  readonly strides: readonly Size[]
  readonly dilations: readonly Size[]
  readonly padsBegin: readonly Size[]
}

interface Shape extends WindowSizes {
  readonly groups: Size
  readonly weight: { readonly rows: Size; readonly cols: Size }
}

const areAll = (sizes: readonly Size[], size: Size): boolean => sizes.every(each => each === size)

/** Whether filters read one position of all channels. */
export const isPointwise = ({ groups, image, kernel, out, strides, padsBegin }: Shape): boolean =>
  groups === 1 &&
  areAll([...kernel, ...strides], 1) &&
  areAll(padsBegin, 0) &&
  image.every((size, axis) => sameSize(size, out[axis]!))

/** Whether each filter reads one channel, through 3 x 3 or 5 x 5 neighbours, at every position or every second one. */
export const isDepthwise = ({ groups, weight, kernel, strides, dilations }: Shape): boolean =>
  kernel.length === 2 &&
  (kernel[0] === 3 || kernel[0] === 5) &&
  kernel[0] === kernel[1] &&
  strides[0] === strides[1] &&
  (strides[0] === 1 || strides[0] === 2) &&
  areAll(dilations, 1) &&
  groups === weight.rows &&
  weight.cols === kernel[0] * kernel[1]

/** Whether the images of a convolution may be compact. */
export const takesCompact = (shape: Shape, hasResidual: boolean): boolean =>
  shape.groups === 1 || (isCompactDepthwise(shape) && !hasResidual)

/** Whether a convolution is depthwise and the first column of its neighbours in the image or beside it. */
export function isCompactDepthwise(shape: Shape): boolean {
  if (!isDepthwise(shape) || shape.groups === 1 || shape.image[1] === 0) return false
  const [[, left], [, width]] = [shape.padsBegin, shape.kernel]
  return typeof left === 'number' && typeof width === 'number' && left >= 0 && left < width
}
