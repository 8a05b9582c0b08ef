// sparkline.ts: a series of numbers as a line of small bars.

const bars = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']

/** The bar of a value on a scale from 0 to `max`; a space for none. */
export function bar(value: number | null, max: number): string {
  if (value === null) return ' '
  const level = max > 0 ? Math.round((value / max) * (bars.length - 1)) : 0
  return bars[Math.min(bars.length - 1, Math.max(0, level))]!
}

/** How a series is drawn. */
export interface SparklineOptions {
  /** Width in characters. */
  readonly columns: number
  /** Values that share a bar, which shows their mean. */
  readonly perColumn: number
  /** Number of the first value since the start of the series. Groups stay the same while a series moves on. */
  readonly first: number
  /** Upper end of the scale; null: the highest value that is drawn. */
  readonly max: number | null
}

/** The last values of a series, the newest at the right end; values that are null leave gaps. */
export function sparkline(values: readonly (number | null)[], options: SparklineOptions): string {
  const { columns, perColumn, first } = options
  const groupOf = (i: number): number => Math.floor((first + i) / perColumn)
  const begin = groupOf(values.length - 1) - columns + 1
  const groups: number[][] = Array.from({ length: columns }, () => [])
  for (const [i, value] of values.entries()) {
    if (value !== null) groups[groupOf(i) - begin]?.push(value)
  }
  const means = groups.map(group =>
    group.length === 0 ? null : group.reduce((sum, value) => sum + value, 0) / group.length,
  )
  const max = options.max ?? means.reduce<number>((highest, mean) => Math.max(highest, mean ?? 0), 0)
  return means.map(mean => bar(mean, max)).join('')
}
