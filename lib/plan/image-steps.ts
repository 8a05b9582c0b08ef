// image-steps.ts: the images that a step reads and writes, and the step where they are compact: convolutions, poolings, copies of
// images into one of more channels, elementwise operations, also with a number for each channel, reductions of whole images and
// resampling of small ones.

import { contiguousStrides, numel } from '../core/shape.js'
import { derive, exactDivide, floorDivide, multiply, type Size, sameSize } from '../core/size.js'
import {
  isCompactDepthwise,
  isDepthwise,
  isPointwise,
  isSmallImage,
  takesCompact,
} from '../kernels/compact.js'
import type { Buffer, Operand, Step } from './program.js'

/** Images in a buffer: as planes [batch, channels, positions], compact [batch, positions, channels]. */
export interface Images {
  readonly batch: Size
  readonly channels: Size
  readonly positions: Size
}

/** A step that takes compact images. */
export interface ImageStep {
  /** The operands that are images. */
  readonly images: ReadonlyMap<Operand, Images>
  /** Those of them that have one layout. */
  readonly alike: readonly Operand[]
  /** The step where the buffers for which `isCompact` holds are compact if their images are small. */
  readonly withCompact: (isCompact: (buffer: Buffer) => boolean) => Step
}

type StepOf<Op extends Step['op']> = Extract<Step, { op: Op }>
type KnownImages = ReadonlyMap<Buffer, Images>

/**
 * @param known - the images in buffers that are written before
 * @returns undefined for a step whose images stay planes
 */
export function imageStepOf(step: Step, known: KnownImages): ImageStep | undefined {
  switch (step.op) {
    case 'conv':
    case 'pointwiseDepthwise':
      return convolution(step)
    case 'pool':
      return pooling(step, known)
    case 'copyStrided':
      return concatenation(step, known)
    case 'unary':
      return unary(step, known)
    case 'binary':
      return binary(step, known)
    case 'reduce':
      return reduction(step, known)
    case 'resample':
      return resampling(step, known)
    default:
      return undefined
  }
}

/** Filters from which on gathering the channels of an image for a full kernel costs less than the layers around it gain. */
const enoughFilters = 64

const isNarrow = (args: StepOf<'conv' | 'pointwiseDepthwise'>['args']): boolean => {
  const { groups, weight } = args
  return (
    groups === 1 && !isPointwise(args) && !(typeof weight.rows === 'number' && weight.rows >= enoughFilters)
  )
}

/** The images of a convolution, whose kernels take flags. */
function convolution(step: StepOf<'conv' | 'pointwiseDepthwise'>): ImageStep | undefined {
  const { args } = step
  const { batch, weight, x, y } = args
  const [residual, compute = 'f32'] = step.op === 'conv' ? [step.args.residual, step.args.compute] : []
  const takes = step.op === 'conv' ? takesCompact(args, residual !== undefined) : isCompactDepthwise(args)
  const mayReadTiles = step.op === 'conv' && step.args.winograd !== undefined
  if (compute !== 'f32' || !takes || mayReadTiles || isNarrow(args)) return undefined
  const channels = step.op === 'conv' ? channelsOf(step.args) : step.args.pointwise.cols
  const before = { batch, channels, positions: numel(args.image) }
  const after = { batch, channels: weight.rows, positions: numel(args.out) }
  const ends = residual ? [y, residual] : [y]
  // A depthwise convolution of planes to a compact image would cost more than the one behind it gains.
  const isAlike = step.op === 'conv' && isDepthwise(args)
  return {
    images: new Map([[x, before], ...ends.map((end): [Operand, Images] => [end, after])]),
    alike: isAlike ? [x, y] : ends,
    withCompact: isCompact => {
      const [xCompact, yCompact] = [isCompact(x.buffer), isCompact(y.buffer)]
      const flags = { ...(xCompact && { xCompact }), ...(yCompact && { yCompact }) }
      return { ...step, args: { ...args, ...flags } } as Step
    },
  }
}

/** C, of a weight [O, C/G · taps]. */
const channelsOf = ({ groups, kernel, weight: { cols } }: StepOf<'conv'>['args']): Size =>
  multiply(floorDivide(cols, numel(kernel)), groups)

