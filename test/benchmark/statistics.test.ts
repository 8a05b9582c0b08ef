// Statistics of latencies against numbers computed by hand.
import t from 'tap'
import { latencyOf, percentile, welchInterval } from '#lib/benchmark/statistics.js'
import { studentQuantile } from '#lib/core/student-quantile.js'

const isClose = (a: number, b: number, error = 1e-12): boolean => Math.abs(a - b) <= error * Math.abs(b)

t.test('percentiles are those of numpy.percentile', async t => {
  t.equal(percentile([7], 0.99), 7)
  t.equal(percentile([1, 2, 3, 4], 0.5), 2.5)
  t.equal(percentile([1, 2, 3, 4], 0), 1)
  t.equal(percentile([1, 2, 3, 4], 1), 4)
  // 0.9 · 4 = 3.6: between 40 and 50.
  t.ok(isClose(percentile([10, 20, 30, 40, 50], 0.9), 46))
})

t.test('latency', async t => {
  const samples = [4, 2, 5, 4, 5, 4, 9, 7]
  const { mean, std, min, p50, p90, p99, max } = latencyOf(samples)
  // Σ = 40; Σ (x − 5)² = 1 + 9 + 0 + 1 + 0 + 1 + 16 + 4 = 32
  t.same([mean, min, p50, max], [5, 2, 4.5, 9])
  t.ok(isClose(std!, Math.sqrt(32 / 7)))
  // sorted: 2 4 4 4 5 5 7 9; 0.9 · 7 = 6.3, 0.99 · 7 = 6.93
  t.ok(isClose(p90!, 7 + 0.3 * 2))
  t.ok(isClose(p99!, 7 + 0.93 * 2))
  t.same(samples, [4, 2, 5, 4, 5, 4, 9, 7], 'samples stay in their order')
  t.same(latencyOf([3]), { mean: 3, std: 0, min: 3, p50: 3, p90: 3, p99: 3, max: 3 })
})

t.test("quantiles of Student's t are those of tables", async t => {
  const table = [
    [2, 4.3027, 0.01],
    [4, 2.7764, 1e-3],
    [10, 2.2281, 1e-4],
    [30, 2.0423, 1e-4],
    [1000, 1.9623, 1e-4],
  ] as const
  for (const [freedom, quantile, error] of table)
    t.ok(isClose(studentQuantile(freedom), quantile, error), `${freedom}: ${studentQuantile(freedom)}`)
})

t.test("Welch's interval", async t => {
  // Means 3 and 6, variances 2.5 and 10; squared errors 0.5 and 2, degrees of freedom 2.5² / (0.5²/4 + 2²/4) = 100/17.
  const interval = welchInterval([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])!
  const half = studentQuantile(100 / 17) * Math.sqrt(2.5)
  t.ok(isClose(interval.low, 3 - half) && isClose(interval.high, 3 + half))
  // scipy.stats.t.ppf(0.975, 100 / 17) is 2.4587
  t.ok(isClose(half, 2.4587 * Math.sqrt(2.5), 1e-3), `${half}`)
  t.same(welchInterval([2, 2, 2], [3, 3, 3]), { low: 1, high: 1 }, 'without variance')
  t.equal(welchInterval([1, 2], [1, 2, 3]), null)
  t.equal(welchInterval([], []), null)
})
