// Convolutions take in what constants for each channel do behind them.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'
import { randomGenerator } from '../../../fixtures/values/random.js'

const random = randomGenerator(5)
const constant = (shape: readonly number[]): Constant =>
  Constant.f32(
    Array.from({ length: numel(shape) }, () => 0.25 + random()),
    shape,
  )

const constants = new Map([
  ['w', constant([5, 3, 3, 3])],
  ['b', constant([5])],
  ['gain', constant([5, 1, 1])],
  ['flat', constant([5])],
  ['shift', constant([1, 5, 1, 1])],
  ['one', constant([])],
  ['row', constant([9])],
  ['deep', constant([1, 1, 5, 1, 1])],
  ['axes', Constant.i64([1, 2])],
])

const graphOf = (nodes: readonly Node[], extra: readonly string[] = []): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 7, 9]) }],
    outputs: ['y', ...extra].map(name => ({ name })),
    nodes,
    initializers: constants,
  })

const conv = (inputs: readonly string[]): Node =>
  makeNode('Conv', inputs, ['c'], { attributes: { pads: ints([1, 1, 1, 1]) } })

t.test('a batch normalization that is written out, with and without bias', async t => {
  for (const inputs of [
    ['x', 'w'],
    ['x', 'w', 'b'],
  ]) {
    const { graph, fusions } = await sameOptimized(
      t,
      graphOf([
        conv(inputs),
        makeNode('Unsqueeze', ['flat', 'axes'], ['g']),
        makeNode('Mul', ['c', 'g'], ['m']),
        makeNode('Add', ['shift', 'm'], ['a']),
        makeNode('Relu', ['a'], ['y']),
      ]),
    )
    const left = operators(graph)
    t.equal(left.FusedConv, 1)
    t.notOk(left.Relu)
    t.ok((fusions.get('channels') ?? 0) >= 1)
    t.notOk(graph.nodes.some(({ op, inputs }) => op === 'Add' && inputs.includes('m')))
  }
})

for (const [op, name] of [
  ['Mul', 'one'],
  ['Div', 'gain'],
  ['Div', 'one'],
  ['Sub', 'shift'],
  ['Sub', 'one'],
  ['Add', 'one'],
] as const)
  t.test(`${op} with ${name}`, async t => {
    const { graph } = await sameOptimized(
      t,
      graphOf([conv(['x', 'w', 'b']), makeNode(op, ['c', name], ['y'])]),
    )
    const last = graph.nodes.at(-1)
    t.equal(last?.op, 'Conv')
    t.same(last?.outputs, ['y'])
  })

const stays: Record<string, Graph> = {
  'a constant along the width': graphOf([conv(['x', 'w', 'b']), makeNode('Mul', ['c', 'row'], ['y'])]),
  'a constant of more dimensions': graphOf([conv(['x', 'w', 'b']), makeNode('Mul', ['c', 'deep'], ['y'])]),
  'a quotient by the result': graphOf([conv(['x', 'w', 'b']), makeNode('Div', ['gain', 'c'], ['y'])]),
  'a difference from the result': graphOf([conv(['x', 'w', 'b']), makeNode('Sub', ['shift', 'c'], ['y'])]),
  'a result that others read': graphOf([conv(['x', 'w', 'b']), makeNode('Mul', ['c', 'gain'], ['y'])], ['c']),
}
for (const [name, graph] of Object.entries(stays))
  t.test(name, async t => {
    const { graph: same, fusions } = await sameOptimized(t, graph)
    t.notOk(fusions.has('channels'))
    t.equal(operators(same).Conv, 1)
  })