/** Whether images are small, whatever sizes are to be known later. */
const areSmall = (channels: Size, ...positions: readonly Size[]): boolean =>
  positions.every(
    size => typeof size === 'number' && typeof channels === 'number' && isSmallImage(size, channels),
  )

/** Sides of windows up to which their columns are gone through first whatever the image is. */
const fewTaps = 8

/** Poolings whose results are small whenever their images are. */
function pooling(step: StepOf<'pool'>, known: KnownImages): ImageStep | undefined {
  const { args } = step
  const { dtype, planes, image, kernel, dilations, out, indices, x, y } = args
  const images = known.get(x.buffer)
  if (!images || dtype !== 'f32' || indices) return undefined
  const { batch, channels, positions } = images
  const after = numel(out)
  const isOfThem = sameSize(planes, multiply(batch, channels)) && sameSize(numel(image), positions)
  const isUsual = kernel.every((size, axis) => (size as number) <= fewTaps && dilations[axis] === 1)
  const isKept = sameSize(after, positions) || areSmall(channels, positions, after)
  if (!isOfThem || !isUsual || !isKept) return undefined
  return {
    images: new Map([
      [x, images],
      [y, { batch, channels, positions: after }],
    ]),
    alike: [x, y],
    withCompact: isCompact =>
      isCompact(x.buffer) ? { ...step, args: { ...args, compactChannels: channels } } : step,
  }
}

/** Whole images that become some of the channels of others; of sizes that are known: copies of planes may not be made at all. */
function concatenation(step: StepOf<'copyStrided'>, known: KnownImages): ImageStep | undefined {
  const { args } = step
  const { dtype, shape, srcOffset, dstOffset, srcStrides, dstStrides, src, dst } = args
  const images = known.get(src.buffer)
  if (dtype !== 'f32' || !images || srcOffset !== 0 || typeof dstOffset !== 'number') return undefined
  const { batch, channels, positions } = images
  if (typeof channels !== 'number' || typeof positions !== 'number') return undefined
  const part = channels * positions
  const [of, from, to] =
    batch === 1
      ? [[part], [1], [1]]
      : [
          [batch, part],
          [part, 1],
          [dstStrides[0], 1],
        ]
  const isPart = [...shape, ...srcStrides, ...dstStrides].every(
    (size, i) => size === [...of, ...from, ...to][i],
  )
  const whole = batch === 1 ? dst.buffer.count : dstStrides[0]
  if (!isPart || typeof whole !== 'number' || whole % positions !== 0 || dstOffset % positions !== 0)
    return undefined
  const all = { batch, channels: whole / positions, positions }
  const across = {
    shape: [multiply(batch, positions), channels],
    dstOffset: dstOffset / positions,
    srcStrides: [channels, 1],
    dstStrides: [all.channels, 1],
  }
  return {
    images: new Map([
      [src, images],
      [dst, all],
    ]),
    alike: [src, dst],
    withCompact: isCompact => (isCompact(dst.buffer) ? { ...step, args: { ...args, ...across } } : step),
  }
}

function unary(step: StepOf<'unary'>, known: KnownImages): ImageStep | undefined {
  const { dtype, x, y } = step.args
  const images = known.get(x.buffer)
  if (dtype !== 'f32' || !images) return undefined
  const ends = [x, y]
  return { images: new Map(ends.map(end => [end, images])), alike: ends, withCompact: () => step }
}

/** Images with each other, with one number, or with a number for each channel. */
function binary(step: StepOf<'binary'>, known: KnownImages): ImageStep | undefined {
  const { args } = step
  const { dtype, shape, a, aStrides, b, bStrides, y } = args
  const inOrder = contiguousStrides(shape)
  const isImage = (strides: readonly Size[]) => strides.every((stride, axis) => stride === inOrder[axis])
  const [ofA, ofB] = [isImage(aStrides) ? [a] : [], isImage(bStrides) ? [b] : []]
  const ends = [...ofA, ...ofB, y]
  const images = known.get(ends[0]!.buffer)
  if (dtype !== 'f32' || !images || !ends.every(end => end === y || known.has(end.buffer))) return undefined
  const [aAxes, bAxes] = [threeAxes(shape, aStrides, images), threeAxes(shape, bStrides, images)]
  if (!aAxes || !bAxes) return undefined
  const others = [...(ofA.length > 0 ? [] : [aAxes]), ...(ofB.length > 0 ? [] : [bAxes])]
  if (others.some(([, , position]) => position !== 0)) return undefined
  const { sizes, strides } = layoutOf(images)
  const byChannel = others.some(axes => axes.some(stride => stride !== 0))
  const stridesOf = (own: readonly Operand[], [n, c, p]: Axes): Size[] =>
    own.length > 0 ? strides : [n, ifCompact(images, p, c), ifCompact(images, c, p)]
  const across = { shape: sizes, aStrides: stridesOf(ofA, aAxes), bStrides: stridesOf(ofB, bAxes) }
  return {
    images: new Map(ends.map(end => [end, images])),
    alike: ends,
    withCompact: isCompact =>
      byChannel && isCompact(y.buffer) ? { ...step, args: { ...args, ...across } } : step,
  }
}

