// compareBenchmarks on measurements made by hand.
import { type BenchmarkMeasurement, compareBenchmarks } from 'dgx-spark'
import t from 'tap'
import { latencyOf } from '#lib/benchmark/statistics.js'

const made = (
  name: string,
  samples: number[],
  more: Partial<BenchmarkMeasurement> = {},
): BenchmarkMeasurement => ({
  warnings: [],
  name,
  backend: 'cpu',
  precision: 'fp32',
  ...latencyOf(samples),
  throughput: 1000 / latencyOf(samples).mean,
  samples,
  runs: samples.length,
  loadMs: 1,
  firstMs: 1,
  deviceMs: null,
  use: {
    cpu: { user: 1, system: 1, cores: 1 },
    memory: { rss: 1000, growth: 10, available: 5000 },
    gpu: null,
    energy: { cpu: 0.5, gpu: null, why: [] },
  },
  outputs: null,
  inputs: 'same',
  ...more,
})

const scores = (...values: (number | string)[]) => [{ name: 'scores', shape: [2, 3], values }]
const a = made('a', [2, 4, 6], { outputs: scores(1, 0, 0, 0, 0, 2) })
const b = made('b', [1, 2, 3], { outputs: scores(1, 0, 0, 0, 3, 2), warnings: ['b: hot', 'c: cold'] })

t.test('latency, throughput, memory, outputs', async t => {
  const comparison = compareBenchmarks(a, b)
  t.same(comparison.names, { a: 'a', b: 'b' })
  const { interval, ...latency } = comparison.latency
  t.same(latency, { a: 4, b: 2, difference: -2, speedup: 2 })
  // Squared errors 4/3 and 1/3; (5/3)² / ((4/3)²/2 + (1/3)²/2) = 50/17 degrees of freedom: t = 3.22.
  t.ok(Math.abs(interval!.high + 2 - 3.22 * Math.sqrt(5 / 3)) < 0.05, `${interval!.high}`)
  t.ok(Math.abs(interval!.low + interval!.high + 4) < 1e-12, 'around the difference')
  t.same(comparison.throughput, { a: 250, b: 500 })
  t.same(comparison.memory, {
    rss: { a: 1000, b: 1000 },
    growth: { a: 10, b: 10 },
    gpu: { a: null, b: null },
  })
  const [difference] = comparison.outputs!
  t.match(difference, { name: 'scores', maxError: 3, meanError: 0.5, elements: 6 })
  t.ok(Math.abs(difference!.cosine - 5 / Math.sqrt(5 * 14)) < 1e-12)
  t.same(comparison.notes, ['b: hot'], 'warnings of others are left out')
  t.same(JSON.parse(JSON.stringify(comparison)), { ...comparison }, 'is data')
})

t.test('text', async t => {
  const lines = String(compareBenchmarks(a, b, { labels: [0, 2] })).split('\n')
  t.equal(lines[0], 'b: hot', 'warnings first')
  t.equal(lines[1], 'b against a')
  t.match(lines[2], /^latency: 4\.000 ms -> 2\.000 ms; 2\.00 times as fast, -2\.000 ms \(95 %: -\d/)
  t.equal(lines[3], 'throughput: 250.0 -> 500.0 inferences/s')
  t.match(lines[4], /^output scores: cosine 0\.5976143, largest error 3\.00e\+0, mean error 5\.00e-1$/)
  t.equal(lines[5], 'accuracy: 100.00 % -> 50.00 % of 2 rows')
})

t.test('accuracy with labels', async t => {
  t.same(compareBenchmarks(a, b, { labels: [0, 1] }).accuracy, { a: 0.5, b: 1, rows: 2 })
  t.equal(compareBenchmarks(a, b).accuracy, null)
  const wrong = (labels: unknown, output?: string) => () =>
    compareBenchmarks(a, b, { labels: labels as number[], ...(output && { output }) })
  t.throws(wrong([0]), { code: 'ERR_ARGUMENT', message: /1 classes.*\[2, 3\] has 2 rows/ })
  t.throws(wrong([]), { code: 'ERR_ARGUMENT', message: /options\.labels/ })
  t.throws(wrong([0, 1], 'score'), { code: 'ERR_ARGUMENT', message: /no output 'score'; known: scores/ })
})

t.test('what cannot be compared is told', async t => {
  const outputs = (other: BenchmarkMeasurement) => {
    const { outputs, notes } = compareBenchmarks(a, other)
    t.equal(outputs, null)
    return notes
  }
  t.match(outputs(made('b', [1])), [/those of b are not known/])
  t.match(outputs({ ...b, inputs: 'other', warnings: [] }), [/the inputs differ/])
  const other = [{ name: 'scores', shape: [6], values: [0, 0, 0, 0, 0, 0] }]
  t.match(outputs({ ...b, outputs: other, warnings: [] }), [/not compared: .*\[6\] and \[2, 3\]/])
  t.equal(compareBenchmarks(a, made('b', [1, 2])).latency.interval, null)
})

t.test('elements that are not finite survive JSON', async t => {
  const odd = made('odd', [1, 2, 3], { outputs: scores('NaN', 'Infinity', 0, 1, 2, 3) })
  const [difference] = compareBenchmarks(odd, odd).outputs!
  t.equal(difference!.elements, 6)
  t.ok(Number.isNaN(difference!.maxError), 'NaN is not taken for 0')
})

t.test('wrong arguments', async t => {
  for (const value of [undefined, null, 7, {}, { ...a, samples: 'x' }, { ...a, outputs: [{}] }])
    t.throws(() => compareBenchmarks(a, value as BenchmarkMeasurement), {
      code: 'ERR_ARGUMENT',
      message: /^b must be a result of benchmark\(\)/,
    })
  t.throws(() => compareBenchmarks(a, b, { label: [1] } as object), {
    message: /did you mean 'labels'/,
  })
})
