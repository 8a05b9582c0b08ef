// pool.ts: pooling and resizing in plain TypeScript.
import type { LayerKernelArgs } from '../layer-kernel-args.js'
import {
  floatReader,
  floatWriter,
  integerRange,
  integerReader,
  integerWriter,
  isInteger,
} from './elements.js'
import { contiguous, forEachIndex, volume } from './strided.js'

type PoolArgs = LayerKernelArgs['pool']

/** The taps of the window at q that are in the image, as indices in the plane, and how many are in the padded image. */
function tapsAt(args: PoolArgs, q: readonly number[]): { places: number[]; padded: number } {
  const { image, kernel, strides, dilations, padsBegin, padsEnd } = args
  let places = [0]
  let padded = 1
  image.forEach((size, axis) => {
    const positions = Array.from(
      { length: kernel[axis]! },
      (_, k) => q[axis]! * strides[axis]! + k * dilations[axis]! - padsBegin[axis]!,
    )
    const inside = positions.filter(p => p >= 0 && p < size)
    padded *= positions.filter(p => p < size + padsEnd[axis]!).length
    places = places.flatMap(place => inside.map(p => place * size + p))
  })
  return { places, padded }
}

/** The index of an element in a plane whose first axis moves fastest. */
function columnMajorIndex(image: readonly number[], index: number): number {
  let [rest, result] = [index, 0]
  const parts = image.map(() => 0)
  for (let axis = image.length - 1; axis >= 0; axis--) {
    parts[axis] = rest % image[axis]!
    rest = Math.floor(rest / image[axis]!)
  }
  for (let axis = image.length - 1; axis >= 0; axis--) result = result * image[axis]! + parts[axis]!
  return result
}

/** y[n, q] = fn over the taps of the window at q */
export function pool(args: PoolArgs): void {
  const { fn, dtype, planes, image, out, countPadding, columnMajor, x, y, indices } = args
  const floats = !isInteger(dtype)
  const read = floats ? floatReader(dtype, x) : integerReader(dtype, x)
  const write = (floats ? floatWriter(dtype, y) : integerWriter(dtype, y)) as (i: number, v: unknown) => void
  const least = floats ? Number.NEGATIVE_INFINITY : integerRange(dtype)[0]
  const size = volume(image)
  let at = 0
  for (let n = 0; n < planes; n++) {
    forEachPosition(out, q => {
      const { places, padded } = tapsAt(args, q)
      if (fn === 'average') {
        const sum = places.reduce((total, place) => total + Number(read(n * size + place)), 0)
        const divisor = countPadding ? padded : places.length
        write(at, divisor === 0 ? 0 : sum / divisor)
      } else {
        let first = -1
        for (const place of places) {
          if (first < 0 || read(n * size + place) > read(n * size + first)) first = place
        }
        write(at, first < 0 ? least : read(n * size + first))
        const index = columnMajor ? columnMajorIndex(image, first) : first
        if (indices) indices[at] = BigInt(n * size + index)
      }
      at++
    })
  }
}

function forEachPosition(shape: readonly number[], body: (position: readonly number[]) => void): void {
  const strides = contiguous(shape)
  forEachIndex(shape, strides, strides, flat => {
    body(shape.map((size, axis) => Math.floor(flat / strides[axis]!) % size))
  })
}

/** y[o, q, i] = offset[q] + Σ_t weights[q, t] · x[o, taps[q, t], i] */
export function resample(args: LayerKernelArgs['resample']): void {
  const { outer, size, inner, out, count, x, taps, weights, offset, y } = args
  for (let o = 0; o < outer; o++) {
    for (let q = 0; q < out; q++) {
      for (let i = 0; i < inner; i++) {
        let sum = offset?.[q] ?? 0
        for (let t = q * count; t < (q + 1) * count; t++) {
          sum += weights[t]! * x[(o * size + taps[t]!) * inner + i]!
        }
        y[(o * out + q) * inner + i] = sum
      }
    }
  }
}
