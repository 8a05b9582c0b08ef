// Layer and RMS normalization from their decompositions.
import { encode } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { onnxNumbers } from '#lib/graph/element-types.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'

const graphOf = (nodes: readonly Node[]): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes,
    initializers: new Map([
      ['axes', Constant.i64([-1])],
      ['rows', Constant.i64([1])],
      ['two', Constant.f32(2)],
      ['one', Constant.f32(1)],
      ['eps', Constant.f32(1e-3)],
      ['eps4', Constant.f32([1e-3], [1, 1, 1, 1])],
      ['gamma', Constant.f32([1, 2, -1, 0.5, 3])],
      ['beta', Constant.f32([0, 1, 2, -3, 0.25])],
    ]),
  })

const deviation = (d: string, axes = 'axes', eps = 'eps'): Node[] => [
  makeNode('Pow', [d, 'two'], ['square']),
  makeNode('ReduceMean', ['square', axes], ['variance']),
  makeNode('Add', ['variance', eps], ['sum']),
  makeNode('Sqrt', ['sum'], ['deviation']),
]
const centre = (axes = 'axes'): Node[] => [
  makeNode('ReduceMean', ['x', axes], ['mean']),
  makeNode('Sub', ['x', 'mean'], ['d']),
]
const scale = [makeNode('Mul', ['gamma', 'n'], ['m']), makeNode('Add', ['m', 'beta'], ['y'])]

t.test('LayerNormalization', async t => {
  const nodes = [...centre(), ...deviation('d'), makeNode('Div', ['d', 'deviation'], ['n']), ...scale]
  t.same(operators((await sameOptimized(t, graphOf(nodes))).graph), { LayerNormalization: 1 })
})

t.test('LayerNormalization in f16 rounds once instead of at each operator', async t => {
  const graph = graphOf([
    makeNode('Cast', ['input'], ['x'], { attributes: { to: int(onnxNumbers.f16) } }),
    ...centre(),
    ...deviation('d'),
    makeNode('Div', ['d', 'deviation'], ['n']),
    makeNode('Mul', ['gamma', 'n'], ['m']),
    makeNode('Add', ['m', 'beta'], ['sum16']),
    makeNode('Cast', ['sum16'], ['y'], { attributes: { to: int(onnxNumbers.f32) } }),
  ])
  const halves = [...graph.initializers].map(([name, constant]): [string, Constant] => {
    if (constant.dtype !== 'f32') return [name, constant]
    return [name, Constant.from('f16', constant.shape, encode(constant.data as Float32Array, 'f16'))]
  })
  const inputs = [{ name: 'input', type: tensorType('f32', [2, 3, 5]) }]
  const half = { ...graph, inputs, initializers: new Map(halves) }
  const { graph: optimized } = await sameOptimized(t, half, 1e-2)
  t.same(operators(optimized), { Cast: 2, LayerNormalization: 1 })
})

t.test('RMSNormalization by a quotient and by the inverse', async t => {
  for (const inverse of [
    [makeNode('Div', ['x', 'deviation'], ['n'])],
    [makeNode('Reciprocal', ['deviation'], ['i']), makeNode('Mul', ['x', 'i'], ['n'])],
    [makeNode('Div', ['one', 'deviation'], ['i']), makeNode('Mul', ['i', 'x'], ['n'])],
  ]) {
    const { graph } = await sameOptimized(t, graphOf([...deviation('x'), ...inverse, ...scale]))
    t.same(operators(graph), { RMSNormalization: 1, Add: 1 })
  }
})

t.test('a mean over another axis is none', async t => {
  const nodes = [...centre('rows'), ...deviation('d'), makeNode('Div', ['d', 'deviation'], ['n']), ...scale]
  t.notOk(operators((await sameOptimized(t, graphOf(nodes))).graph).LayerNormalization)
})

t.test('an epsilon with more dimensions decides about the shape', async t => {
  const quotient = makeNode('Div', ['x', 'deviation'], ['n'])
  const { graph } = await sameOptimized(t, graphOf([...deviation('x', 'axes', 'eps4'), quotient, ...scale]))
  t.notOk(operators(graph).RMSNormalization)
})
