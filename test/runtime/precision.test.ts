// Precision modes of models: how far outputs move, which weights are rounded, and the measure itself.
import { compare, type Feeds, Model, type Precision } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../fixtures/backends.js'
import { modelFile, noModels } from '../fixtures/onnx-models.js'
import { randomGenerator, uniform } from '../fixtures/random.js'
import { randomConstants } from '../fixtures/random-tensors.js'

const random = randomGenerator(6)
const f32 = randomConstants(random)

/** Conv, Gemm both ways, MatMul, and a weight that a Gather reads too. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [2, 16, 3, 3]) }],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('Conv', ['x', 'filter'], ['image']),
    makeNode('Flatten', ['image'], ['row'], { attributes: { axis: int(1) } }),
    makeNode('Gemm', ['row', 'rows', 'bias'], ['a'], { attributes: { transB: int(1) } }),
    makeNode('Gemm', ['a', 'columns'], ['b']),
    makeNode('MatMul', ['b', 'matrix'], ['c']),
    makeNode('MatMul', ['c', 'table'], ['d']),
    makeNode('Gather', ['table', 'first'], ['e']),
    makeNode('Add', ['d', 'e'], ['y']),
  ],
  initializers: new Map([
    ['filter', f32(5, 16, 2, 2)],
    ['rows', f32(32, 20)],
    ['bias', f32(32)],
    ['columns', f32(32, 48)],
    ['matrix', f32(48, 7)],
    ['table', f32(7, 7)],
    ['first', Constant.i64(0)],
  ]),
})
const data = (count: number): Feeds[] => Array.from({ length: count }, () => ({ x: uniform(random, 288) }))

/** Greatest ‖a − b‖ / ‖b‖. */
const limits: Record<Precision, number> = { fp32: 0, fp16: 1e-2, bf16: 3e-2, fp8: 0.15, nvfp4: 0.4 }

t.test('modes', async t => {
  using exact = await Model.fromGraph(graph, { backend: 'js' })
  let before = -1
  for (const precision of Object.keys(limits) as Precision[]) {
    using model = await Model.fromGraph(graph, { backend: 'js', precision })
    t.equal(model.precision, precision)
    const [{ name, relativeError, cosine, elements } = { relativeError: 1, cosine: 0 }] = await compare(
      model,
      exact,
      data(3),
    )
    t.same([name, elements], ['y', 42])
    t.ok(relativeError <= limits[precision], `${precision}: ${relativeError}, cosine ${cosine}`)
    if (precision !== 'bf16') t.ok(relativeError > before, 'coarser than the mode before')
    before = relativeError
    for (const name of ['bias', 'table', 'first']) {
      t.equal(model.graph.initializers.get(name), graph.initializers.get(name), `${name} stays`)
    }
    const changed = ['filter', 'rows', 'columns', 'matrix'].filter(
      name => model.graph.initializers.get(name) !== graph.initializers.get(name),
    )
    // Rows of 20 are no whole blocks of 16.
    const kept = precision === 'nvfp4' ? ['rows'] : []
    const all = ['filter', 'rows', 'columns', 'matrix'].filter(name => !kept.includes(name))
    t.same(changed, precision === 'fp32' ? [] : all)
  }
})

t.test('bad options, bad comparisons', async t => {
  await t.rejects(Model.fromGraph(graph, { precision: 'fp5' as Precision }), { code: 'ERR_ARGUMENT' })
  const large = {
    ...graph,
    initializers: new Map([...graph.initializers, ['rows', Constant.f32(Array(640).fill(1e6), [32, 20])]]),
  }
  await t.rejects(Model.fromGraph(large, { precision: 'fp16' }), {
    code: 'ERR_RANGE',
    message: /weight 'rows'/,
  })
  using model = await Model.fromGraph(graph, { backend: 'js' })
  await t.rejects(compare(model, model, []), { code: 'ERR_ARGUMENT', message: /data is empty/ })
  t.same(await compare(model, model, data(1)), [
    { name: 'y', cosine: 1, relativeError: 0, maxError: 0, elements: 14 },
  ])
  const other = {
    ...graph,
    nodes: graph.nodes.with(-1, makeNode('Add', ['d', 'e'], ['z'])),
    outputs: [{ name: 'z' }],
  }
  using renamed = await Model.fromGraph(other, { backend: 'js' })
  await t.rejects(compare(model, renamed, data(1)), {
    code: 'ERR_ARGUMENT',
    message: "the first model has no output 'z'",
  })
})

t.test('a real model', { skip: noModels || !backends.includes('cpu') }, async t => {
  const file = modelFile('mnist', 'mnist-8.onnx')
  using exact = await Model.load(file, { backend: 'cpu' })
  const digits = Array.from({ length: 5 }, () => ({ Input3: uniform(random, 784, 0, 255) }))
  for (const precision of ['fp16', 'bf16'] as const) {
    using model = await Model.load(file, { backend: 'cpu', precision })
    const [{ relativeError } = { relativeError: 1 }] = await compare(model, exact, digits)
    t.ok(relativeError > 0 && relativeError <= limits[precision], `${precision}: ${relativeError}`)
  }
})
