// channels-last.ts: weights of convolutions with the channels of each tap side by side (`channels_last` of
// native/backend/conv_args.h), and transformed for tiles of 2 x 2 outputs, by Winograd's F(2 x 2, 3 x 3).
import { roundUp } from '../../core/size.js'
import { channelUnit, tileUnit } from '../conv-args.js'
import { depthUnit } from '../linear-args.js'

/** The strided copy of a weight [rows, cols] of filters of `taps` taps into zeros, and how many these are. */
export function channelsLastCopy(rows: number, cols: number, taps: number) {
  const channels = cols / taps
  const pitch = roundUp(channels, channelUnit)
  const depth = roundUp(taps * pitch, depthUnit)
  const copy = {
    ...{ shape: [rows, taps, channels], srcOffset: 0, dstOffset: 0 },
    ...{ srcStrides: [cols, 1, taps], dstStrides: [depth, pitch, 1] },
  }
  return { count: rows * depth, copy }
}

/** Numbers of a tile of 4 x 4 pixels, of which four outputs come. */
export const tileNumbers = 16

/** U = G g Gᵀ of the nine taps g of a filter as a product with [16, 9]: the number i, j is Σ G[i, k] G[j, l] g[k, l]. */
export function tileTransform(): Float32Array {
  const g = [
    [1, 0, 0],
    [1 / 2, 1 / 2, 1 / 2],
    [1 / 2, -1 / 2, 1 / 2],
    [0, 0, 1],
  ]
  return Float32Array.from(g.flatMap(a => g.flatMap(b => a.flatMap(down => b.map(across => down * across)))))
}

/** The strided copy of transformed filters [rows, channels, 16] to where tiles have them, and how many numbers these are. */
export function tilesCopy(rows: number, channels: number) {
  const [line, four] = [rows * tileUnit, 4 * tileNumbers]
  const copy = {
    ...{ shape: [channels / tileUnit, tileNumbers, rows / 2, 4, 2, 4], srcOffset: 0, dstOffset: 0 },
    srcStrides: [
      ...[tileUnit * tileNumbers, 1, 2 * channels * tileNumbers],
      ...[four, channels * tileNumbers, tileNumbers],
    ],
    dstStrides: [tileNumbers * line, line, 2 * tileUnit, 8, 4, 1],
  }
  return { count: rows * channels * tileNumbers, copy }
}
