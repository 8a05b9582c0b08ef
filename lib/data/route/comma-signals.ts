// comma-signals.ts: samples of the signals of comma2k19: measurements by the names of their folders, poses of the camera.
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import type { Comma2k19Segment, Measurement } from './comma2k19.js'
import type { Series, SeriesColumn } from './signal-series.js'

/** The time that those of the segments count from, in seconds since boot: that of the earliest sample. */
export function commaStart(segments: readonly Comma2k19Segment[]): number {
  const firsts = segments.flatMap(({ poses, can, measurements }) =>
    [poses, can, ...measurements.values()].flatMap(({ times }) => times[0] ?? []),
  )
  return firsts.length > 0 ? Math.min(...firsts) : 0
}

/**
 * The samples of signals, a series for each: `CAN/speed`, or `speed` where no other group has one; `positions`, `orientations` or
 * `velocities` of the camera; a number behind a dot chooses one value of several.
 * @param start - the time that counts as 0, in seconds since boot
 * @throws SparkError ERR_ARGUMENT for unknown signals
 */
export function commaSeries(
  segments: readonly Comma2k19Segment[],
  signals: readonly string[],
  start: number,
): Series[] {
  return signals.map((name, order) => {
    const parts = segments.map(segment => measurementOf(segment, name))
    const width = parts[0]?.width ?? 1
    const other = parts.find(part => part.width !== width)
    if (other)
      throw new SparkError('ERR_FORMAT', `signal ${name} has ${width} values, and ${other.width} later`)
    const times = Float64Array.from(parts.flatMap(part => Array.from(part.times, time => time - start)))
    const columns = Array.from({ length: width }, (_, j): SeriesColumn => {
      const values = parts.flatMap(part => Array.from(part.times, (_, i) => part.values[i * width + j]!))
      const isOne = width === 1
      return {
        name: isOne ? name : `${name}.${j}`,
        values: Float64Array.from(values),
        texts: null,
        isContinuous: true,
        order,
      }
    })
    return { times, columns }
  })
}

function measurementOf(segment: Comma2k19Segment, signal: string): Measurement {
  const [, name = '', index] = /^(.*?)(?:\.(\d{1,9}))?$/s.exec(signal) ?? []
  const found = named(segment, name)
  if (index === undefined) return found
  const { times, values, width } = found
  const at = Number(index)
  if (at >= width)
    throw new SparkError('ERR_ARGUMENT', `signal ${signal}: ${name} has the values 0 to ${width - 1}`)
  return { times, values: values.filter((_, i) => i % width === at), width: 1 }
}

function named({ name: segment, poses, measurements }: Comma2k19Segment, name: string): Measurement {
  const { times, positions, orientations, velocities } = poses
  const all = new Map(measurements)
  for (const [pose, values] of Object.entries({ positions, orientations, velocities }))
    all.set(pose, { times, values, width: pose === 'orientations' ? 4 : 3 })
  const matches = [...all.keys()].filter(key => key === name || key.split('/').at(-1) === name)
  if (matches.length === 1) return all.get(matches[0]!)!
  if (matches.length > 1)
    throw new SparkError('ERR_ARGUMENT', `signal ${name}: name one of ${matches.join(', ')}`)
  const known = [...all.keys()]
  const hint = didYouMean(name, [...known, ...known.map(key => key.split('/').at(-1)!)])
  throw new SparkError(
    'ERR_ARGUMENT',
    `${segment} has no signal '${name}'${hint}; it has ${known.join(', ')}`,
  )
}
