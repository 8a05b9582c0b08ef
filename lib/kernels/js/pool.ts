// pool.ts: largest elements and means of windows in plain TypeScript.
import { expectOneOf } from '../../core/checks.js'
import type { Paced } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { isSmallImage } from '../compact.js'
import type { KernelArgs, Windows } from '../kernels.js'
import { poolFns } from '../layer-args.js'
import { pairsOf, transposedImages } from './conv.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'
import { expectWindow } from './windows.js'

/** Number of taps that a mean divides by, for each position of the output. */
function* divisorsOf(windows: Windows, countPad: boolean): Paced<Int32Array> {
  const { image, padsBegin, padsEnd } = windows
  const counts = new Int32Array(numel(windows.out))
  // An image with its pads is one without.
  const padded = {
    image: image.map((size, i) => size + padsBegin[i]! + padsEnd[i]!),
    padsBegin: image.map(() => 0),
  }
  const { q } = yield* pairsOf({ ...windows, ...(countPad && padded) })
  for (const position of q) counts[position]!++
  return counts
}

/** Calls body with the offsets of a tap in the image and of its window in the output, plane by plane. */
function* forEachTap(windows: Windows, body: (x: number, y: number, q: number) => void): Paced<void> {
  const { q, p } = yield* pairsOf(windows)
  const [pixels, positions] = [numel(windows.image), numel(windows.out)]
  for (let plane = 0; plane < windows.planes; plane++) {
    for (let i = 0; i < q.length; i++) body(plane * pixels + p[i]!, plane * positions + q[i]!, q[i]!)
    yield
  }
}

/** y = the largest element or the mean of each window */
function* pool(args: KernelArgs['pool']): Paced<void> {
  const { planes, image, out, compactChannels: channels } = args
  const [x, y] = [args.x as Float32Array, args.y as Float32Array]
  if (!channels || !isSmallImage(numel(image), channels)) return yield* poolPlanes({ ...args, x, y })
  const batch = planes / channels
  const ofPlanes = new Float32Array(y.length)
  yield* poolPlanes({ ...args, x: transposedImages(x, batch, numel(image), channels), y: ofPlanes })
  y.set(transposedImages(ofPlanes, batch, channels, numel(out)))
}

/** The same, of images as planes. */
function* poolPlanes(args: KernelArgs['pool'] & { x: Float32Array; y: Float32Array }): Paced<void> {
  const { fn, countPad, out, indices, x, y } = args
  if (fn === 'max') {
    const min = args.dtype === 'u8' ? 0 : args.dtype === 'i8' ? -128 : Number.NEGATIVE_INFINITY
    for (const [window, at] of (yield* firstLargest(args, x)).entries()) {
      y[window] = at < 0 ? min : x[at]!
      if (indices) indices[window] = BigInt(at)
    }
    return
  }
  const sums = new Float64Array(args.planes * numel(out))
  yield* forEachTap(args, (from, to) => {
    sums[to]! += x[from]!
  })
  const divisors = yield* divisorsOf(args, countPad)
  for (const [i, sum] of sums.entries()) y[i] = sum / divisors[i % divisors.length]!
}

/** Where the first largest element of each window is, NaN being the largest; −1 where there is none. */
function* firstLargest(windows: Windows, x: Float32Array): Paced<Int32Array> {
  const first = new Int32Array(windows.planes * numel(windows.out)).fill(-1)
  yield* forEachTap(windows, (at, window) => {
    const best = first[window]!
    if (best < 0 || x[at]! > x[best]! || (Number.isNaN(x[at]!) && !Number.isNaN(x[best]!))) first[window] = at
  })
  return first
}

/** dx = dy at the first largest element of each window, or dy / divisor at all of them */
function* poolBackward(args: KernelArgs['poolBackward']): Paced<void> {
  const { fn, planes, image, countPad, x, dx } = args
  const dy = args.dy as Float32Array
  const sums = new Float64Array(planes * numel(image))
  if (fn === 'average') {
    const divisors = yield* divisorsOf(args, countPad)
    yield* forEachTap(args, (to, from, q) => {
      sums[to]! += dy[from]! / divisors[q]!
    })
  } else {
    for (const [window, at] of (yield* firstLargest(args, x as Float32Array)).entries())
      if (at >= 0) sums[at]! += dy[window]!
  }
  for (let i = 0; i < sums.length; i++) dx[i] = sums[i]!
}

/** Elements of the images and of the outputs. */
const sizesOf = ({ planes, image, out }: Windows) => [planes * numel(image), planes * numel(out)] as const

function expectPool(args: KernelArgs['pool'] | KernelArgs['poolBackward']): void {
  expectOneOf('fn', args.fn, poolFns)
  expectWindow(args, { padsBegin: 0, padsEnd: 0 })
}

/** Contracts of pooling. */
export const poolRows: KernelRows<'pool' | 'poolBackward'> = {
  pool: {
    kernel: pool,
    sizes: ['planes'],
    check(args) {
      expectPool(args)
      const { dtype, indices, planes, compactChannels: channels } = args
      const fits =
        channels !== undefined && channels > 0 && planes % channels === 0 && dtype === 'f32' && !indices
      const message = 'compactChannels needs planes of whole images, in f32 and without indices'
      expectFits(channels === undefined || fits, message)
    },
    operands(args) {
      const [image, out] = sizesOf(args)
      return {
        x: elements(args.dtype, image),
        y: elements(args.dtype, out),
        indices: optional(elements('i64', out)),
      }
    },
  },
  poolBackward: {
    kernel: poolBackward,
    sizes: ['planes'],
    check: expectPool,
    operands(args) {
      const [image, out] = sizesOf(args)
      const x = elements(args.dtype, image)
      return { x: args.fn === 'max' ? x : optional(x), dy: elements(args.dtype, out), dx: x }
    },
  },
}
