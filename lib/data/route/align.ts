// align.ts: samples of different rates, aligned by their times.
import { SparkError } from '../../core/errors.js'

/**
 * For each wanted time the number of samples at or before it: `counts[i] - 1` is the latest sample then, and the samples from
 * `counts[i - 1]` to `counts[i]` came since the wanted time before.
 * @param times - of the samples, ascending
 * @param wanted - ascending, of the same clock and unit
 * @throws SparkError ERR_ARGUMENT for times that descend
 */
export function countsBefore(
  times: ArrayLike<number | bigint>,
  wanted: ArrayLike<number | bigint>,
): Uint32Array {
  const counts = new Uint32Array(wanted.length)
  let count = 0
  for (let i = 0; i < wanted.length; i++) {
    if (i > 0 && wanted[i]! < wanted[i - 1]!) throw descending('wanted', i, wanted)
    for (; count < times.length && times[count]! <= wanted[i]!; count++)
      if (count > 0 && times[count]! < times[count - 1]!) throw descending('times', count, times)
    counts[i] = count
  }
  return counts
}

const descending = (name: string, at: number, times: ArrayLike<number | bigint>): SparkError =>
  new SparkError(
    'ERR_ARGUMENT',
    `${name} must ascend, but ${name}[${at}] is ${times[at]} after ${times[at - 1]}`,
  )

/**
 * Values of a measurement at other times, interpolated linearly; before the first and after the last sample the value of that.
 * @param times - of the samples, ascending
 * @param values - [samples, width]
 * @param wanted - ascending
 * @returns [wanted, width]
 * @throws SparkError ERR_ARGUMENT for times that descend, and without samples
 */
export function interpolate(
  times: Float64Array,
  values: Float64Array,
  wanted: ArrayLike<number>,
): Float64Array<ArrayBuffer> {
  if (times.length === 0) throw new SparkError('ERR_ARGUMENT', 'times must have a sample, got none')
  const width = values.length / times.length
  const counts = countsBefore(times, wanted)
  const result = new Float64Array(wanted.length * width)
  for (let i = 0; i < wanted.length; i++) {
    const after = Math.min(counts[i]!, times.length - 1)
    const before = Math.max(counts[i]! - 1, 0)
    const span = times[after]! - times[before]!
    const share = span > 0 ? (wanted[i]! - times[before]!) / span : 0
    for (let j = 0; j < width; j++) {
      const [a, b] = [values[before * width + j]!, values[after * width + j]!]
      result[i * width + j] = share === 0 ? a : a + share * (b - a)
    }
  }
  return result
}
