// What a graph computes: terms of products, those of recurrent layers included.
import t from 'tap'
import { int, string } from '#lib/graph/attributes.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { inferFacts } from '#lib/graph/shape-inference.js'
import { graphStatistics } from '#lib/graph/statistics.js'

const [steps, batch, features, hidden] = [5, 3, 7, 11]

function flopsOf(op: string, gates: number, attributes: Attributes, x: readonly (number | string)[]) {
  const directions = attributes.direction ? 2 : 1
  const graph = makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', x) },
      { name: 'w', type: tensorType('f32', [directions, gates * hidden, features]) },
      { name: 'r', type: tensorType('f32', [directions, gates * hidden, hidden]) },
    ],
    outputs: [{ name: 'last' }],
    nodes: [
      makeNode(op, ['x', 'w', 'r'], ['', 'last'], {
        attributes: { hidden_size: int(hidden), ...attributes },
      }),
    ],
  })
  return graphStatistics(graph, inferFacts(graph))
}

t.test('recurrent layers: a product with each input and one with each state', async t => {
  const terms = 2 * steps * batch * hidden * (features + hidden)
  t.equal(flopsOf('RNN', 1, {}, [steps, batch, features]).flops, terms)
  t.equal(flopsOf('GRU', 3, {}, [steps, batch, features]).flops, 3 * terms)
  const both = { direction: string('bidirectional'), layout: int(1) }
  const { flops, activationBytes } = flopsOf('LSTM', 4, both, [batch, steps, features])
  t.equal(flops, 2 * 4 * terms)
  t.equal(activationBytes, 2 * batch * hidden * 4, 'the last state alone')
  t.match(flopsOf('LSTM', 4, {}, ['steps', batch, features]), { flops: 0, unknown: 1 })
})
