// Results belong to a scenario: whatever runs beside it, in which order, and in batches of which size.
import { availableParallelism } from 'node:os'
import {
  type BatchResult,
  type DrivingScenario,
  generateScenarios,
  idm,
  laneKeeping,
  type PolicyWithMemory,
  type ScenarioResult,
  ScenarioRunner,
  type ScenarioRunnerOptions,
} from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

/** Keeps the lane, drives as the intelligent driver, and remembers what it did. */
const smooth: PolicyWithMemory = {
  memory: { before: 0, all: [0, 1, 2] },
  act(observation, memory) {
    const { acceleration } = idm().act(observation, {}).action
    const wish = memory
      .before!.multiply(0.8)
      .add((acceleration as never as typeof memory.before)!.multiply(0.2))
    return {
      action: { acceleration: wish.add(memory.all!.sum().multiply(1e-3)) },
      memory: { before: wish, all: memory.all!.multiply(0.9).add(observation.speed!.sin()) },
    }
  },
}

const algorithm = [smooth, laneKeeping()]
const mixed: DrivingScenario[] = generateScenarios({ count: 36, seed: 3 }).map((scenario, i) => ({
  ...scenario,
  duration: [2, 0.75, 3, 0.05, 1][i % 5]!,
}))

/** Numbers of a result as their bits, by its name. */
const bitsOf = ({ name, ended, steps, metrics, trajectory }: ScenarioResult): string =>
  JSON.stringify([
    name,
    ended,
    steps,
    Object.entries(metrics).map(([key, value]) => [
      key,
      Buffer.from(Float64Array.of(value).buffer).toString('hex'),
    ]),
    Object.entries(trajectory ?? {}).map(([key, values]) => [
      key,
      Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString('hex'),
    ]),
  ])

const sorted = ({ results }: BatchResult): string[] => results.map(bitsOf).sort()

async function run(
  scenarios: readonly DrivingScenario[],
  options: Omit<ScenarioRunnerOptions, 'algorithm'>,
  trajectories = true,
): Promise<BatchResult> {
  using runner = new ScenarioRunner({ algorithm, ...options })
  return await runner.runBatch(scenarios, { trajectories })
}

for (const device of backends) {
  t.test(`batches of any size and order, bit for bit, on ${device}`, async t => {
    const wanted = sorted(await run(mixed, { device }))
    t.equal(new Set(wanted).size, mixed.length)
    for (const batchSize of [1, 2, 7, 33])
      t.same(sorted(await run(mixed, { device, batchSize })), wanted, `batches of ${batchSize}`)
    t.same(sorted(await run([...mixed].reverse(), { device, batchSize: 33 })), wanted, 'the other way round')
    const part = mixed.filter((_, i) => i % 3 === 1)
    const partly = sorted(await run(part, { device }))
    t.equal(partly.length, part.length)
    t.ok(
      partly.every(each => wanted.includes(each)),
      'some of them',
    )
    const without = await run(mixed, { device }, false)
    const metrics = (all: BatchResult) => all.results.map(each => each.metrics)
    t.same(metrics(without), metrics(await run(mixed, { device })), 'with and without trajectories')
  })

  t.test(`one runner again and again on ${device}`, async t => {
    using runner = new ScenarioRunner({ algorithm, device, batchSize: 16 })
    const first = await runner.runBatch(mixed, { trajectories: true })
    t.same(sorted(await runner.runBatch(mixed, { trajectories: true })), sorted(first))
    const others = generateScenarios({ count: 16, seed: 500, duration: 2 })
    const [a, b, c] = await Promise.all([
      runner.runBatch(others, { trajectories: true }),
      runner.runBatch(mixed, { trajectories: true }),
      runner.runBatch(others, { trajectories: true }),
    ])
    t.same(sorted(b), sorted(first), 'beside others')
    t.same(sorted(a), sorted(c))
    t.same(sorted(a), sorted(await run(others, { device })))
    t.equal(b.device, device)
    t.ok(b.ms > 0)
  })
}

