// conv.ts: convolutions in plain TypeScript, as their formulas are written. Sums are taken in double.
import { expectInteger, expectOneOf } from '../../core/checks.js'
import type { Paced } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { isSmallImage, takesCompact } from '../compact.js'
import { channelUnit, tileUnit } from '../conv-args.js'
import type { ByteArray } from '../integer-args.js'
import type { ConvArgs, ConvShape, KernelArgs, Weight, WindowShape } from '../kernels.js'
import type { ActivationDType, Activations } from '../linear-args.js'
import { activations } from './activations.js'
import { channelsLastCopy, tilesCopy } from './channels-last.js'
import { expectActivationDType, expectFloatCompute } from './compute.js'
import { floatReader, floatWriter } from './elements.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'
import { rowReader } from './weight-rows.js'
import { expectWindow } from './windows.js'
import { winogradSize } from './winograd.js'

/** Position q of the output, tap k and position p of the image that belong together, for all such; row-major indices. */
type Pairs = { readonly q: Int32Array; readonly k: Int32Array; readonly p: Int32Array }

/** Pairs that are found between two pauses. */
const pausedPairs = 1 << 16

/** The pairs of a window; those of one position in the order of their taps. */
export function* pairsOf(window: WindowShape): Paced<Pairs> {
  const { image, kernel, out, strides, dilations, padsBegin } = window
  let pairs = { q: [0], k: [0], p: [0] }
  for (const [axis, size] of image.entries()) {
    const [taps, step, positions] = [kernel[axis]!, dilations[axis]!, out[axis]!]
    const next = { q: [] as number[], k: [] as number[], p: [] as number[] }
    for (const [n, q] of pairs.q.entries()) {
      for (let i = 0; i < positions; i++) {
        // Where tap 0 is; others may be outside of the image.
        const start = i * strides[axis]! - padsBegin[axis]!
        const first = Math.max(0, Math.ceil(-start / step))
        const end = Math.min(taps, Math.floor((size - 1 - start) / step) + 1)
        for (let tap = first; tap < end; tap++) {
          next.q.push(q * positions + i)
          next.k.push(pairs.k[n]! * taps + tap)
          next.p.push(pairs.p[n]! * size + start + tap * step)
          if (next.q.length % pausedPairs === 0) yield
        }
        if (i % pausedPairs === 0) yield
      }
    }
    pairs = next
  }
  return { q: Int32Array.from(pairs.q), k: Int32Array.from(pairs.k), p: Int32Array.from(pairs.p) }
}

/** Sizes of the groups and of the planes of a convolution. */
function sizesOf(shape: ConvShape, { rows, cols }: Weight) {
  const taps = numel(shape.kernel)
  const groupChannels = cols / taps
  return {
    taps,
    groupChannels,
    groupFilters: rows / shape.groups,
    channels: groupChannels * shape.groups,
    pixels: numel(shape.image),
    positions: numel(shape.out),
  }
}

/** Calls body with filter o, its row of the weight, and the channel and first tap that the row meets. */
function* forEachFilter(
  args: ConvShape & { weight: Weight },
  body: (o: number, row: Float32Array, channel: number, tap: number) => void,
): Paced<void> {
  const { groupChannels, groupFilters, taps } = sizesOf(args, args.weight)
  const read = rowReader(args.weight)
  for (let o = 0; o < args.weight.rows; o++) {
    const row = read(o)
    const first = Math.floor(o / groupFilters) * groupChannels
    for (let c = 0; c < groupChannels; c++) {
      body(o, row, first + c, c * taps)
      yield
    }
  }
}

/** Values [batch, rows, cols] as [batch, cols, rows]. */
export function transposedImages<Values extends Float32Array | ByteArray>(
  values: Values,
  batch: number,
  rows: number,
  cols: number,
): Values {
  const to = values.slice() as Values
  for (let at = 0; at < batch * rows * cols; at++) {
    const [image, row, col] = [Math.floor(at / (rows * cols)), Math.floor(at / cols) % rows, at % cols]
    to[(image * cols + col) * rows + row] = values[at]!
  }
  return to
}

/** Images, [N, channels, positions] where they are planes. */
interface Images {
  readonly dtype: ActivationDType
  readonly isLast: boolean
  readonly channels: number
  readonly positions: number
}

/** Images as planes of f32. */
function planesOf(values: Activations, batch: number, { dtype, isLast, channels, positions }: Images) {
  const read = floatReader(dtype, values)
  const floats = dtype === 'f32' ? (values as Float32Array) : Float32Array.from(values, (_, i) => read(i))
  return isLast ? transposedImages(floats, batch, positions, channels) : floats
}

/** Writes planes of f32 as images. */
function writeImages(planes: Float32Array, to: Activations, batch: number, images: Images): void {
  const write = floatWriter(images.dtype, to)
  const { isLast, channels, positions } = images
  const values = isLast ? transposedImages(planes, batch, channels, positions) : planes
  for (const [i, value] of values.entries()) write(i, value)
}

