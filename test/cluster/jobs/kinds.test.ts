// The kinds of jobs that the library brings: their results on two workers are those of one machine.
import path from 'node:path'
import { Model } from 'dgx-spark'
import t from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { datasetJobs, jobHandlers, joinScenarios, scenarioJobs } from '#lib/cluster/jobs/kinds.js'
import { mapJobs } from '#lib/cluster/jobs/map.js'
import { WorkerLoop } from '#lib/cluster/jobs/worker-loop.js'
import { randomGenerator } from '#lib/core/random.js'
import { idm, laneKeeping } from '#lib/simulation/controllers.js'
import { generateScenarios } from '#lib/simulation/generators.js'
import { ScenarioRunner } from '#lib/simulation/runner.js'
import { backend } from '../../fixtures/models/small-training.js'
import { small, smallModel } from '../../fixtures/models/trainable.js'

const plane = await EmbeddedControlPlane.open(path.join(t.testdir(), 'plane'))
const runnerOf = (): ScenarioRunner =>
  new ScenarioRunner({ algorithm: [idm(), laneKeeping()], device: backend })
const skills = {
  models: { small: () => Model.fromGraph(smallModel(), { backend }) },
  simulations: { driving: runnerOf },
  passes: {
    sum: async ({ begin, end }: { begin: number; end: number }) => ({
      begin,
      sum: ((end - begin) * (begin + end - 1)) / 2,
    }),
  },
}
const workers = ['a', 'b'].map(node => new WorkerLoop(plane, { node, handlers: jobHandlers(skills) }))
t.teardown(async () => {
  for (const worker of workers) await worker.close()
  await plane.close()
})

t.test('batches of a model', async t => {
  const random = randomGenerator(5)
  const batches = [3, 1, 8].map(rows => Float32Array.from({ length: rows * small.features }, () => random()))
  const jobs = batches.map(x => ({ kind: 'model.run', params: { model: 'small', feeds: { x } } }))
  const { results } = await mapJobs(plane, jobs)
  const model = await skills.models.small()
  for (const [i, x] of batches.entries()) {
    const { y } = await model.run({ x })
    t.same(results[i], { y: { shape: [...y!.shape], dtype: 'f32', data: y!.data } })
  }
})

t.test('scenarios', async t => {
  const scenarios = [...generateScenarios({ count: 7, seed: 3 })]
  const wrong = { ...scenarios[5]!, steps: -1 } as never
  const list = [...scenarios.slice(0, 5), wrong, ...scenarios.slice(6)]
  const { results, failed } = joinScenarios(
    (await mapJobs(plane, scenarioJobs('driving', list, 3))).results,
    3,
  )
  const whole = await runnerOf().runBatch(list)
  t.same(results, whole.results)
  t.same(
    failed.map(({ index }) => index),
    whole.failed.map(({ index }) => index),
  )
})

t.test('a pass over a data set', async t => {
  const { results } = await mapJobs(plane, datasetJobs('sum', 10, 4))
  t.same(results, [
    { begin: 0, sum: 6 },
    { begin: 4, sum: 22 },
    { begin: 8, sum: 17 },
  ])
  t.throws(() => datasetJobs('sum', 10, 0), { code: 'ERR_ARGUMENT' })
})

t.test('a benchmark', async t => {
  const params = { model: 'small', runs: 3, warmup: 1 }
  const { results } = await mapJobs(plane, [{ kind: 'bench', params }], { run: 'first' })
  t.match(results[0], { runs: 3, p50: Number })
})

t.test('what a node does not have', async t => {
  const jobs = [
    { kind: 'model.run', params: { model: '../model.onnx', feeds: {} } },
    { kind: 'model.run', params: null },
    { kind: 'bench', params: { model: 'small', versus: ['/model.onnx'] } },
    { kind: 'dataset', params: { pass: 'sum', begin: 3, end: 1 } },
    { kind: 'simulate', params: { simulation: 'driving', scenarios: 7 } },
  ]
  const handlers = jobHandlers(skills)
  const context = { signal: new AbortController().signal }
  for (const { kind, params } of jobs)
    await t.rejects(async () => handlers[kind]!(params, context), { code: 'ERR_ARGUMENT' })
})
