// Powers that are products.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'

const power = (exponent: Constant): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Pow', ['x', 'exponent'], ['y'])],
    initializers: new Map([['exponent', exponent]]),
  })

t.test('a square is a product', async t => {
  for (const two of [Constant.f32(2), Constant.f32([2], [1, 1])]) {
    const { graph, fusions } = await sameOptimized(t, power(two), 0)
    t.same(operators(graph), { Mul: 1 })
    t.equal(fusions.get('square'), 1)
  }
})

t.test('other powers stay', async t => {
  for (const exponent of [Constant.f32(3), Constant.f32(-2), Constant.f32([2, 3, 2, 1, 0])]) {
    t.same(operators((await sameOptimized(t, power(exponent))).graph), { Pow: 1 })
  }
})

t.test('an exponent with more dimensions decides about the shape', async t => {
  const { graph } = await sameOptimized(t, power(Constant.f32([2], [1, 1, 1])))
  t.same(operators(graph), { Pow: 1 })
})
