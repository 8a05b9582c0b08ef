// winograd.ts: filters as Winograd's algorithm F(4 x 4, 3 x 3) takes them.
import { SparkError } from '../../core/errors.js'
import type { KernelArgs } from '../kernels.js'
import { rowReader } from './weight-rows.js'

const g = [
  [1, 0, 0],
  [-2 / 3, -Math.SQRT2 / 3, -1 / 3],
  [-2 / 3, Math.SQRT2 / 3, -1 / 3],
  [1 / 6, Math.SQRT2 / 6, 1 / 3],
  [1 / 6, -Math.SQRT2 / 6, 1 / 3],
  [0, 0, 1],
] as const

/**
 * Elements of the transform of a weight [rows, cols].
 * @throws SparkError ERR_SHAPE when its rows are no filters of 3 x 3
 */
export function winogradSize(rows: number, cols: number): number {
  if (cols % 9 !== 0) throw new SparkError('ERR_SHAPE', `weight.cols is ${cols}, no multiple of 3 x 3`)
  return (36 * rows * cols) / 9
}

/** data[p, o, c] = (G · W[o, c] · Gᵀ)[p] */
export function winogradWeight({ weight, data }: KernelArgs['winogradWeight']): void {
  const channels = weight.cols / 9
  const read = rowReader(weight)
  for (let o = 0; o < weight.rows; o++) {
    const row = read(o)
    for (let c = 0; c < channels; c++) {
      const tap = (i: number, k: number): number => row[9 * c + 3 * i + k]!
      const half = g.map(([a, b, d]) => [0, 1, 2].map(k => a * tap(0, k) + b * tap(1, k) + d * tap(2, k)))
      half.forEach((line, i) => {
        g.forEach(([a, b, d], j) => {
          const element = line[0]! * a + line[1]! * b + line[2]! * d
          data[((6 * i + j) * weight.rows + o) * channels + c] = element
        })
      })
    }
  }
}
