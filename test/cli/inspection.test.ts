// The plan that `dgx-spark inspect` shows is the one that runs.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { Model } from 'dgx-spark'
import t, { type Test } from 'tap'
import { feedsFor } from '#lib/cli/feeds.js'
import { inspect } from '#lib/cli/inspection.js'
import { inputShapes } from '#lib/cli/shapes.js'
import { graph, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { quantizeWeights } from '#lib/graph/rewrites/quantize-weights.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { loadAddon } from '#lib/native.js'
import { adaptableGraph } from '../fixtures/models/adaptable-graph.js'

const backend = loadAddon().addon ? 'cpu' : 'js'

async function isPlanThatRuns(t: Test, graph: Graph, precision: 'fp32' | 'bf16'): Promise<void> {
  const model = await Model.fromGraph(graph, { backend, precision })
  const { plan } = await inspect(graph, graph, inputShapes(graph, {}), { backend, precision })
  await model.run(feedsFor(model, {}, {}, 0))
  const { steps, arenaBytes, lowerBound, constantBytes } = model.stats
  if (typeof plan === 'string') throw new Error(plan)
  t.match(plan, { steps, arenaBytes, lowerBound })
  // A plan that is bound shares arrays of equal constants.
  t.ok(constantBytes <= plan.constantBytes && plan.constantBytes <= 1.3 * constantBytes)
  model.dispose()
}

t.test('small graphs', async t => {
  const plain = canonicalise(adaptableGraph())
  await isPlanThatRuns(t, plain, 'fp32')
  await isPlanThatRuns(t, plain, 'bf16')
  await isPlanThatRuns(t, quantizeWeights(plain, { format: 'fp8' }), 'fp32')
})

const data = process.env.DGX_SPARK_TEST_DATA ?? ''
const quantized = path.join(data, 'models/vision/shufflenet-v2-12-int8.onnx')
const missing = data !== '' && existsSync(quantized) ? false : 'no reference data'

t.test('a model of integers', { skip: missing }, async t => {
  await isPlanThatRuns(t, canonicalise(await readOnnx(quantized)), 'fp32')
})

t.test('a model of several plans is no unsupported one', async t => {
  const branch = (name: string, op: string) => ({
    ...makeGraph({ outputs: [{ name }], nodes: [makeNode(op, ['x'], [name])] }),
  })
  const both = makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', [2]) },
      { name: 'which', type: tensorType('bool', []) },
    ],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('If', ['which'], ['y'], {
        attributes: { then_branch: graph(branch('a', 'Relu')), else_branch: graph(branch('b', 'Neg')) },
      }),
    ],
  })
  const { plan } = await inspect(both, both, inputShapes(both, {}), { backend, precision: 'fp32' })
  t.match(plan, /^several, made during a run: .*\(If\) runs between them; --profile shows them$/)
  const unknown = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Gather', ['table', 'x'], ['y'], { attributes: { axis: int(0) }, domain: 'example' })],
    initializers: new Map([['table', Constant.f32([1, 2], [2])]]),
    opsets: new Map([
      ['', 25],
      ['example', 1],
    ]),
  })
  const none = await inspect(unknown, unknown, inputShapes(unknown, {}), { backend, precision: 'fp32' })
  t.match(none.plan, /no such operator/)
})
