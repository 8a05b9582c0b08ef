// Convolutions and products take in what follows them.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'
import { randomGenerator } from '../../../fixtures/values/random.js'

const random = randomGenerator(11)
const constant = (shape: readonly number[], least = -1): Constant =>
  Constant.f32(
    Array.from({ length: numel(shape) }, () => least + (1 - least) * random()),
    shape,
  )

const constants = new Map([
  ['w', constant([5, 3, 3, 3])],
  ['w2', constant([5, 5, 1, 1])],
  ['b', constant([5])],
  ['b4', constant([1, 5, 1, 1])],
  ['gamma', constant([5])],
  ['beta', constant([5])],
  ['mean', constant([5])],
  ['variance', constant([5], 0.1)],
  ['m', constant([7, 5])],
  ['m2', constant([7, 5])],
  ['mt', constant([5, 7])],
  ['row', constant([1, 5])],
  ['row3', constant([1, 1, 5])],
  ['b5', constant([1, 1, 5, 1, 1])],
  ['one', constant([1, 7])],
])

/** y from x: an image [2, 3, 7, 9], or rows [2, 3, 7] for products. */
const graphOf = (nodes: readonly Node[], shape: readonly number[] = [2, 3, 7, 9]): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', shape) }],
    outputs: [{ name: 'y' }],
    nodes,
    initializers: constants,
  })

const pads = { attributes: { pads: ints([1, 1, 1, 1]) } }
const norm = ['gamma', 'beta', 'mean', 'variance']

t.test('convolution, batch normalization, residual, activation', async t => {
  const { graph, fusions } = await sameOptimized(
    t,
    graphOf([
      makeNode('Conv', ['x', 'w', 'b'], ['c'], pads),
      makeNode('BatchNormalization', ['c', ...norm], ['n'], { attributes: { epsilon: float(1e-3) } }),
      makeNode('Relu', ['n'], ['r']),
      makeNode('Conv', ['r', 'w2'], ['c2']),
      makeNode('BatchNormalization', ['c2', ...norm], ['n2']),
      makeNode('Add', ['r', 'n2'], ['s']),
      makeNode('Relu', ['s'], ['y']),
    ]),
  )
  t.equal(fusions.get('batch normalization'), 2)
  t.equal(operators(graph).FusedConv, 2)
  t.notOk(operators(graph).Relu)
  t.notOk(operators(graph).BatchNormalization)
})

t.test('bias by channel, then activation, then residual', async t => {
  const { graph } = await sameOptimized(
    t,
    graphOf([
      makeNode('Conv', ['x', 'w'], ['c'], pads),
      makeNode('Add', ['b4', 'c'], ['a']),
      makeNode('Sigmoid', ['a'], ['s']),
      makeNode('Conv', ['x', 'w', 'b'], ['d'], pads),
      makeNode('Add', ['s', 'd'], ['y']),
    ]),
  )
  t.same(operators(graph), { Reshape: 1, FusedConv: 1, Conv: 1 })
})

t.test('products with a constant matrix', async t => {
  const { graph } = await sameOptimized(
    t,
    graphOf(
      [
        makeNode('MatMul', ['x', 'm'], ['p']),
        makeNode('Add', ['row', 'p'], ['a']),
        makeNode('Tanh', ['a'], ['h']),
        makeNode('MatMul', ['x', 'm2'], ['q']),
        makeNode('Add', ['h', 'q'], ['y']),
      ],
      [2, 3, 7],
    ),
  )
  t.same(operators(graph), { FusedLinear: 2 })
})

t.test('a product that a gate multiplies, then bias, activation and residual', async t => {
  const gated = (h: string): Node[] => [
    makeNode('MatMul', ['x', 'm'], ['u']),
    makeNode('Sigmoid', ['u'], ['g']),
    makeNode('MatMul', ['x', 'm2'], ['p']),
    makeNode('Mul', ['g', 'p'], [h]),
  ]
  const behind: Record<string, readonly Node[]> = {
    gate: [],
    'gate, bias': [makeNode('Add', ['h', 'row'], ['y'])],
    'gate, bias, activation': [makeNode('Add', ['h', 'row'], ['a']), makeNode('Tanh', ['a'], ['y'])],
    'gate, residual': [makeNode('Neg', ['g'], ['r']), makeNode('Add', ['r', 'h'], ['y'])],
  }
  for (const [name, nodes] of Object.entries(behind)) {
    const all = [...gated(nodes.length > 0 ? 'h' : 'y'), ...nodes]
    const { graph } = await sameOptimized(t, graphOf(all, [2, 3, 7]))
    t.same(operators(graph), { FusedLinear: 2, ...(name === 'gate, residual' && { Neg: 1 }) }, name)
  }
  const biased = [
    makeNode('Gemm', ['x', 'm', 'b'], ['p']),
    makeNode('Exp', ['x2'], ['g']),
    makeNode('Mul', ['p', 'g'], ['y']),
  ]
  const { graph } = await sameOptimized(t, {
    ...graphOf(biased, [3, 7]),
    initializers: new Map([...constants, ['x2', constant([3, 5])]]),
  })
  t.equal(operators(graph).Mul, 1, 'a gate comes before a bias')
})