/** Reductions whose kernels take a vector of columns at a time. */
const columnFns: ReadonlySet<string> = new Set(['sum', 'mean', 'max'])

/** Sums, means and maxima of whole images; other kernels would take the elements of a column one by one. */
function reduction(step: StepOf<'reduce'>, known: KnownImages): ImageStep | undefined {
  const { args } = step
  const { fn, dtype, shape, strides, reduced, reducedStrides, x } = args
  const images = known.get(x.buffer)
  if (dtype !== 'f32' || !images || !columnFns.has(fn)) return undefined
  const { batch, channels, positions } = images
  const ofPlanes = [multiply(batch, channels), positions, positions, 1]
  const given = [...shape, ...strides, ...reduced, ...reducedStrides]
  if (given.length !== 4 || given.some((size, i) => size !== ofPlanes[i])) return undefined
  const across = {
    shape: [batch, channels],
    strides: [multiply(channels, positions), ifCompact(images, 1, positions)],
    reducedStrides: [ifCompact(images, channels, 1)],
  }
  return {
    images: new Map([[x, images]]),
    alike: [],
    withCompact: isCompact => (isCompact(x.buffer) ? { ...step, args: { ...args, ...across } } : step),
  }
}

/** Small images, known before they run, that are resampled along one of their axes and are small after it. */
function resampling(step: StepOf<'resample'>, known: KnownImages): ImageStep | undefined {
  const { args } = step
  const { outer, size, inner, out, x, y } = args
  const images = known.get(x.buffer)
  if (!images) return undefined
  const { batch, channels, positions } = images
  const lines = exactDivide(positions, multiply(size, inner))
  if (lines === undefined || !sameSize(outer, multiply(batch, channels, lines))) return undefined
  const after = multiply(lines, out, inner)
  if (!areSmall(channels, positions, after)) return undefined
  const across = { outer: multiply(batch, lines), inner: multiply(inner, channels) }
  return {
    images: new Map([
      [x, images],
      [y, { batch, channels, positions: after }],
    ]),
    alike: [x, y],
    withCompact: isCompact => (isCompact(x.buffer) ? { ...step, args: { ...args, ...across } } : step),
  }
}

/** Strides along the images, the channels and the positions of planes. */
type Axes = readonly [Size, Size, Size]

/** Strides along some axes as strides along three; undefined where they are others. */
function threeAxes(shape: readonly Size[], strides: readonly Size[], images: Images): Axes | undefined {
  const { batch, channels, positions } = images
  const planes = multiply(batch, channels)
  const is = (...sizes: readonly Size[]) =>
    sizes.length === shape.length && sizes.every((size, axis) => size === shape[axis])
  const [first = 0, second = 0, third = 0] = strides
  if (is(multiply(planes, positions)))
    return [multiply(first, channels, positions), multiply(first, positions), first]
  if (is(planes, positions)) return [multiply(first, channels), first, second]
  return is(batch, channels, positions) ? [first, second, third] : undefined
}

/** Three axes of compact images, or of planes where images are not small. */
function layoutOf(images: Images) {
  const { batch, channels, positions } = images
  const sizes = [batch, ifCompact(images, positions, channels), ifCompact(images, channels, positions)]
  return { sizes, strides: contiguousStrides(sizes) }
}

const ifCompact = ({ channels, positions }: Images, compact: Size, planes: Size): Size =>
  derive(
    'by the size of images',
    (n, of, small, large) => (isSmallImage(n, of) ? small : large),
    positions,
    channels,
    compact,
    planes,
  )
