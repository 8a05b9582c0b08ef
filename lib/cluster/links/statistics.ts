// statistics.ts: numbers of a series of measurements.

/** The value below which a part of `values` lies, between neighbours in proportion; undefined of none. */
export function quantile(values: readonly number[], part: number): number | undefined {
  if (values.length === 0) return undefined
  const sorted = [...values].sort((a, b) => a - b)
  const at = (sorted.length - 1) * part
  const low = Math.floor(at)
  const high = Math.min(low + 1, sorted.length - 1)
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low)
}

/** Round trips in milliseconds. */
export interface RoundTrips {
  /** The fastest. */
  readonly minMs: number
  /** The median. */
  readonly p50Ms: number
  /** One in twenty is slower. */
  readonly p95Ms: number
  /** Smoothed |difference of neighbours|, by RFC 3550, section 6.4.1. */
  readonly jitterMs: number
}

/** Jitter after one more difference: J += (|D| − J) / 16. */
export const nextJitter = (jitter: number, difference: number): number =>
  jitter + (Math.abs(difference) - jitter) / 16

/** Sums up round trips in the order in which they were measured; undefined of none. */
export function roundTripsOf(times: readonly number[], jitterBefore = 0): RoundTrips | undefined {
  const [minMs, p50Ms, p95Ms] = [0, 0.5, 0.95].map(part => quantile(times, part))
  if (minMs === undefined) return undefined
  let jitterMs = jitterBefore
  for (let i = 1; i < times.length; i++) jitterMs = nextJitter(jitterMs, times[i] - times[i - 1])
  return { minMs, p50Ms: p50Ms!, p95Ms: p95Ms!, jitterMs }
}

/** How little a series varies, 0 to 1: 1 − interquartile range / median; undefined below four values. */
export function stabilityOf(values: readonly number[]): number | undefined {
  if (values.length < 4) return undefined
  const [low, middle, high] = [0.25, 0.5, 0.75].map(part => quantile(values, part)!)
  return middle > 0 ? Math.max(0, 1 - (high - low) / middle) : undefined
}