t.test('Gemm with either layout', async t => {
  for (const [w, transB] of [
    ['m', 0],
    ['mt', 1],
  ] as const) {
    const attributes = { transB: int(transB) }
    const gemm = makeNode('Gemm', ['x', w, 'b'], ['g'], { attributes })
    const { graph } = await sameOptimized(t, graphOf([gemm, makeNode('Relu', ['g'], ['y'])], [3, 7]))
    t.same(operators(graph), { FusedLinear: 1 })
  }
})

t.test('a bias with more dimensions decides about the shape', async t => {
  const image = graphOf([makeNode('Conv', ['x', 'w'], ['c']), makeNode('Add', ['c', 'b5'], ['y'])])
  t.same(operators((await sameOptimized(t, image)).graph), { Conv: 1, Add: 1 })
  const rows = graphOf([makeNode('MatMul', ['x', 'm'], ['p']), makeNode('Add', ['p', 'row3'], ['y'])], [3, 7])
  t.same(operators((await sameOptimized(t, rows)).graph), { FusedLinear: 1, Add: 1 })
})

t.test('a product of constants is not its own bias', async t => {
  const doubled = graphOf([makeNode('MatMul', ['one', 'm'], ['p']), makeNode('Add', ['p', 'p'], ['y'])])
  t.same(operators((await sameOptimized(t, doubled)).graph), { FusedLinear: 1, Add: 1 })
})

t.test('what others read, too, stays', async t => {
  const shared = graphOf([
    makeNode('Conv', ['x', 'w'], ['c'], pads),
    makeNode('Relu', ['c'], ['r']),
    makeNode('Sub', ['r', 'c'], ['y']),
  ])
  const { graph } = await sameOptimized(t, shared)
  t.same(operators(graph), { Conv: 1, Relu: 1, Sub: 1 })
  const { nodes } = await sameOptimized(t, { ...shared, outputs: [{ name: 'y' }, { name: 'c' }] }).then(
    ({ graph }) => graph,
  )
  t.equal(nodes.length, 3)
})

t.test('a weight that is state, or trained, is left alone', async t => {
  const graph = graphOf([makeNode('MatMul', ['x', 'm'], ['y'])], [3, 7])
  const trained: Graph = {
    ...graph,
    nodes: [...graph.nodes, makeNode('Neg', ['m'], ['m/next'])],
    updates: new Map([['m', 'm/next']]),
  }
  const { graph: after } = await sameOptimized(t, trained)
  t.same(operators(after), { MatMul: 1, Neg: 1 })
})

t.test('activations of nets for phones', async t => {
  const limits = new Map([
    ['zero', Constant.f32(0)],
    ['three', Constant.f32(3)],
    ['six', Constant.f32(6)],
    ['sixth', Constant.f32(1 / 6)],
    ['five', Constant.f32(5)],
  ])
  const behind = (nodes: readonly Node[]): Graph => {
    const graph = graphOf([makeNode('Conv', ['x', 'w', 'b'], ['c'], pads), ...nodes])
    return { ...graph, initializers: new Map([...graph.initializers, ...limits]) }
  }
  const shifted = [makeNode('Add', ['c', 'three'], ['s']), makeNode('Clip', ['s', 'zero', 'six'], ['k'])]
  const forms: Record<string, readonly Node[]> = {
    relu6: [makeNode('Clip', ['c', 'zero', 'six'], ['y'])],
    hard_swish: [makeNode('HardSwish', ['c'], ['y'])],
    'hard_swish as a product': [
      makeNode('HardSigmoid', ['c'], ['g'], { attributes: { alpha: float(1 / 6) } }),
      makeNode('Mul', ['c', 'g'], ['y']),
    ],
    'hard_swish, the quotient last': [
      ...shifted,
      makeNode('Mul', ['c', 'k'], ['p']),
      makeNode('Div', ['p', 'six'], ['y']),
    ],
    'hard_swish, the quotient first': [
      ...shifted,
      makeNode('Mul', ['sixth', 'k'], ['q']),
      makeNode('Mul', ['q', 'c'], ['y']),
    ],
  }
  for (const [name, nodes] of Object.entries(forms)) {
    const { graph } = await sameOptimized(t, behind(nodes))
    t.same(operators(graph), { FusedConv: 1 }, name)
    const { activation } = graph.nodes[0]!.attributes
    t.match(name, (activation as { value?: string }).value ?? 'none')
  }
  for (const [least, most] of [
    ['zero', 'five'],
    ['three', 'six'],
    ['zero', ''],
  ] as const) {
    const { graph } = await sameOptimized(t, behind([makeNode('Clip', ['c', least, most], ['y'])]))
    t.notOk(operators(graph).FusedConv, `${least} to ${most}`)
  }
})
