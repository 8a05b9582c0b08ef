// Operators of our own as standard ones: the same outputs, by our plans and by ONNX Runtime.
import { Model } from 'dgx-spark'
import t from 'tap'
import { float, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { allNodes } from '#lib/graph/edit.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { decompose } from '#lib/graph/rewrites/decompose.js'
import { insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'
import { randomConstants } from '../../fixtures/values/random-tensors.js'

const random = randomGenerator(9)
const f32 = randomConstants(random)

async function same(t: import('tap').Test, graph: Graph, feeds: Record<string, Float32Array>): Promise<void> {
  const standard = decompose(graph)
  t.notOk(
    [...allNodes(standard)].some(({ domain }) => domain === sparkDomain),
    'only standard operators are left',
  )
  using ours = await Model.fromGraph(graph, { backend: 'js' })
  const expected = await ours.run(feeds)
  for (const backend of ['js', 'onnxruntime'] as const) {
    using theirs = await Model.fromGraph(graph === standard ? graph : standard, { backend })
    for (const [name, output] of Object.entries(await theirs.run(feeds))) {
      t.same(output.shape, expected[name]!.shape)
      close(t, output.toFloat32(), expected[name]!.toFloat32(), 2e-6, `${name} by ${backend}`)
    }
  }
  using direct = await Model.fromGraph(graph, { backend: 'onnxruntime' })
  t.match(direct.backend, { name: 'onnxruntime', reason: /provider cpu/ })
  t.same(Object.keys(await direct.run(feeds)), Object.keys(expected), 'decomposed on the way')
}

t.test('adapters on Gemm and Conv', async t => {
  const base = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 5, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Conv', ['x', 'filter.weight'], ['image']),
      makeNode('Flatten', ['image'], ['row'], { attributes: { axis: int(1) } }),
      makeNode('Gemm', ['row', 'fc.weight', 'fc.bias'], ['y'], { attributes: { transB: int(1) } }),
    ],
    initializers: new Map([
      ['filter.weight', f32(4, 3, 3, 3)],
      ['fc.weight', f32(7, 36)],
      ['fc.bias', f32(7)],
    ]),
  })
  const magnitude = (count: number): Constant => Constant.from('f32', [count], uniform(random, count, 0.5, 2))
  const adapted = insertDora(base, [
    {
      weight: 'filter.weight',
      module: 'filter',
      a: f32(2, 3, 3, 3),
      b: f32(4, 2, 1, 1),
      magnitude: magnitude(4),
      scale: 0.5,
    },
    { weight: 'fc.weight', module: 'fc', a: f32(3, 36), b: f32(7, 3), magnitude: magnitude(7), scale: 2 },
  ])
  await same(t, adapted, { x: uniform(random, 150) })
})

t.test('products of swapped matrices, the gradient of relu', async t => {
  const graph = makeGraph({
    inputs: [
      { name: 'a', type: tensorType('f32', [2, 5, 3]) },
      { name: 'b', type: tensorType('f32', [7, 5]) },
    ],
    outputs: [{ name: 'y' }, { name: 'slope' }],
    nodes: [
      makeNode('FusedMatMul', ['a', 'b'], ['y'], {
        domain: sparkDomain,
        attributes: { transA: int(1), transB: int(1) },
      }),
      makeNode('ReluGrad', ['b', 'b'], ['slope'], { domain: sparkDomain }),
    ],
    opsets: new Map([
      ['', 25],
      [sparkDomain, 1],
    ]),
  })
  await same(t, graph, { a: uniform(random, 30), b: uniform(random, 35) })
})

t.test('what has no standard form', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('AdamW', ['x', 'x', 'x', 'x', 'x', 'x'], ['y'], {
        domain: sparkDomain,
        attributes: { beta1: float(0.9) },
      }),
    ],
    opsets: new Map([
      ['', 25],
      [sparkDomain, 1],
    ]),
  })
  t.throws(() => decompose(graph), {
    code: 'ERR_UNSUPPORTED',
    message: /AdamW.*no form in standard operators/,
  })
  await t.rejects(Model.fromGraph(graph, { backend: 'onnxruntime' }), { code: 'ERR_UNSUPPORTED' })
})

t.test('ONNX Runtime refuses', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Relu', ['x'], ['y'])],
  })
  const open = (options: object) => Model.fromGraph(graph, { backend: 'onnxruntime', ...options })
  await t.rejects(open({ provider: 'abacus' }), { code: 'ERR_UNSUPPORTED', message: /abacus/ })
  await t.rejects(Model.fromGraph(graph, { backend: 'js', provider: 'cpu' }), { code: 'ERR_ARGUMENT' })
  using model = await open({ provider: { name: 'cpu' } })
  t.same((await model.run({ x: [-1, 2, 3] })).y!.toArray(), [0, 2, 3])
})
