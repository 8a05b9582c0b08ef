// What rewrites ask of graphs, subgraphs included.
import t from 'tap'
import { graph as graphAttribute } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import {
  allNodes,
  capturesOf,
  consumersOf,
  freshNames,
  producersOf,
  renameReads,
  replaceNodes,
} from '#lib/graph/edit.js'
import { makeGraph, makeNode } from '#lib/graph/graph.js'

const inner = makeGraph({
  name: 'inner',
  nodes: [makeNode('Add', ['x', 'w'], ['s']), makeNode('Neg', ['s'], ['n'])],
  initializers: new Map([['w', Constant.f32(1)]]),
  outputs: [{ name: 'n' }, { name: 'y' }],
})
const choice = makeNode('If', ['c'], ['r', ''], {
  attributes: { then_branch: graphAttribute(inner), else_branch: graphAttribute(inner) },
})
const graph = makeGraph({
  inputs: [{ name: 'x' }, { name: 'c' }],
  nodes: [makeNode('Abs', ['x'], ['y']), choice],
  outputs: [{ name: 'r' }],
})

t.test('who makes and reads a value', async t => {
  t.same([...capturesOf(inner)], ['x', 'y'], 'an output may be an outer value')
  t.equal(producersOf(graph).get('r'), choice)
  t.equal(producersOf(graph).has(''), false)
  t.same(consumersOf(graph).get('x'), graph.nodes)
  t.same(consumersOf(graph).get('y'), [choice], 'a reader counts once')
  t.same(
    [...allNodes(graph)].map(({ op }) => op),
    ['Abs', 'If', 'Add', 'Neg', 'Add', 'Neg'],
  )
})

t.test('fresh names', async t => {
  const fresh = freshNames(graph)
  t.same([fresh('s'), fresh('s'), fresh('z'), fresh('z'), fresh('')], ['s_1', 's_2', 'z', 'z_1', '_1'])
})

t.test('replacing nodes leaves the graph it was given', async t => {
  const before = JSON.stringify(graph.nodes)
  const doubled = replaceNodes(graph, node => {
    return node.op === 'Neg'
      ? [makeNode('Abs', node.inputs, ['t']), makeNode('Sqrt', ['t'], node.outputs)]
      : undefined
  })
  t.same(
    [...allNodes(doubled)].map(({ op }) => op),
    ['Abs', 'If', 'Add', 'Abs', 'Sqrt', 'Add', 'Abs', 'Sqrt'],
  )
  t.equal(JSON.stringify(graph.nodes), before)
  t.equal(
    replaceNodes(graph, () => undefined),
    graph,
    'nothing changed',
  )
  const renamed = renameReads(
    graph,
    new Map([
      ['x', 'other'],
      ['y', 'z'],
    ]),
  )
  t.same(
    [...allNodes(renamed)].map(({ inputs }) => inputs[0]),
    ['other', 'c', 'other', 's', 'other', 's'],
  )
  const branch = renamed.nodes[1]?.attributes.then_branch
  t.same(branch?.type === 'graph' && branch.value.outputs, [{ name: 'n' }, { name: 'z' }])
  t.same(renamed.outputs, graph.outputs)
})