t.test(
  'the same results with any number of threads',
  { skip: !backends.includes('cpu') && 'no addon' },
  async t => {
    // The kernels of the CPU share out what they do by size; one scenario and many are divided differently.
    const scenarios = generateScenarios({ count: 300, seed: 9, duration: 0.5 })
    const all = sorted(await run(scenarios, { device: 'cpu' }))
    t.same(
      sorted(await run(scenarios, { device: 'cpu', batchSize: 5 })),
      all,
      `${availableParallelism()} threads`,
    )
  },
)

t.test('order, names and progress', async t => {
  using runner = new ScenarioRunner({ algorithm, device: 'js', batchSize: 4 })
  const seen: { done: number; total: number }[] = []
  const onProgress = (progress: { done: number; total: number }) => seen.push(progress)
  const list = mixed.slice(0, 10).map(({ name: _, ...scenario }) => scenario)
  const { results } = await runner.runBatch(list, { onProgress })
  t.same(
    results.map(({ index, name }) => [index, name]),
    list.map((_, i) => [i, `scenario ${i}`]),
  )
  t.same(seen, [
    { done: 4, total: 10 },
    { done: 8, total: 10 },
    { done: 10, total: 10 },
  ])
  t.notOk(results.some(result => 'trajectory' in result))
  t.match(await runner.runBatch([]), { results: [], failed: [], device: 'js' })
})

t.test('a signal', async t => {
  using runner = new ScenarioRunner({ algorithm, device: 'js', batchSize: 1 })
  await t.rejects(runner.runBatch(mixed, { signal: AbortSignal.abort(new Error('before')) }), {
    message: 'before',
  })
  const stop = new AbortController()
  const onProgress = ({ done }: { done: number }) => done === 2 && stop.abort(new Error('during'))
  await t.rejects(runner.runBatch(mixed, { signal: stop.signal, onProgress }), { message: 'during' })
  const long = new AbortController()
  const running = runner.runBatch([{ duration: 3600, ego: { speed: 20 } }], { signal: long.signal })
  setTimeout(() => long.abort(new Error('in one batch')), 50)
  await t.rejects(running, { message: 'in one batch' })
  const after = await runner.runBatch(mixed.slice(0, 5), { trajectories: true })
  t.same(sorted(after), sorted(await run(mixed.slice(0, 5), { device: 'js' })), 'the next run begins anew')
  await t.rejects(runner.runBatch(mixed, { signal: 'stop' as never }), {
    code: 'ERR_ARGUMENT',
    message: /options\.signal/,
  })
})

t.test('dispose', async t => {
  const runner = new ScenarioRunner({ algorithm, device: 'js' })
  const running = runner.runBatch(mixed.slice(0, 3))
  await new Promise(resolve => setTimeout(resolve, 5))
  runner.dispose()
  runner.dispose()
  t.equal((await running).results.length, 3, 'a run that has begun ends')
  await t.rejects(runner.runBatch(mixed), { code: 'ERR_DISPOSED' })
  const unused = new ScenarioRunner({ algorithm })
  unused.dispose()
  await t.rejects(unused.runBatch(mixed), { code: 'ERR_DISPOSED' })
})

t.test('options that are wrong', async t => {
  const make = (options: object) => () => new ScenarioRunner({ algorithm, ...options })
  t.throws(make({ batchSize: 0 }), { code: 'ERR_ARGUMENT', message: /options\.batchSize .*got 0/ })
  t.throws(make({ device: 'gpu' }), { code: 'ERR_ARGUMENT', message: /options\.device .*'gpu'/ })
  t.throws(make({ algorithm: undefined }), { code: 'ERR_ARGUMENT', message: /options\.algorithm/ })
  t.throws(make({ batchsize: 3 }), { code: 'ERR_ARGUMENT', message: /batchSize/ })
  using runner = new ScenarioRunner({ algorithm, device: 'js' })
  await t.rejects(runner.runBatch(mixed, { trajectory: true } as never), {
    code: 'ERR_ARGUMENT',
    message: /trajectories/,
  })
  await t.rejects(runner.runBatch(mixed[0] as never), {
    code: 'ERR_ARGUMENT',
    message: /scenarios must be a list/,
  })
})
