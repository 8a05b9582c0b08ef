// channels-last.ts: weights of convolutions with the channels of each tap side by side (`channels_last` of
// native/backend/conv_args.h).
import { channelUnit } from '../conv-args.js'
import { depthUnit } from '../linear-args.js'

const padded = (count: number, unit: number): number => Math.ceil(count / unit) * unit

/** The strided copy of a weight [rows, cols] of filters of `taps` taps into zeros, and how many these are. */
export function channelsLastCopy(rows: number, cols: number, taps: number) {
  const channels = cols / taps
  const pitch = padded(channels, channelUnit)
  const depth = padded(taps * pitch, depthUnit)
  const copy = {
    ...{ shape: [rows, taps, channels], srcOffset: 0, dstOffset: 0 },
    ...{ srcStrides: [cols, 1, taps], dstStrides: [depth, pitch, 1] },
  }
  return { count: rows * depth, copy }
}
