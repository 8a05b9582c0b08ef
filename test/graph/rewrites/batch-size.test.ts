// Batch sizes: what a graph of another batch size gives for each sample, on small graphs and real models.
import { type ElementType, Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { setBatchSize } from '#lib/graph/rewrites/batch-size.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { modelFile, noModels } from '../../fixtures/models/onnx-models.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(12)

/** Reshapes with sizes of the batch `size`, and one of a constant that stays. */
const shaped = (size: number): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [size, 6, 5]) }],
    outputs: [{ name: 'y', type: tensorType('f32', [size, 30]) }],
    nodes: [
      makeNode('Reshape', ['x', 'heads'], ['a']),
      makeNode('Transpose', ['a'], ['b'], { attributes: { perm: ints([0, 2, 1, 3]) } }),
      makeNode('Reshape', ['b', 'merged'], ['c']),
      makeNode('Reshape', ['w', 'square'], ['v']),
      makeNode('MatMul', ['c', 'v'], ['d']),
      makeNode('Reshape', ['d', 'rest'], ['e']),
      makeNode('Reshape', ['e', 'flat'], ['y']),
    ],
    initializers: new Map([
      ['heads', Constant.i64([size, 3, 2, 5])],
      ['merged', Constant.i64([size * 2, 3, 5])],
      ['w', Constant.f32(Array.from(uniform(random, 25)))],
      ['square', Constant.i64([5, 5])],
      ['rest', Constant.i64([size, -1, 5])],
      ['flat', Constant.i64([size, 30])],
    ]),
  })

t.test('sizes in constants', async t => {
  for (const old of [1, 4]) {
    const graph = shaped(old)
    const batched = setBatchSize(graph, 3)
    t.same(batched.outputs, [{ name: 'y', type: tensorType('f32', [3, 30]) }])
    t.equal(batched.nodes[3], graph.nodes[3], 'a weight keeps its shape')
    using one = await Model.fromGraph({ ...graph, outputs: [{ name: 'y' }] }, { backend: 'js' })
    using three = await Model.fromGraph(graph, { backend: 'js', batchSize: 3 })
    const x = uniform(random, 12 * 30)
    const ys = (await three.run({ x: x.slice(0, 90) })).y!
    t.same(ys.shape, [3, 30])
    const y = (await one.run({ x: x.slice(0, old * 30) })).y!
    const count = Math.min(old, 3) * 30
    const [ours, theirs] = [ys, y].map(tensor => tensor.toFloat32().subarray(0, count))
    close(t, ours!, theirs!, 0, `from ${old}`)
  }
})

t.test('constants that are joined to values of the batch', async t => {
  for (const [old, axis] of [
    [1, 1],
    [1, -1],
    [2, 1],
  ] as const) {
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [old, 2]) }],
      outputs: [{ name: 'y', type: tensorType('f32', [old, 5]) }],
      nodes: [makeNode('Concat', ['pad', 'x', 'end'], ['y'], { attributes: { axis: int(axis) } })],
      initializers: new Map([
        [
          'pad',
          Constant.f32(
            Array.from({ length: old }, (_, i) => 7 + i),
            [old, 1],
          ),
        ],
        [
          'end',
          Constant.f32(
            Array.from({ length: 2 * old }, () => 9),
            [old, 2],
          ),
        ],
      ]),
    })
    using model = await Model.fromGraph(graph, { backend: 'js', batchSize: 2 * old })
    const x = Array.from({ length: 4 * old }, (_, i) => i)
    const { y } = await model.run({ x: Float32Array.from(x) })
    const rows = Array.from({ length: 2 * old }, (_, row) => [7 + (row % old), 2 * row, 2 * row + 1, 9, 9])
    t.same([...y!.toFloat32()], rows.flat(), `from ${old}, axis ${axis}`)
  }
  const joined = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, 2]) }],
    outputs: [{ name: 'y', type: tensorType('f32', [2, 2]) }],
    nodes: [makeNode('Concat', ['x', 'row'], ['y'], { attributes: { axis: int(0) } })],
    initializers: new Map([['row', Constant.f32([1, 2], [1, 2])]]),
  })
  using model = await Model.fromGraph(joined, { backend: 'js', batchSize: 3 })
  t.same(model.outputs[0]!.shape, [4, 2], 'one more row stays one')
})

t.test('what cannot be changed', async t => {
  const graph = shaped(1)
  const swapped = {
    ...graph,
    initializers: new Map([...graph.initializers, ['heads', Constant.i64([6, 1, 5])]]),
  }
  t.throws(() => setBatchSize(swapped, 2), {
    code: 'ERR_UNSUPPORTED',
    message: /\(Reshape\): its shape \[6, 1, 5\] mixes the batch/,
  })
  const scalar = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', []) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Relu', ['x'], ['y'])],
  })
  t.throws(() => setBatchSize(scalar, 2), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(Model.fromGraph(graph, { batchSize: 0 }), {
    code: 'ERR_ARGUMENT',
    message: /options.batchSize must be an integer >= 1/,
  })
})

t.test('real models', { skip: noModels || !backends.includes('cpu') }, async t => {
  for (const names of [
    ['mnist', 'mnist-8.onnx'],
    ['vision', 'shufflenet-v2-12-int8.onnx'],
    ['openpilot', 'dmonitoring_model.3902922.onnx'],
    ['tinyphysics.onnx'],
  ]) {
    const graph = canonicalise(await readOnnx(modelFile(...names)))
    using batch = await Model.fromGraph(graph, { backend: 'cpu', batchSize: 3 })
    const name = names.at(-1)!
    t.ok(
      batch.inputs.every(({ shape }) => shape![0] === 3),
      name,
    )
    const values = batch.inputs.map(({ shape, dtype }) =>
      uniform(random, numel(shape as number[]), 0, dtype === 'i64' ? 1000 : 1),
    )
    /** The samples from `first` on. */
    const feeds = (first: number, count: number): Record<string, Tensor<ElementType>> =>
      Object.fromEntries(
        batch.inputs.map(({ name, shape, dtype }, i) => {
          const [, ...sizes] = shape as number[]
          const samples = values[i]!.subarray(first * numel(sizes), (first + count) * numel(sizes))
          return [name, Tensor.from(samples, { shape: [count, ...sizes] }).to(dtype!)]
        }),
      )
    const all = await batch.run(feeds(0, 3))
    using one = await Model.fromGraph(graph, { backend: 'cpu' })
    for (let sample = 0; sample < 3; sample++) {
      for (const [output, tensor] of Object.entries(await one.run(feeds(sample, 1)))) {
        const expected = tensor.toFloat32()
        const part = all[output]!.toFloat32().subarray(sample * tensor.size, (sample + 1) * tensor.size)
        close(t, part, expected, 1e-6, `${name} ${output}, sample ${sample}`)
      }
    }
  }
})
