// statistics.ts: statistics of latencies, and intervals of the difference of two means.
import { studentQuantile } from '../core/student-quantile.js'

/** Statistics of the latency of one inference, in milliseconds. */
export interface Latency {
  /** Arithmetic mean. */
  readonly mean: number
  /** Standard deviation of the sample, with n − 1; 0 of one run; null where a program tells it not. */
  readonly std: number | null
  /** Shortest. */
  readonly min: number
  /** Median. */
  readonly p50: number
  /** 90 % of the runs take no longer; null where a program tells it not. */
  readonly p90: number | null
  /** 99 % of the runs take no longer; null where a program tells it not. */
  readonly p99: number | null
  /** Longest. */
  readonly max: number
}

/** Where a value lies with 95 % confidence. */
export interface ConfidenceInterval {
  /** Lower end. */
  readonly low: number
  /** Upper end. */
  readonly high: number
}

/** The value below which a share of sorted samples lies, interpolated between neighbours as `numpy.percentile` does. */
export function percentile(sorted: readonly number[], share: number): number {
  const at = share * (sorted.length - 1)
  const below = sorted[Math.floor(at)]!
  return below + (at % 1) * (sorted[Math.ceil(at)]! - below)
}

/** Statistics of at least one sample. */
export function latencyOf(samples: readonly number[]): Latency {
  const sorted = [...samples].sort((a, b) => a - b)
  const mean = meanOf(samples)
  return {
    mean,
    std: Math.sqrt(varianceOf(samples, mean)),
    min: sorted[0]!,
    p50: percentile(sorted, 0.5),
    p90: percentile(sorted, 0.9),
    p99: percentile(sorted, 0.99),
    max: sorted.at(-1)!,
  }
}

/** Arithmetic mean. */
export const meanOf = (samples: readonly number[]): number =>
  samples.reduce((sum, value) => sum + value, 0) / samples.length

/** Variance of a sample, with n − 1; 0 of a single value. */
const varianceOf = (samples: readonly number[], mean: number): number =>
  samples.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, samples.length - 1)

/** Samples below which no interval is given. */
const minSamples = 3

/**
 * Where mean(b) − mean(a) lies with 95 % confidence: Welch's interval, for samples of unequal variances, with the degrees of
 * freedom of Welch and Satterthwaite. It takes samples for independent of each other; null for fewer than 3 of them.
 */
export function welchInterval(a: readonly number[], b: readonly number[]): ConfidenceInterval | null {
  if (Math.min(a.length, b.length) < minSamples) return null
  const [meanA, meanB] = [meanOf(a), meanOf(b)]
  const [errorA, errorB] = [varianceOf(a, meanA) / a.length, varianceOf(b, meanB) / b.length]
  const error = errorA + errorB
  const difference = meanB - meanA
  if (error === 0) return { low: difference, high: difference }
  const freedom = error ** 2 / (errorA ** 2 / (a.length - 1) + errorB ** 2 / (b.length - 1))
  const half = studentQuantile(freedom) * Math.sqrt(error)
  return { low: difference - half, high: difference + half }
}
