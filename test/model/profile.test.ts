// Model.profile: how long each step of a model takes.
import { Model } from 'dgx-spark'
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../fixtures/backends.js'

t.test('times of the steps', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 7]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('MatMul', ['x', 'w'], ['product'], { name: 'product' }),
      makeNode('Softmax', ['product'], ['y'], { name: 'choice' }),
    ],
    initializers: new Map([
      [
        'w',
        Constant.f32(
          Array.from({ length: 35 }, (_, i) => i / 9),
          [7, 5],
        ),
      ],
    ]),
  })
  const x = new Float32Array(21).fill(0.5)
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend })
    const { y: before } = await model.run({ x })
    const steps = await model.profile({ x }, { runs: 2 })
    t.same(
      steps.map(({ op, node }) => [op, node]),
      [
        ['linear', 'product'],
        ['softmax', 'choice'],
      ],
      backend,
    )
    t.ok(steps.every(({ ms }) => ms > 0 && ms < 1000))
    t.same(
      steps.map(({ flops }) => flops),
      [2 * 3 * 7 * 5, 0],
    )
    t.ok(model.stats.compileMs > 0)
    t.same(model.stats.fusions, { linear: 1 })
    t.same((await model.run({ x })).y, before, 'runs as before')
    await t.rejects(model.profile({ x }, { runs: 0 }), { code: 'ERR_ARGUMENT' })
    await t.rejects(model.profile({}), { code: 'ERR_ARGUMENT' })
  }
})

t.test('only what the run used', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 7]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Softmax', ['x'], ['y'])],
  })
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend })
    for (const n of [2, 5, 3]) await model.run({ x: new Float32Array(7 * n) })
    const [step, ...others] = await model.profile({ x: new Float32Array(7 * 5) })
    t.same(step?.sizes, [35, 35], backend)
    t.equal(others.length, 0, 'not the other sizes')
  }
})
