// Copies of inputs: each run has its own, in memory that is used again.
import { Model } from 'dgx-spark'
import t from 'tap'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../fixtures/backends.js'

t.test('inputs are copied, to memory that runs use again', async t => {
  const count = 40_000
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n']) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Neg', ['x'], ['y'])],
  })
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend })
    const x = new Float32Array(count)
    const first = (value: number, length = count) => {
      const run = model.run<{ y: 'f32' }>({ x: x.subarray(0, length).fill(value) })
      x.fill(-1)
      return run.then(({ y }) => [y.shape, y.data[0], y.data.at(-1)])
    }
    t.same(await first(1), [[count], -1, -1], backend)
    const together = [first(2), first(3), first(4, 10_000)]
    t.same(await Promise.all(together), [
      [[count], -2, -2],
      [[count], -3, -3],
      [[10_000], -4, -4],
    ])
    await t.rejects(model.run({ x: new Float64Array(count) }), { code: 'ERR_DTYPE' })
    t.same(await first(5), [[count], -5, -5])
  }
})
