// GELU and SiLU as exporters write them.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'

const graphOf = (nodes: readonly Node[]): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 7]) }],
    outputs: [{ name: 'y' }],
    nodes,
    initializers: new Map([
      ['half', Constant.f32(0.5)],
      ['one', Constant.f32(1)],
      ['three', Constant.f32(3)],
      ['root', Constant.f32(Math.SQRT2)],
      ['inverse', Constant.f32(Math.SQRT1_2)],
      ['factor', Constant.f32(Math.sqrt(2 / Math.PI))],
      ['cubic', Constant.f32(0.044715)],
      ['other', Constant.f32(0.06)],
      ['near', Constant.f32(0.04475)],
      ['f16', Constant.f32(0.044708251953125)],
      ['bf16', Constant.f32(0.044677734375)],
      ['one3', Constant.f32([1], [1, 1, 1])],
    ]),
  })

const erf = [
  makeNode('Div', ['x', 'root'], ['a']),
  makeNode('Erf', ['a'], ['e']),
  makeNode('Add', ['e', 'one'], ['g']),
]
const tanh = (cubic: string): Node[] => [
  makeNode('Pow', ['x', 'three'], ['cube']),
  makeNode('Mul', [cubic, 'cube'], ['t']),
  makeNode('Add', ['x', 't'], ['s']),
  makeNode('Mul', ['factor', 's'], ['u']),
  makeNode('Tanh', ['u'], ['e']),
  makeNode('Add', ['one', 'e'], ['g']),
]
/** The three factors in each order. */
const products = [
  [makeNode('Mul', ['x', 'g'], ['p']), makeNode('Mul', ['p', 'half'], ['y'])],
  [makeNode('Mul', ['half', 'x'], ['p']), makeNode('Mul', ['p', 'g'], ['y'])],
  [makeNode('Mul', ['g', 'half'], ['p']), makeNode('Mul', ['x', 'p'], ['y'])],
]

t.test('Gelu', async t => {
  for (const product of products) {
    for (const gate of [erf, tanh('cubic')]) {
      const { graph } = await sameOptimized(t, graphOf([...gate, ...product]))
      t.same(operators(graph), { Gelu: 1 })
    }
  }
})

t.test('another constant is no Gelu', async t => {
  for (const other of ['other', 'near']) {
    const { graph } = await sameOptimized(t, graphOf([...tanh(other), ...products[0]!]))
    t.notOk(operators(graph).Gelu, other)
  }
})

t.test('a constant of a model of 16 bits', async t => {
  for (const half of ['f16', 'bf16']) {
    const { graph } = await sameOptimized(t, graphOf([...tanh(half), ...products[0]!]), 1e-2)
    t.same(operators(graph), { Gelu: 1 }, half)
  }
})

t.test('a constant with more dimensions decides about the shape', async t => {
  const raised = [makeNode('Div', ['x', 'root'], ['a']), makeNode('Erf', ['a'], ['e'])]
  const gate = makeNode('Add', ['one3', 'e'], ['g'])
  const { graph } = await sameOptimized(t, graphOf([...raised, gate, ...products[2]!]))
  t.notOk(operators(graph).Gelu)
})

t.test('Swish', async t => {
  const nodes = [makeNode('Sigmoid', ['x'], ['s']), makeNode('Mul', ['s', 'x'], ['y'])]
  t.same(operators((await sameOptimized(t, graphOf(nodes))).graph), { Swish: 1 })
})