/** y = activation(conv(x, W) + bias) + residual, or with the residual inside of the activation. */
export function* conv(args: KernelArgs['conv']): Paced<void> {
  const { weight, batch, compute = 'f32', xDtype = 'f32', yDtype = 'f32', yChannelsLast } = args
  const { channels, pixels, positions } = sizesOf(args, weight)
  const imagesOf = (
    dtype: ActivationDType,
    compact: boolean | undefined,
    size: number,
    of: number,
  ): Images => {
    const isLast = dtype !== 'f32' || (compact === true && isSmallImage(size, of))
    return { dtype, isLast, channels: of, positions: size }
  }
  const from = imagesOf(xDtype, args.xCompact, pixels, channels)
  const to = imagesOf(yDtype, args.yCompact, positions, weight.rows)
  const isCompact = to.isLast && yDtype === 'f32'
  const x = planesOf(args.x, batch, from)
  const residual = args.residual && planesOf(args.residual, batch, { ...to, dtype: 'f32', isLast: isCompact })
  const y = yDtype === 'f32' && !isCompact ? (args.y as Float32Array) : new Float32Array(args.y.length)
  yield* convPlanes({ ...args, x, residual, y })
  if (y !== args.y) writeImages(y, args.y, batch, to)
  if (yChannelsLast) writeImages(y, yChannelsLast, batch, { ...to, dtype: compute, isLast: true })
}

/** The same, of images as planes in f32. */
function* convPlanes(args: KernelArgs['conv'] & { x: Float32Array; y: Float32Array }): Paced<void> {
  const { weight, batch, x, bias, residual, residualFirst, y } = args
  const activate = activations[args.activation ?? 'none']
  const { channels, pixels, positions } = sizesOf(args, weight)
  const { q, k, p } = yield* pairsOf(args)
  const sums = new Float64Array(batch * weight.rows * positions)
  yield* forEachFilter(args, (o, row, channel, tap) => {
    for (let n = 0; n < batch; n++) {
      const to = (n * weight.rows + o) * positions
      const from = (n * channels + channel) * pixels
      for (let i = 0; i < q.length; i++) sums[to + q[i]!]! += x[from + p[i]!]! * row[tap + k[i]!]!
    }
  })
  for (let at = 0; at < sums.length; at++) {
    const sum = sums[at]! + (bias?.[Math.floor(at / positions) % weight.rows] ?? 0)
    const added = residual?.[at] ?? 0
    y[at] = residualFirst ? activate(sum + added) : activate(sum) + added
  }
}

/** Whether elements of the weight are read where an image has few tiles. */
const hasElements = ({ winograd, minTiles = 0 }: ConvArgs): boolean => !winograd || minTiles > 0

/** Throws where images shall be compact and cannot be. */
export function expectCompactFits(args: Pick<ConvArgs, 'xCompact' | 'yCompact'>, takes: boolean): void {
  for (const name of ['xCompact', 'yCompact'] as const) {
    const message = `${name} needs a convolution of one group, or a depthwise one of 3 x 3 or 5 x 5, in f32`
    expectFits(takes || !args[name], message)
  }
}

/** Throws where images shall be in 16 bits with their channels last, and cannot be. */
function expectChannelsLast(args: ConvArgs): void {
  const { weight, groups, kernel, compute = 'f32', xDtype = 'f32', yDtype = 'f32', yChannelsLast } = args
  expectActivationDType('xDtype', xDtype)
  expectActivationDType('yDtype', yDtype)
  const images = [
    { name: 'xDtype', dtype: xDtype, channels: weight.cols / numel(kernel) },
    { name: 'yDtype', dtype: yDtype, channels: weight.rows / groups },
    { name: 'yChannelsLast', dtype: yChannelsLast ? compute : 'f32', channels: weight.rows / groups },
  ]
  for (const { name, dtype, channels } of images)
    expectFits(
      dtype === 'f32' || (dtype === compute && channels > 0 && channels % channelUnit === 0),
      `${name} is for the number of compute, with groups of ${channelUnit} · n channels`,
    )
  expectFits(!yChannelsLast || compute !== 'f32', 'yChannelsLast is for a compute of bf16 or f16')
}

/** Throws where a convolution cannot be in tiles of 2 x 2. */
function expectTiles({ weight, groups, kernel, strides, dilations, channelsLast, inTiles }: ConvArgs): void {
  const isPlane = kernel.length === 2 && kernel.every(size => size === 3) && groups === 1
  const fits = isPlane && [...strides, ...dilations].every(step => step === 1)
  const whole = [weight.rows, weight.cols / 9].every(size => size > 0 && size % tileUnit === 0)
  expectFits(
    !inTiles || (channelsLast !== undefined && fits && whole),
    `inTiles is for channelsLast of a kernel of 3 x 3 along two axes with strides, dilations and groups of 1, and of ${tileUnit} · n channels and filters`,
  )
}

