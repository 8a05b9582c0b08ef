// integer.ts: int8 operations in plain TypeScript, as their formulas are written.
import { expectInteger, expectOneOf } from '../../core/checks.js'
import type { ElementType } from '../../core/dtype.js'
import type { Paced } from '../../core/paced.js'
import { clamp, roundHalfEven } from '../../core/rounding.js'
import { numel } from '../../core/shape.js'
import { roundUp } from '../../core/size.js'
import { byteChannelUnit } from '../conv-args.js'
import type { ByteArray } from '../integer-args.js'
import type { AffineShape, IntegerFeatures, IntegerKernelArgs, KernelArgs } from '../kernels.js'
import { convSizes, pairsOf, transposedImages } from './conv.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

/** round(value) + zero within the range of a type; a NaN gives 0. */
function saturated(value: number, zero: number, isSigned: boolean): number {
  if (Number.isNaN(value)) return 0
  const [lowest, highest] = isSigned ? [-128, 127] : [0, 255]
  return clamp(roundHalfEven(value) + zero, lowest, highest)
}

/** What becomes of the sums of products of feature `o`. */
function finish({ bias, scale, yZero, yDtype }: IntegerFeatures, o: number, sum: number): number {
  const total = (sum + (bias?.[o] ?? 0)) | 0
  if (!scale) return total
  const scaled = Math.fround(Math.fround(total) * scale[o]!)
  return saturated(scaled, yZero?.[0] ?? 0, yDtype === 'i8')
}

/** Index of the weight of feature `o` and input `i` in panels. */
const packedIndex = (o: number, i: number, cols: number): number =>
  ((o >> 5) * Math.ceil(cols / 4) + (i >> 2)) * 128 + (o & 31) * 4 + (i & 3)

/** y[t, o] = bias[o] + Σ_i (x[t, i] − xZero[t]) · (w[o, i] − wZero[o]), modulo 2^32 */
function* linearInteger(args: KernelArgs['linearInteger']): Paced<void> {
  const { tokens, rows, cols, packed, x, w, xZero, wZero, y } = args
  for (let o = 0; o < rows; o++) {
    yield
    const wOffset = wZero ? wZero[o]! : 0
    const row = Int32Array.from(
      { length: cols },
      (_, i) => w[packed ? packedIndex(o, i, cols) : o * cols + i]! - wOffset,
    )
    for (let t = 0; t < tokens; t++) {
      const zero = xZero ? xZero[t]! : 0
      let sum = 0
      for (let i = 0; i < cols; i++) sum = (sum + Math.imul(x[t * cols + i]! - zero, row[i]!)) | 0
      y[t * rows + o] = finish(args, o, sum)
    }
  }
}

/** Bytes of a row of the weight of a convolution. */
function convRowBytes({ channelsLast, cols, kernel }: KernelArgs['convInteger']): number {
  const taps = numel(kernel)
  return roundUp(channelsLast ? taps * roundUp(cols / taps, byteChannelUnit) : cols, 64)
}

/** y[n, o, q] = bias[o] + Σ_{c, k} (x − xZero) · (w − wZero[o]), modulo 2^32, of images as planes or with their channels last */
function* convInteger(args: KernelArgs['convInteger']): Paced<void> {
  const { batch, groups, rows, cols, xOutside, yChannelsLast } = args
  const [channels, positions] = [(cols / numel(args.kernel)) * groups, numel(args.out)]
  const x = xOutside ? transposedImages(args.x, batch, numel(args.image), channels) : args.x
  const y = args.y ?? yChannelsLast!.slice()
  yield* convPlanes({ ...args, x, y })
  const last = yChannelsLast && transposedImages(y as ByteArray, batch, rows, positions)
  if (last) yChannelsLast.set(last.subarray(0, batch * rows * positions))
}

