// pool.ts: largest elements and means of windows in plain TypeScript.
import type { PoolFn, TensorKernelArgs, Windows } from '../tensor-kernel-args.js'
import { pairsOf } from './conv.js'
import { volume } from './strided.js'

/** Number of taps that a mean divides by, for each position of the output. */
function divisorsOf(windows: Windows, countPad: boolean): Int32Array {
  const { image, padsBegin, padsEnd } = windows
  const counts = new Int32Array(volume(windows.out))
  // An image with its pads is one without.
  const padded = {
    image: image.map((size, i) => size + padsBegin[i]! + padsEnd[i]!),
    padsBegin: image.map(() => 0),
  }
  for (const q of pairsOf({ ...windows, ...(countPad && padded) }).q) counts[q]!++
  return counts
}

/** Calls body with the places of a tap in the image and of its window in the output, plane by plane. */
function forEachTap(windows: Windows, body: (x: number, y: number, q: number) => void): void {
  const { q, p } = pairsOf(windows)
  const [pixels, positions] = [volume(windows.image), volume(windows.out)]
  for (let plane = 0; plane < windows.planes; plane++) {
    for (let i = 0; i < q.length; i++) body(plane * pixels + p[i]!, plane * positions + q[i]!, q[i]!)
  }
}

const empty: Readonly<Record<PoolFn, number>> = { max: Number.NEGATIVE_INFINITY, average: 0 }

/** y = the largest element or the mean of each window */
export function pool(args: TensorKernelArgs['pool']): void {
  const { fn, planes, out, countPad, x, y } = args
  const positions = volume(out)
  const values = new Float64Array(planes * positions).fill(empty[fn])
  forEachTap(args, (from, to) => {
    values[to] = fn === 'max' ? Math.max(values[to]!, x[from]!) : values[to]! + x[from]!
  })
  const divisors = divisorsOf(args, countPad)
  for (let i = 0; i < values.length; i++)
    y[i] = fn === 'max' ? values[i]! : values[i]! / divisors[i % positions]!
}

/** dx = dy at the first largest element of each window, or dy / divisor at all of them */
export function poolBackward(args: TensorKernelArgs['poolBackward']): void {
  const { fn, planes, image, out, countPad, x, dy, dx } = args
  const sums = new Float64Array(planes * volume(image))
  if (fn === 'average') {
    const divisors = divisorsOf(args, countPad)
    forEachTap(args, (to, from, q) => {
      sums[to]! += dy[from]! / divisors[q]!
    })
  } else {
    const first = new Int32Array(planes * volume(out)).fill(-1)
    forEachTap(args, (at, window) => {
      const best = first[window]!
      if (best < 0 || x![at]! > x![best]! || (Number.isNaN(x![at]!) && !Number.isNaN(x![best]!)))
        first[window] = at
    })
    for (const [window, at] of first.entries()) if (at >= 0) sums[at]! += dy[window]!
  }
  for (let i = 0; i < sums.length; i++) dx[i] = sums[i]!
}
