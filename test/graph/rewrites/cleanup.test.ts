// What is not needed goes, what is computed twice is computed once.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { graph as graphAttribute, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { mergeCommonSubexpressions } from '#lib/graph/rewrites/common-subexpressions.js'
import { GraphView } from '#lib/graph/rewrites/fuse/pattern.js'
import { removeDead } from '#lib/graph/rewrites/remove-dead.js'
import { removeIdentities } from '#lib/graph/rewrites/remove-identities.js'
import { operators, sameOptimized } from '../../fixtures/models/optimized.js'

const perm = (...axes: number[]) => ({ attributes: { perm: ints(axes) } })
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 5]) }],
  outputs: [{ name: 'y' }, { name: 'z' }],
  nodes: [
    makeNode('Identity', ['x'], ['i']),
    makeNode('Dropout', ['i'], ['d']),
    makeNode('Exp', ['d'], ['nobody']),
    makeNode('Transpose', ['d'], ['t'], perm(2, 0, 1)),
    makeNode('Transpose', ['t'], ['back'], perm(1, 2, 0)),
    makeNode('Transpose', ['t'], ['u'], perm(0, 2, 1)),
    makeNode('Tanh', ['d'], ['a']),
    makeNode('Tanh', ['x'], ['b']),
    makeNode('Add', ['a', 'b'], ['c']),
    makeNode('Add', ['c', 'back'], ['y']),
    makeNode('Identity', ['u'], ['z']),
  ],
  initializers: new Map([['unused', Constant.f32(1)]]),
})

t.test('dead nodes and constants', async t => {
  const after = removeDead(graph)
  t.notOk(operators(after).Exp)
  t.equal(after.initializers.size, 0)
  t.equal(graph.nodes.length, 11, 'the graph stays as it is')
})

t.test('identities and transposes', async t => {
  const after = removeIdentities(graph)
  t.same(operators(after), { Transpose: 1, Tanh: 2, Add: 2, Identity: 1 })
  t.same(
    after.outputs.map(({ name }) => name),
    ['y', 'z'],
  )
})

t.test('common subexpressions', async t => {
  t.equal(operators(mergeCommonSubexpressions(removeIdentities(graph))).Tanh, 1)
  t.equal(operators(mergeCommonSubexpressions(graph)).Tanh, 2, 'their inputs differ by name')
})

t.test('outputs are the same', async t => {
  const { graph: after } = await sameOptimized(t, graph)
  t.same(operators(after), { Transpose: 1, Tanh: 1, Add: 2, Identity: 1 })
})

t.test('what is drawn twice differs, and is no constant', async t => {
  const side = makeGraph({
    outputs: [{ name: 'drawn' }],
    nodes: [makeNode('RandomNormalLike', ['shape'], ['drawn'])],
  })
  const branches = { then_branch: graphAttribute(side), else_branch: graphAttribute(side) }
  const draws = {
    RandomNormal: [makeNode('RandomNormal', [], ['y'], { attributes: { shape: ints([3]) } })],
    Bernoulli: [makeNode('Bernoulli', ['shape'], ['y'])],
    Multinomial: [makeNode('Multinomial', ['shape'], ['y'])],
    Dropout: [makeNode('Dropout', ['shape', 'half', 'yes'], ['y'])],
    If: [makeNode('If', ['yes'], ['y'], { attributes: branches })],
  }
  for (const [op, [node]] of Object.entries(draws)) {
    const drawn = makeGraph({
      outputs: [{ name: 'sum' }],
      nodes: [
        { ...node!, outputs: ['a'] },
        { ...node!, outputs: ['b'] },
        makeNode('Concat', ['a', 'b'], ['sum'], { attributes: { axis: int(0) } }),
      ],
      initializers: new Map([
        ['shape', Constant.f32([0.5, 0.25], [1, 2])],
        ['half', Constant.f32(0.5)],
        ['yes', Constant.from('bool', [], Uint8Array.of(1))],
      ]),
    })
    t.equal(mergeCommonSubexpressions(drawn).nodes.length, 3, `${op} stays twice`)
    const view = atOnce(GraphView.of(drawn))
    t.notOk(view.isConstant('a') || view.isConstant('sum'), `${op} is no constant`)
  }
})