/** The same of planes. */
function* convPlanes(args: KernelArgs['convInteger'] & { y: Int32Array | ByteArray }): Paced<void> {
  const { batch, groups, rows, cols, x, w, wZero, y } = args
  const [taps, pixels, positions] = [numel(args.kernel), numel(args.image), numel(args.out)]
  const [groupChannels, groupFilters] = [cols / taps, rows / groups]
  const [channelPitch, tapPitch] = args.channelsLast
    ? [1, roundUp(groupChannels, byteChannelUnit)]
    : [taps, 1]
  const stride = convRowBytes(args)
  const { q, k, p } = yield* pairsOf(args)
  const zero = args.xZero?.[0] ?? 0
  for (let n = 0; n < batch; n++) {
    for (let o = 0; o < rows; o++) {
      const sums = new Int32Array(positions)
      const wOffset = wZero ? wZero[o]! : 0
      for (let c = 0; c < groupChannels; c++) {
        yield
        const channel = Math.floor(o / groupFilters) * groupChannels + c
        const from = (n * groupChannels * groups + channel) * pixels
        const row = o * stride + c * channelPitch
        for (let i = 0; i < q.length; i++) {
          sums[q[i]!]! += Math.imul(x[from + p[i]!]! - zero, w[row + k[i]! * tapPitch]! - wOffset)
        }
      }
      const to = (n * rows + o) * positions
      for (let i = 0; i < positions; i++) y[to + i] = finish(args, o, sums[i]!)
    }
  }
}

/** y = saturate(round(x / scale) + zero) */
function quantize({ dtype, outer, channels, inner, x, scale, zero, y }: KernelArgs['quantize']): void {
  for (let at = 0; at < outer * channels * inner; at++) {
    const c = Math.floor(at / inner) % channels
    y[at] = saturated(Math.fround(x[at]! / scale[c]!), zero?.[c] ?? 0, dtype === 'i8')
  }
}

/** y = (x − zero) · scale */
function dequantize({ outer, channels, inner, x, scale, zero, y }: KernelArgs['dequantize']): void {
  for (let at = 0; at < outer * channels * inner; at++) {
    const c = Math.floor(at / inner) % channels
    y[at] = (x[at]! - (zero?.[c] ?? 0)) * scale[c]!
  }
}

/** y = table[x] */
function lookup({ count, x, table, y }: KernelArgs['lookup']): void {
  for (let i = 0; i < count; i++) y[i] = table[x[i]! & 255]!
}

/** y = quantized(a ∘ b) */
function binaryBytes(args: KernelArgs['binaryBytes']): void {
  const { fn, count, a, b, y, aScale, bScale, yScale, aZero, bZero, yZero, yDtype } = args
  for (let i = 0; i < count; i++) {
    const left = Math.fround((a[i]! - (aZero?.[0] ?? 0)) * aScale[0]!)
    const right = Math.fround((b[i]! - (bZero?.[0] ?? 0)) * bScale[0]!)
    const value = Math.fround(fn === 'add' ? left + right : left * right)
    y[i] = saturated(Math.fround(value / yScale[0]!), yZero?.[0] ?? 0, yDtype === 'i8')
  }
}

/** y = quantized means of the rows of x */
function meanBytes(args: KernelArgs['meanBytes']): void {
  const { rows, cols, x, y, xScale, yScale, xZero, yZero, yDtype } = args
  for (let row = 0; row < rows; row++) {
    let sum = -cols * (xZero?.[0] ?? 0)
    for (let i = 0; i < cols; i++) sum += x[row * cols + i]!
    const mean = Math.fround((sum * xScale[0]!) / cols)
    y[row] = saturated(Math.fround(mean / yScale[0]!), yZero?.[0] ?? 0, yDtype === 'i8')
  }
}

const bytes = (isSigned: boolean, count: number) => elements(isSigned ? 'i8' : 'u8', count)

const i32 = (count: number) => elements('i32', count)

function expectBytes(dtypes: Readonly<Record<string, unknown>>): void {
  for (const [name, dtype] of Object.entries(dtypes)) expectOneOf(name, dtype, ['u8', 'i8'])
}

function expectResult({ scale, yDtype }: IntegerFeatures): void {
  if (scale) expectBytes({ yDtype })
}

/** Throws where images shall have their channels last, and cannot. */
function expectChannelsLast(args: KernelArgs['convInteger']): void {
  const { channelsLast, rows, cols, groups, kernel, scale, xOutside, yChannelsLast } = args
  const images = { xOutside: xOutside && cols / numel(kernel), yChannelsLast: yChannelsLast && rows / groups }
  for (const [name, channels = 0] of Object.entries(images))
    expectFits(
      channels === 0 || (channelsLast === true && channels % byteChannelUnit === 0),
      `${name} is for channelsLast, with groups of ${byteChannelUnit} · n channels`,
    )
  expectFits(!yChannelsLast || scale !== undefined, 'yChannelsLast is for bytes: it needs a scale')
}

