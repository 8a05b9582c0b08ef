// channels-last.ts: constant weights of convolutions with their channels side by side, in the 16 bits that tensor cores multiply, or
// transformed for tiles of 2 x 2 outputs, by Winograd's F(2 x 2, 3 x 3).
import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { fixSize, type Size } from '../core/size.js'
import { tileUnit } from '../kernels/conv-args.js'
import { channelsLastCopy, tileNumbers, tilesCopy, tileTransform } from '../kernels/js/channels-last.js'
import { readsImage, writesImage } from './image-layout.js'
import {
  type ConvArgs,
  once,
  type SymbolicWeight,
  weightsThatStay,
  wideFormats,
  withoutElements,
} from './pack-weights.js'
import { Buffer, type Operand, type Step } from './program.js'

/** Where packing the image pays; by the instructions and bytes of the kernels, not measured. */
const leastPacked = {
  /** Channels of a group. */
  channels: 16,
  /** Products of an element of the image, for whose packing 6 bytes are moved; any, where it is written in 16 bits. */
  products: 512,
}

/** How a block of native/kernels/conv/conv_winograd.cu is filled, and where tiles pay; by the instructions of the kernels, not measured. */
const tiled = {
  /** Channels, and filters: fewer are multiplied in less time than the sums are transformed in. */
  least: 64,
  /** Outputs of a block, and its filters. */
  block: { height: 8, width: 16, filters: 64 },
  /** The part of the outputs of all blocks that an image has. Products are 4/9 of those of taps; the rest is for transforms. */
  leastFilled: 2 / 3,
}

/**
 * Lets convolutions on CUDA read constant weights channels last; steps that lay them out go to `setup`. A weight that other kernels
 * read as well stays as it is.
 * @param steps - what is computed at each run
 */
export function* layChannelsLast(steps: readonly Step[], setup: Step[]): Paced<Step[]> {
  const stays = yield* weightsThatStay(steps, ({ op }) => op === 'conv')
  const add = ({ steps, data }: LaidOut): Operand => {
    setup.push(...steps)
    return data
  }
  const laidOut = once((weight, taps: number, type: HalfType) => add(layOut(weight, taps, type)))
  const inTiles = once((weight, type: HalfType) => add(transform(weight, type)))
  const images = new Map<Buffer, HalfType>()
  return yield* mapPaced(steps, (step): Step => {
    if (step.op !== 'conv' || stays(step.args.weight)) return step
    const { weight, kernel, compute = 'f32', x, y } = step.args
    const hasImage = images.get(x.buffer) === compute && readsImage(step.args)
    if (!isHalf(compute) || !pays(step.args, hasImage)) return step
    if (writesImage(step.args)) images.set(y.buffer, compute)
    const layout = tilesPay(step.args)
      ? { channelsLast: inTiles(weight, compute), inTiles: true }
      : { channelsLast: laidOut(weight, fixSize(numel(kernel)), compute) }
    return { ...step, args: { ...step.args, weight: withoutElements(weight), ...layout } }
  })
}

function pays({ weight, groups, kernel, strides }: ConvArgs, hasImage: boolean): boolean {
  if (!wideFormats.includes(weight.format)) return false
  const [taps, filters] = [fixSize(numel(kernel)), fixSize(weight.rows) / fixSize(groups)]
  const products = (filters * taps) / fixSize(numel(strides))
  const enough = hasImage || products >= leastPacked.products
  return fixSize(weight.cols) / taps >= leastPacked.channels && enough
}

/**
 * Whether tiles of 2 x 2 outputs are faster than taps. Depends on an image and not on their number, so that results do not, either.
 * In f16 a tile overflows from elements of 2^14 on.
 */
function tilesPay({ weight, groups, kernel, strides, dilations, out, compute }: ConvArgs): boolean {
  if (compute !== 'bf16') return false
  const isPlane = kernel.length === 2 && kernel.every(size => size === 3) && groups === 1
  if (!isPlane || ![...strides, ...dilations].every(step => step === 1)) return false
  const [filters, channels] = [fixSize(weight.rows), fixSize(weight.cols) / 9]
  const fits = [filters, channels].every(size => size >= tiled.least && size % tileUnit === 0)
  const [down, across] = out as [Size, Size]
  if (!fits || typeof down !== 'number' || typeof across !== 'number') return false
  const { height, width, filters: filtersOfBlock } = tiled.block
  const filled = (size: number, unit: number): number => size / (Math.ceil(size / unit) * unit)
  return filled(down, height) * filled(across, width) * filled(filters, filtersOfBlock) >= tiled.leastFilled
}

/** Steps of a setup, and their result. */
interface LaidOut {
  readonly steps: Step[]
  readonly data: Operand
}

/** The steps that transform a weight of 3 x 3 in f32, round it to `type` and lay it out for tiles. */
function transform({ format, rows, cols, data }: SymbolicWeight, type: HalfType): LaidOut {
  const [filters, channels] = [fixSize(rows), fixSize(cols) / 9]
  const { count, copy } = tilesCopy(filters, channels)
  const matrix = new Buffer('f32', tileNumbers * 9, 'constant', tileTransform)
  const [numbers, rounded, to] = [
    new Buffer('f32', count, 'folded'),
    new Buffer(type, count, 'folded'),
    new Buffer(type, count, 'folded'),
  ]
  const steps: Step[] = []
  let x = data
  if (format !== 'f32') {
    const floats = new Buffer('f32', data.count, 'folded')
    const types = { srcDtype: format as HalfType, dstDtype: 'f32' as const, saturate: false }
    steps.push({ op: 'cast', args: { ...types, count: data.count, src: data, dst: floats.write() } })
    x = floats.read()
  }
  const weight = { format: 'f32' as const, rows: tileNumbers, cols: 9, data: matrix.read() }
  const types = { srcDtype: 'f32' as const, dstDtype: type, saturate: false }
  steps.push(
    { op: 'linear', args: { weight, tokens: filters * channels, x, y: numbers.write() } },
    { op: 'cast', args: { ...types, count, src: numbers.read(), dst: rounded.write() } },
    { op: 'copyStrided', args: { dtype: type, ...copy, src: rounded.read(), dst: to.write() } },
  )
  return { steps, data: to.read() }
}

/** The steps that round a weight to `type` and lay it out, and the result. */
function layOut({ format, rows, cols, data }: SymbolicWeight, taps: number, type: HalfType): LaidOut {
  const { count, copy } = channelsLastCopy(fixSize(rows), fixSize(cols), taps)
  const zero = new Buffer(type, 1, 'constant', () => new Uint16Array(1))
  const to = new Buffer(type, count, 'folded')
  const fill = { shape: [count], srcOffset: 0, dstOffset: 0, srcStrides: [0], dstStrides: [1] }
  const steps: Step[] = [
    { op: 'copyStrided', args: { dtype: type, ...fill, src: zero.read(), dst: to.write() } },
  ]
  let src = data
  if (format !== type) {
    const rounded = new Buffer(type, data.count, 'folded')
    const types = { srcDtype: format as 'f32' | HalfType, dstDtype: type, saturate: false }
    steps.push({ op: 'cast', args: { ...types, count: data.count, src: data, dst: rounded.write() } })
    src = rounded.read()
  }
  steps.push({ op: 'copyStrided', args: { dtype: type, ...copy, src, dst: to.write() } })
  return { steps, data: to.read() }
}