/** Σ x[n, o, q] W[o, c, k] for each n, c and p. */
function* transposed(args: ConvShape & { weight: Weight }, x: Float32Array): Paced<Float64Array> {
  const { weight, batch } = args
  const { channels, pixels, positions } = sizesOf(args, weight)
  const { q, k, p } = yield* pairsOf(args)
  const sums = new Float64Array(batch * channels * pixels)
  yield* forEachFilter(args, (o, row, channel, tap) => {
    for (let n = 0; n < batch; n++) {
      const from = (n * weight.rows + o) * positions
      const to = (n * channels + channel) * pixels
      for (let i = 0; i < q.length; i++) sums[to + p[i]!]! += x[from + q[i]!]! * row[tap + k[i]!]!
    }
  })
  return sums
}

/** dx, dweight and dbias of conv. */
function* convBackward(args: KernelArgs['convBackward']): Paced<void> {
  const { weight, batch, x, dy, dx, dweight, dbias } = args
  const { rows, cols } = weight
  const { channels, pixels, positions } = sizesOf(args, weight)
  if (dx) dx.set(yield* transposed(args, dy))
  if (dweight && x) {
    const { q, k, p } = yield* pairsOf(args)
    const sums = new Float64Array(rows * cols)
    yield* forEachFilter(args, (o, _, channel, tap) => {
      const to = o * cols + tap
      for (let n = 0; n < batch; n++) {
        const left = (n * rows + o) * positions
        const right = (n * channels + channel) * pixels
        for (let i = 0; i < q.length; i++) sums[to + k[i]!]! += dy[left + q[i]!]! * x[right + p[i]!]!
      }
    })
    dweight.set(sums)
  }
  for (let o = 0; dbias && o < rows; o++) {
    let sum = 0
    for (let n = 0; n < batch; n++) {
      for (let q = 0; q < positions; q++) sum += dy[(n * rows + o) * positions + q]!
    }
    dbias[o] = sum
  }
}

/** y = the dx of convBackward with x in the place of dy, + bias */
function* convTranspose(args: KernelArgs['convTranspose']): Paced<void> {
  const { weight, x, bias, y } = args
  const { channels, pixels } = sizesOf(args, weight)
  const sums = yield* transposed(args, x)
  for (let at = 0; at < sums.length; at++) {
    y[at] = sums[at]! + (bias?.[Math.floor(at / pixels) % channels] ?? 0)
  }
}

/** Elements of the arrays of a convolution with a weight of this shape. */
export function convSizes(shape: ConvShape, { rows, cols }: Pick<Weight, 'rows' | 'cols'>) {
  expectInteger('batch', shape.batch, 0)
  expectWindow(shape, { padsBegin: -(2 ** 31 - 1) })
  expectInteger('groups', shape.groups, 1)
  const taps = numel(shape.kernel)
  const [groups, kernel] = [`${shape.groups} groups`, `a kernel of ${taps} taps`]
  expectFits(
    rows % shape.groups === 0 && cols % taps === 0,
    `a weight of ${rows} x ${cols} does not fit ${groups} and ${kernel}`,
  )
  const channels = (cols / taps) * shape.groups
  return {
    channels,
    filters: rows,
    weight: rows * cols,
    x: shape.batch * channels * numel(shape.image),
    y: shape.batch * rows * numel(shape.out),
  }
}

/** Contracts of convolutions. */
export const convRows: KernelRows<'conv' | 'convBackward' | 'convTranspose'> = {
  conv: {
    kernel: conv,
    check(args) {
      expectOneOf('activation', args.activation ?? 'none', Object.keys(activations))
      expectFloatCompute(args)
      const takes =
        (args.compute ?? 'f32') === 'f32' &&
        hasElements(args) &&
        takesCompact(args, args.residual !== undefined)
      expectCompactFits(args, takes)
      expectChannelsLast(args)
      expectTiles(args)
    },
    operands(args) {
      const { x, y, filters } = convSizes(args, args.weight)
      const { xDtype = 'f32', yDtype = 'f32', yChannelsLast, compute = 'f32' } = args
      const { rows, cols } = args.weight
      const winograd = args.winograd && winogradSize(rows, cols)
      const laidOut = args.inTiles
        ? tilesCopy(rows, cols / 9)
        : channelsLastCopy(rows, cols, numel(args.kernel))
      const channelsLast = args.channelsLast && elements('bf16', laidOut.count)
      return {
        ...{ x: elements(xDtype, x), bias: optional(filters), residual: optional(y), winograd, channelsLast },
        ...{ y: elements(yDtype, y), yChannelsLast: yChannelsLast && elements(compute, y) },
      }
    },
  },
  convBackward: {
    kernel: convBackward,
    check: expectFloatCompute,
    operands(args) {
      const { x, y, weight, filters } = convSizes(args, args.weight)
      return {
        x: args.dweight ? x : optional(x),
        dy: y,
        dx: optional(x),
        dweight: optional(weight),
        dbias: optional(filters),
      }
    },
  },
  convTranspose: {
    kernel: convTranspose,
    check: expectFloatCompute,
    operands(args) {
      const { x, y, channels } = convSizes(args, args.weight)
      return { x: y, bias: optional(channels), y: x }
    },
  },
}
