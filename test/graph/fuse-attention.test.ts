// Attention from products and softmax, with and without splitting heads.
import t from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../fixtures/optimized.js'

const perm = (...axes: number[]) => ({ attributes: { perm: ints(axes) } })
const lower = Array.from({ length: 25 }, (_, i) => (i % 5 <= Math.floor(i / 5) ? 1 : 0))

/** y from q, k, v, each [2, 5, 3 · 4], which are split into 3 heads. */
function graphOf(masking: readonly Node[], turned: readonly Node[]): Graph {
  const split = (name: string): Node => makeNode('Reshape', [name, 'split'], [`${name}/parts`])
  return makeGraph({
    inputs: ['q', 'k', 'v'].map(name => ({ name, type: tensorType('f32', [2, 5, 12]) })),
    outputs: [{ name: 'y' }],
    nodes: [
      ...['q', 'k', 'v'].map(split),
      makeNode('Transpose', ['q/parts'], ['q4'], perm(0, 2, 1, 3)),
      makeNode('Transpose', ['v/parts'], ['v4'], perm(0, 2, 1, 3)),
      ...turned,
      makeNode('MatMul', ['q4', 'kt'], ['product']),
      makeNode('Div', ['product', 'root'], ['scores']),
      ...masking,
      makeNode('Softmax', ['masked'], ['p'], { attributes: { axis: int(-1) } }),
      makeNode('MatMul', ['p', 'v4'], ['y4']),
      makeNode('Transpose', ['y4'], ['y3'], perm(0, 2, 1, 3)),
      makeNode('Reshape', ['y3', 'joined'], ['y']),
    ],
    initializers: new Map([
      ['split', Constant.i64([2, 5, 3, 4])],
      ['joined', Constant.i64([2, 5, 12])],
      ['root', Constant.f32(2)],
      ['hidden', Constant.f32(Number.NEGATIVE_INFINITY)],
      ['seen', Constant.from('bool', [1, 1, 5, 5], Uint8Array.from(lower))],
      [
        'blind',
        Constant.from(
          'bool',
          [1, 1, 5, 5],
          Uint8Array.from(lower, value => 1 - value),
        ),
      ],
      [
        'bias',
        Constant.f32(
          lower.map(value => value - 0.5),
          [5, 5],
        ),
      ],
    ]),
  })
}

const direct = [makeNode('Transpose', ['k/parts'], ['kt'], perm(0, 2, 3, 1))]
const twice = [
  makeNode('Transpose', ['k/parts'], ['k4'], perm(0, 2, 1, 3)),
  makeNode('Transpose', ['k4'], ['kt'], perm(0, 1, 3, 2)),
]
const maskings = {
  none: [makeNode('Identity', ['scores'], ['masked'])],
  added: [makeNode('Add', ['scores', 'bias'], ['masked'])],
  seen: [makeNode('Where', ['seen', 'scores', 'hidden'], ['masked'])],
  hidden: [makeNode('Where', ['blind', 'hidden', 'scores'], ['masked'])],
}

for (const [name, masking] of Object.entries(maskings)) {
  t.test(`mask: ${name}`, async t => {
    for (const turned of [direct, twice]) {
      const { graph, fusions } = await sameOptimized(t, graphOf(masking, turned))
      t.equal(fusions.get('attention heads'), 1)
      t.same(operators(graph), { ...(name === 'hidden' ? { Not: 1 } : {}), Attention: 1 })
    }
  })
}

t.test('scores that are an output stay', async t => {
  const graph = graphOf(maskings.none, direct)
  const { fusions } = await sameOptimized(t, { ...graph, outputs: [...graph.outputs, { name: 'p' }] })
  t.notOk(fusions.has('attention'))
})
