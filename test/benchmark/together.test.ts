// benchmarkTogether: several models on one clock.
import path from 'node:path'
import { benchmarkTogether, Model, type TogetherOptions } from 'dgx-spark'
import t from 'tap'
import { latencyOf } from '#lib/benchmark/statistics.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'

const folder = t.testdir({})
/** A product of two square matrices. */
async function save(name: string, size: number): Promise<string> {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [size, size]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', Constant.from('f32', [size, size], new Float32Array(size ** 2))]]),
  })
  const model = await Model.fromGraph(graph, { backend: 'js' })
  const file = path.join(folder, `${name}.onnx`)
  await model.save(file)
  model.dispose()
  return file
}
const [small, large] = [await save('small', 4), await save('large', 192)]
const js = { backend: 'js', precision: 'fp32', warmup: 1 } as const

t.test('latencies of the models and of all of them', async t => {
  const result = await benchmarkTogether([small, large], { ...js, hz: 100, runs: 12 })
  t.match(result, { hz: 100, frames: 12, seed: 0, warmup: 1, interrupted: false })
  t.same(
    result.models.map(({ name }) => name),
    ['small js fp32', 'large js fp32'],
  )
  const [first, second] = result.models.map(({ samples }) => samples)
  t.equal(first!.length, 12)
  for (const [i, ms] of result.combined.samples.entries())
    t.ok(Math.abs(ms - first![i]! - second![i]!) < 1e-9, 'the sum of both')
  for (const { samples, ...statistics } of [...result.models, result.combined])
    t.match(statistics, latencyOf(samples))
  t.equal(result.misses, result.combined.samples.filter(ms => ms > 10).length)
  t.ok(result.use.cpu!.cores >= 0)
})

t.test('a clock that is too fast', async t => {
  const result = await benchmarkTogether([large, large], { ...js, hz: 10_000, runs: 5 })
  t.equal(result.misses, 5, 'no frame ends within 0.1 ms')
  t.ok(result.dropped >= 5 - 1, `${result.dropped} ticks passed meanwhile`)
  t.equal(result.models[0]!.name, result.models[1]!.name)
})

t.test('a clock waits', async t => {
  const start = performance.now()
  const result = await benchmarkTogether([small], { ...js, hz: 20, seconds: 0.25 })
  t.equal(result.frames, 5)
  t.ok(performance.now() - start >= 200, 'four periods of 50 ms')
})

t.test('a signal', async t => {
  const stop = new AbortController()
  const model = await Model.load(small, { backend: 'js' })
  const run = model.run.bind(model)
  let calls = 0
  model.run = (...args): Promise<never> => {
    if (++calls === 6) stop.abort()
    return run(...args) as Promise<never>
  }
  const result = await benchmarkTogether([model], { hz: 100, runs: 100_000, warmup: 1, signal: stop.signal })
  model.dispose()
  t.equal(result.interrupted, true)
  t.equal(result.frames, 6 - 2)
  await t.rejects(benchmarkTogether([small], { ...js, signal: AbortSignal.abort() }), { name: 'AbortError' })
})

t.test('wrong arguments', async t => {
  const rejects = (models: unknown, options: object, message: RegExp) =>
    t.rejects(benchmarkTogether(models as string[], options as TogetherOptions), {
      code: 'ERR_ARGUMENT',
      message,
    })
  await rejects([], {}, /^models must be an array of at least one model/)
  await rejects(small, {}, /^models must be an array/)
  await rejects([small, 5], {}, /^models\[1\] must be the path/)
  await rejects([small], { hz: 0 }, /options\.hz must be a number in/)
  await rejects([small], { second: 1 }, /did you mean 'seconds'/)
  await rejects([small], { seconds: 1, runs: 1 }, /give one of them/)
})
