// winograd.ts: filters as Winograd's algorithm F(4 x 4, 3 x 3) takes them.
import { SparkError } from '../../core/errors.js'
import { packWeight, panelSizes } from '../../weights/panels.js'
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
  return 36 * panelSizes({ format: 'f32', rows, cols: cols / 9 }).data
}

/** Matrix p of data = (G · W[o, c] · Gᵀ)[p], in panels */
export function winogradWeight({ weight, data }: KernelArgs['winogradWeight']): void {
  const { rows, cols } = weight
  const [channels, size] = [cols / 9, data.length / 36]
  const read = rowReader(weight)
  const matrices = g.flatMap(() => g.map(() => new Float32Array(rows * channels)))
  for (let o = 0; o < rows; o++) {
    const row = read(o)
    for (let c = 0; c < channels; c++) {
      const tap = (i: number, k: number): number => row[9 * c + 3 * i + k]!
      const half = g.map(([a, b, d]) => [0, 1, 2].map(k => a * tap(0, k) + b * tap(1, k) + d * tap(2, k)))
      half.forEach((line, i) => {
        g.forEach(([a, b, d], j) => {
          const element = line[0]! * a + line[1]! * b + line[2]! * d
          matrices[6 * i + j]![o * channels + c] = element
        })
      })
    }
  }
  for (const [p, matrix] of matrices.entries()) {
    const part = data.subarray(p * size, (p + 1) * size)
    packWeight({ format: 'f32', rows, cols: channels, data: matrix }, part)
  }
}
