// Two algorithms on the same scenarios: paired differences, Student's t, and what is left out.
import {
  acc,
  type BatchResult,
  generateScenarios,
  idm,
  laneKeeping,
  ScenarioRunner,
  SparkError,
} from 'dgx-spark'
import t from 'tap'
import { studentQuantile } from '#lib/core/student-quantile.js'
import { compareResults } from '#lib/simulation/comparison.js'
import { backends } from '../fixtures/backends.js'

/** Results with a metric `m`, by index. */
const resultsOf = (values: Readonly<Record<number, number>>): BatchResult => ({
  results: Object.entries(values).map(([index, m]) => ({
    index: Number(index),
    name: `scenario ${index}`,
    ended: 'finished',
    steps: 1,
    seconds: 1,
    metrics: { m },
  })),
  failed: [],
  device: 'js',
  ms: 0,
})

const isNear = (a: number, b: number, tolerance: number): boolean => Math.abs(a - b) <= tolerance

t.test("quantiles of Student's t", t => {
  // R: qt(0.975, degrees)
  const table: readonly [number, number][] = [
    [1, 12.70620474],
    [2, 4.30265273],
    [5, 2.57058184],
    [10, 2.22813885],
    [11, 2.20098516],
    [12, 2.17881283],
    [20, 2.08596345],
    [30, 2.04227246],
    [60, 2.00029782],
    [100, 1.98397152],
    [1e9, 1.95996398],
  ]
  for (const [degrees, wanted] of table)
    t.ok(isNear(studentQuantile(degrees), wanted, 3e-5), `${degrees}: ${studentQuantile(degrees)}`)
  t.ok(Number.isNaN(studentQuantile(0)))
  t.end()
})

t.test('paired differences by hand', t => {
  // Differences 1, 2, 3, 4: mean 2.5, deviation √(5/3), t of 3 degrees 3.182446.
  const { count, metrics } = compareResults(resultsOf([10, 20, 30, 40]), resultsOf([11, 22, 33, 44]))
  t.equal(count, 4)
  const { a, b, difference, interval, lower, higher } = metrics.m!
  t.same([a, b, difference, lower, higher], [25, 27.5, 2.5, 0, 4])
  const half = 3.182446 * Math.sqrt(5 / 3 / 4)
  t.ok(isNear(interval[0], 2.5 - half, 1e-4), `${interval[0]}`)
  t.ok(isNear(interval[1], 2.5 + half, 1e-4))
  t.end()
})

t.test('signs, equal results, and a single scenario', t => {
  const { m } = compareResults(resultsOf([1, 2, 3]), resultsOf([0, 2, 5])).metrics
  t.match(m, { lower: 1, higher: 1 })
  t.ok(isNear(m!.difference, 1 / 3, 1e-12))
  t.same(compareResults(resultsOf([1, 2]), resultsOf([1, 2])).metrics.m, {
    a: 1.5,
    b: 1.5,
    difference: 0,
    interval: [0, 0],
    lower: 0,
    higher: 0,
  })
  const single = compareResults(resultsOf([1]), resultsOf([3])).metrics.m!
  t.equal(single.difference, 2)
  t.ok(single.interval.every(Number.isNaN))
  t.end()
})

t.test('scenarios that only one of them ran are left out', t => {
  const a = resultsOf({ 0: 5, 2: 7, 3: 1 })
  const b = resultsOf({ 1: 100, 2: 6, 3: 3 })
  const { count, metrics } = compareResults(a, b)
  t.equal(count, 2)
  t.match(metrics.m, { a: 4, b: 4.5, difference: 0.5 })
  t.throws(() => compareResults(resultsOf({ 0: 1 }), resultsOf({ 1: 1 })), SparkError)
  t.throws(() => compareResults(resultsOf({}), resultsOf({})), {
    code: 'ERR_ARGUMENT',
    message: /no scenario/,
  })
  t.end()
})

t.test('compareAlgorithms', async t => {
  const [a, b] = [
    [idm(), laneKeeping()],
    [acc(), laneKeeping()],
  ]
  using runner = new ScenarioRunner({ algorithm: a!, device: backends.at(-1)! })
  const scenarios = generateScenarios({ count: 12, duration: 5, seed: 1 })
  const wrong = { duration: -1, ego: { speed: 1 } }
  const compared = await runner.compareAlgorithms(a!, b!, [...scenarios, wrong])
  t.equal(compared.count, 12)
  t.equal(compared.a.failed.length, 1)
  const { results } = await runner.runBatch(scenarios)
  t.same(compared.a.results, results, 'a is what the runner gives by itself')
  const differences = scenarios.map(
    (_, i) => compared.b.results[i]!.metrics.jerk! - results[i]!.metrics.jerk!,
  )
  t.ok(isNear(compared.metrics.jerk!.difference, differences.reduce((x, y) => x + y) / 12, 1e-9))
  t.ok(compared.metrics.jerk!.difference !== 0)
  const { metrics } = await runner.compareAlgorithms(a!, a!, scenarios)
  for (const [name, { difference, interval }] of Object.entries(metrics))
    t.same([difference, ...interval], [0, 0, 0], `${name} of an algorithm and itself`)
  await t.rejects(runner.compareAlgorithms(a!, b!, [wrong]), { code: 'ERR_ARGUMENT', message: /no scenario/ })
})
