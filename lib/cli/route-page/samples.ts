// samples.ts: measurements over time, thinned out when they are many, with ranges of all of them.

/** The least, the greatest and the mean of the finite values. */
export interface Range {
  readonly min: number
  readonly max: number
  readonly mean: number
}

/** A time in which something holds: from, to, in seconds. */
export type Span = readonly [number, number]

/** More samples are thinned out: every second is left out again. */
const maxSamples = 12_000

interface Row {
  /** s. */
  readonly time: number
  readonly values: readonly number[]
}

/** Values of some measurements at the same times. */
export class Samples<K extends string> {
  readonly #names: readonly K[]
  #rows: Row[] = []
  #stride = 1
  readonly #sums: { count: number; sum: number; min: number; max: number }[]
  /** Number of samples, those that were left out included. */
  count = 0
  #isSorted = true

  constructor(...names: readonly K[]) {
    this.#names = names
    this.#sums = names.map(() => ({
      count: 0,
      sum: 0,
      min: Number.POSITIVE_INFINITY,
      max: Number.NEGATIVE_INFINITY,
    }))
  }

  /** @param time - s */
  add(time: number, values: Readonly<Record<K, number>>): void {
    const row = this.#names.map(name => values[name])
    for (const [i, value] of row.entries()) {
      if (!Number.isFinite(value)) continue
      const sums = this.#sums[i]!
      sums.count++
      sums.sum += value
      sums.min = Math.min(sums.min, value)
      sums.max = Math.max(sums.max, value)
    }
    if (this.count++ % this.#stride !== 0) return
    this.#isSorted &&= time >= (this.#rows.at(-1)?.time ?? time)
    this.#rows.push({ time, values: row })
    if (this.#rows.length < maxSamples) return
    this.#rows = this.#rows.filter((_, i) => i % 2 === 0)
    this.#stride *= 2
  }

  #sorted(): readonly Row[] {
    // Threads log on their own: events may lie in a log in another order.
    if (!this.#isSorted) this.#rows.sort((a, b) => a.time - b.time)
    this.#isSorted = true
    return this.#rows
  }

  /** Seconds, ascending. */
  get times(): number[] {
    return this.#sorted().map(({ time }) => time)
  }

  /** In the order of the times; null for what is no finite number. */
  values(name: K): (number | null)[] {
    const at = this.#names.indexOf(name)
    return this.#sorted().map(({ values }) => (Number.isFinite(values[at]) ? values[at]! : null))
  }

  /** Of all samples; null when there is no finite value. */
  range(name: K): Range | null {
    const { count, sum, min, max } = this.#sums[this.#names.indexOf(name)]!
    return count === 0 ? null : { min, max, mean: sum / count }
  }

  /** Times in which a value is above 0, each up to the next sample. */
  spans(name: K): Span[] {
    const at = this.#names.indexOf(name)
    const rows = this.#sorted()
    const spans: [number, number][] = []
    for (const [i, { time, values }] of rows.entries()) {
      if (!(values[at]! > 0)) continue
      const end = rows[i + 1]?.time ?? time
      const last = spans.at(-1)
      if (last?.[1] === time) last[1] = end
      else spans.push([time, end])
    }
    return spans
  }
}