/** Arrays of a weight of `rows` features, and the result. */
function featureArrays({ scale, yDtype }: IntegerFeatures, rows: number, count: number) {
  return {
    wZero: optional(i32(rows)),
    wSum: optional(i32(rows)),
    bias: optional(i32(rows)),
    scale: optional(rows),
    yZero: optional(i32(1)),
    y: elements(scale ? (yDtype as ElementType) : 'i32', count),
  }
}

/** Arrays of a quantization, x and y apart. */
const affineArrays = ({ channels }: AffineShape) => ({ scale: channels, zero: optional(i32(channels)) })

/** Contracts of int8 operations. */
export const integerRows: KernelRows<keyof IntegerKernelArgs> = {
  linearInteger: {
    kernel: linearInteger,
    sizes: ['tokens', 'rows', 'cols'],
    check: expectResult,
    operands(args) {
      const { tokens, rows, cols, packed, xSigned, wSigned } = args
      const weight = packed ? Math.ceil(rows / 32) * Math.ceil(cols / 4) * 128 : rows * cols
      return {
        x: bytes(xSigned, tokens * cols),
        w: bytes(wSigned, weight),
        xZero: optional(i32(tokens)),
        ...featureArrays(args, rows, tokens * rows),
      }
    },
  },
  convInteger: {
    kernel: convInteger,
    sizes: ['rows', 'cols'],
    check(args) {
      expectFits(args.cols > 0, 'cols is 0')
      expectResult(args)
      expectChannelsLast(args)
    },
    operands(args) {
      const { rows, xSigned, yChannelsLast } = args
      const sizes = convSizes(args, args)
      const { y, ...features } = featureArrays(args, rows, sizes.y)
      return {
        x: bytes(xSigned, sizes.x),
        xOutside: optional(bytes(xSigned, byteChannelUnit)),
        w: elements('i8', rows * convRowBytes(args)),
        xZero: optional(i32(1)),
        ...features,
        y: yChannelsLast ? optional(y) : y,
        yChannelsLast: optional(y),
      }
    },
  },
  quantize: {
    kernel: quantize,
    sizes: ['outer', 'channels', 'inner'],
    check: ({ dtype }) => expectBytes({ dtype }),
    operands(args) {
      const count = args.outer * args.channels * args.inner
      return { x: count, ...affineArrays(args), y: elements(args.dtype, count) }
    },
  },
  dequantize: {
    kernel: dequantize,
    sizes: ['outer', 'channels', 'inner'],
    check: ({ dtype }) => expectBytes({ dtype }),
    operands(args) {
      const count = args.outer * args.channels * args.inner
      return { x: elements(args.dtype, count), ...affineArrays(args), y: count }
    },
  },
  lookup: {
    kernel: lookup,
    sizes: ['count'],
    operands: ({ count, xSigned, ySigned }) => ({
      x: bytes(xSigned, count),
      table: bytes(ySigned, 256),
      y: bytes(ySigned, count),
    }),
  },
  binaryBytes: {
    kernel: binaryBytes,
    sizes: ['count'],
    check({ fn, aDtype, bDtype, yDtype }) {
      expectOneOf('fn', fn, ['add', 'mul'])
      expectBytes({ aDtype, bDtype, yDtype })
    },
    operands: ({ count, aDtype, bDtype, yDtype }) => ({
      a: elements(aDtype, count),
      b: elements(bDtype, count),
      aScale: 1,
      aZero: optional(i32(1)),
      bScale: 1,
      bZero: optional(i32(1)),
      yScale: 1,
      yZero: optional(i32(1)),
      y: elements(yDtype, count),
    }),
  },
  meanBytes: {
    kernel: meanBytes,
    sizes: ['rows'],
    check({ cols, xDtype, yDtype }) {
      expectInteger('cols', cols, 1)
      expectBytes({ xDtype, yDtype })
    },
    operands: ({ rows, cols, xDtype, yDtype }) => ({
      x: elements(xDtype, rows * cols),
      xScale: 1,
      xZero: optional(i32(1)),
      yScale: 1,
      yZero: optional(i32(1)),
      y: elements(yDtype, rows),
    }),
  },
}
