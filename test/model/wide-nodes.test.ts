// Nodes with more inputs and outputs than a call may have arguments, and chains of nodes as deep as that.
import { Model } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'

const many = 150_000
const value = (shape: readonly number[]) => [{ name: 'x', type: tensorType('f32', shape) }]

const graphOf = (nodes: readonly Node[]): Graph =>
  makeGraph({ inputs: value([1]), outputs: [{ name: 'y' }], nodes })

const same = (count: number): string[] => new Array<string>(count).fill('x')

t.test(`nodes of ${many} inputs`, async t => {
  for (const [op, runs] of [
    ['Sum', false],
    ['Max', false],
    ['Concat', true],
  ] as const) {
    const node = makeNode(op, same(many), ['y'], op === 'Concat' ? { attributes: { axis: int(0) } } : {})
    const graph = await readOnnx(serializeOnnx(graphOf([node])))
    using model = await Model.fromGraph(graph, { backend: backends.at(-1)! })
    t.same(model.outputs[0]!.shape, [op === 'Concat' ? many : 1], op)
    if (!runs) continue
    const { y } = await model.run({ x: Float32Array.of(1) })
    t.same([y!.data.length, y!.data.at(-1)], [many, 1], op)
  }
})

for (const backend of backends) {
  t.test(`sequences of ${many} parts on ${backend}`, async t => {
    const nodes = [
      makeNode('SequenceConstruct', same(many), ['list']),
      makeNode('ConcatFromSequence', ['list'], ['y'], { attributes: { axis: int(0) } }),
    ]
    using model = await Model.fromGraph(graphOf(nodes), { backend })
    const { y } = await model.run({ x: Float32Array.of(3) })
    t.same([y!.data.length, y!.data.at(-1)], [many, 3])
  })

  t.test(`nodes that do not fit ${many} inputs on ${backend}`, async t => {
    const graph = makeGraph({
      inputs: value([2]),
      outputs: [{ name: 'y' }],
      initializers: new Map([['w', Constant.f32([1, 2, 3])]]),
      nodes: [makeNode('Sum', [...same(many), 'w'], ['y'])],
    })
    const error = { code: 'ERR_SHAPE', message: /do not broadcast/ }
    const { message } = (await t.rejects(Model.fromGraph(graph, { backend }), error)) as unknown as Error
    t.ok((message ?? '').length < 1000)
  })

  t.test(`a chain of joins on ${backend}`, async t => {
    const length = 12_000
    const nodes = Array.from({ length }, (_, i) =>
      makeNode('Concat', [i === 0 ? 'x' : `v${i}`], [i === length - 1 ? 'y' : `v${i + 1}`], {
        attributes: { axis: int(0) },
      }),
    )
    using model = await Model.fromGraph(graphOf(nodes), { backend })
    const { y } = await model.run({ x: Float32Array.of(5) })
    t.same([...y!.data], [5])
  })
}

t.test(`outputs of ${many} parts`, async t => {
  const parts = Array.from({ length: many }, (_, i) => `p${i}`)
  const graph = makeGraph({
    inputs: value([many]),
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Split', ['x'], parts, { attributes: { axis: int(0), num_outputs: int(many) } }),
      makeNode('Add', [parts[0]!, parts.at(-1)!], ['y']),
    ],
  })
  using model = await Model.fromGraph(graph, { backend: backends.at(-1)! })
  const { y } = await model.run({ x: Float32Array.from({ length: many }, (_, i) => i) })
  t.same([...y!.data], [many - 1])
})
