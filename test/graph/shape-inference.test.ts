// Shapes and types: those of the conformance cases, of real models beside ONNX Runtime, and what is refused.
import t from 'tap'
import { int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { allNodes } from '#lib/graph/edit.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { inferFacts, inferShapes, isStatic } from '#lib/graph/shape-inference.js'
import { parseOnnx, readOnnx } from '#lib/io/onnx/read.js'
import {
  type ConformanceCase,
  conformanceCases,
  modelFile,
  modelFiles,
  noModels,
} from '../fixtures/models/onnx-models.js'

/** The graph of a case with its inputs as constants, so that elements are followed too, and without hints. */
function closedGraph({ model, inputs, name }: ConformanceCase): Graph {
  const graph = canonicalise(parseOnnx(model, name))
  const initializers = new Map(graph.initializers)
  for (const [i, { name }] of graph.inputs.entries()) if (inputs[i]) initializers.set(name, inputs[i])
  const open = graph.inputs.filter(input => !initializers.has(input.name))
  return {
    ...graph,
    inputs: open,
    initializers,
    values: new Map(),
    outputs: graph.outputs.map(({ name }) => ({ name })),
  }
}

t.test('conformance cases', { skip: noModels }, async t => {
  let exact = 0
  let partial = 0
  for (const it of conformanceCases()) {
    const graph = closedGraph(it)
    const facts = inferFacts(graph)
    for (const [i, want] of it.outputs.entries()) {
      const { type, known } = facts.get(graph.outputs[i]!.name) ?? {}
      if (type?.kind !== 'tensor') {
        t.fail(`${it.name}: nothing is known of output ${i}`)
        continue
      }
      const fits =
        type.shape?.length === want.shape.length &&
        type.shape.every((dim, d) => dim === null || dim === want.shape[d])
      if (type.dtype !== want.dtype || !fits)
        t.same([type.dtype, type.shape], [want.dtype, want.shape], it.name)
      if (isStatic(type)) exact++
      else partial++
      if (!known) continue
      const values = Array.from(want.data as ArrayLike<number>, Number)
      const wrong = known.elements.some(
        (element, at) =>
          typeof element === 'number' &&
          Math.abs(element - values[at]!) > 1e-5 * Math.abs(values[at]!) + 1e-6,
      )
      t.notOk(wrong, `${it.name}: elements`)
    }
  }
  t.comment(`${exact} outputs exact, ${partial} with sizes that depend on data`)
  t.equal(exact + partial, 1366)
  t.ok(partial <= 6)
})

t.test('every value of the real models has a known type', { skip: noModels }, async t => {
  for (const file of modelFiles()) {
    const graph = canonicalise(await readOnnx(file))
    const facts = inferFacts(graph)
    for (const node of allNodes(graph)) {
      for (const name of node.outputs) if (name) t.ok(facts.get(name)?.type, `${file}: ${name}`)
    }
  }
})

t.test('sizes at run time make everything static', { skip: noModels }, async t => {
  const cases = [
    ['tinyphysics.onnx', { states: [3, 20, 4], tokens: [3, 20] }, { output: [3, 20, 1024] }],
    ['recurrent/byte_sb_bidi_lstm.onnx', { input: [3, 7] }, { output: [3, 7, 2] }],
    [
      'silero/silero_vad_16k_op15.onnx',
      { input: [1, 576], state: [2, 1, 128], sr: [] },
      { output: [1, 1], stateN: [2, 1, 128] },
    ],
    ['vision/super_resolution.onnx', { input: [5, 1, 224, 224] }, { output: [5, 1, 672, 672] }],
  ] as const
  for (const [name, shapes, outputs] of cases) {
    const graph = inferShapes(canonicalise(await readOnnx(modelFile(...name.split('/')))), { shapes })
    for (const { name, type } of graph.outputs) {
      t.same(
        type?.kind === 'tensor' && type.shape,
        (outputs as Record<string, readonly number[]>)[name],
        name,
      )
    }
    t.ok([...graph.values.values()].every(isStatic), name)
  }
})

const oneNode = (
  op: string,
  inputs: Record<string, readonly (number | string | null)[]>,
  attributes = {},
  constants = {},
): Graph =>
  makeGraph({
    inputs: Object.entries(inputs).map(([name, shape]) => ({ name, type: tensorType('f32', shape) })),
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode(op, [...Object.keys(inputs), ...Object.keys(constants)], ['y'], { name: 'it', attributes }),
    ],
    initializers: new Map(Object.entries(constants)),
  })

const shapeOf = (graph: Graph): unknown => {
  const type = inferFacts(graph).get('y')?.type
  return type?.kind === 'tensor' ? type.shape : undefined
}

t.test('names of sizes', async t => {
  t.same(shapeOf(oneNode('MatMul', { a: ['batch', 7, 5], b: [5, 3] })), ['batch', 7, 3])
  t.same(shapeOf(oneNode('Add', { a: ['n', 1], b: [1, 'm'] })), ['n', 'm'])
  t.same(shapeOf(oneNode('Add', { a: ['n', 1], b: ['m', 5] })), [null, 5], 'either may be 1')
  t.same(shapeOf(oneNode('Add', { a: ['n'], b: [null] })), [null])
  t.same(shapeOf(oneNode('Reshape', { a: ['n', 3, 5] }, {}, { s: Constant.i64([0, -1]) })), ['n', 15])
  t.same(shapeOf(oneNode('Reshape', { a: ['n', 3, 5] }, {}, { s: Constant.i64([-1, 15]) })), ['n', 15])
  t.same(shapeOf(oneNode('Flatten', { a: ['n', 1, 1] })), ['n', 1])
  t.same(shapeOf(oneNode('Concat', { a: ['n', 3], b: [null, 4] }, { axis: int(1) })), ['n', 7])
  t.same(
    shapeOf(
      oneNode(
        'Slice',
        { a: ['n', 9] },
        {},
        { s: Constant.i64([1]), e: Constant.i64([99]), x: Constant.i64([1]) },
      ),
    ),
    ['n', 8],
  )
})

t.test('what does not fit is refused by the name of its node', async t => {
  const refused = (graph: Graph, message: RegExp) =>
    t.throws(() => inferFacts(graph), { code: 'ERR_SHAPE', message }, String(message))
  refused(
    oneNode('MatMul', { a: [3, 5], b: [7, 2] }),
    /node 'it' \(MatMul\): \[3, 5\] times \[7, 2\]: 5 is not 7/,
  )
  refused(oneNode('Add', { a: [3], b: [5] }), /do not broadcast/)
  refused(oneNode('Conv', { x: [1, 3, 5, 5], w: [2, 4, 3, 3] }), /channels do not fit/)
  refused(oneNode('Conv', { x: [1, 3, 2, 2], w: [2, 3, 5, 5] }), /window of 5/)
  refused(oneNode('Concat', { a: [3, 5], b: [4, 4] }, { axis: int(1) }), /cannot be joined/)
  refused(oneNode('Transpose', { a: [3, 5] }, { perm: { type: 'ints', value: [0, 0] } }), /does not permute/)
  refused(oneNode('Reshape', { a: [3, 5] }, {}, { s: Constant.i64([4, -1]) }), /cannot become/)
  refused(oneNode('Gather', { a: [3] }, { axis: int(2) }, { i: Constant.i64([0]) }), /axis 2 is outside/)
  refused(oneNode('MaxPool', { x: [3, 5] }), /dimensions/)
  refused(
    oneNode('Pad', { x: [3, 0] }, { mode: string('wrap') }, { p: Constant.i64([0, 1, 0, 0]) }),
    /axis 1 has no elements to be padded with/,
  )
  refused(oneNode('ArgMax', { x: [3, 0] }, { axis: int(-1) }), /axis -1 has 0 elements, but 1 are wanted/)
  refused(
    oneNode('TopK', { x: [3, 5] }, { axis: int(0) }, { k: Constant.i64([4]) }),
    /axis 0 has 3 elements, but 4/,
  )
  const mixed = oneNode('Add', { a: [3] }, {}, { b: Constant.i64([1]) })
  t.throws(() => inferFacts(mixed), { code: 'ERR_DTYPE', message: /node 'it' \(Add\).*f32 and i64/ })
  const square = inferFacts(oneNode('Relu', { x: ['n', 'n'] }), { shapes: { x: [3, 4] } })
  t.match(square.get('y')?.type, { shape: [3, 4] }, 'names of sizes are guesses')
  t.throws(() => inferFacts(oneNode('Relu', { x: ['n'] }), { shapes: { z: [3] } }), {
    code: 'ERR_ARGUMENT',
    message: /shapes\.z/,
  })
  t.throws(() => inferFacts(oneNode('Relu', { x: ['n'] }), { shapes: { x: [3, 1] } }), { code: 'ERR_SHAPE' })
})

t.test('an operator without a rule leaves its outputs unknown', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'z' }],
    nodes: [makeNode('Magic', ['x'], ['y'], { domain: 'com.example' }), makeNode('Relu', ['y'], ['z'])],
  })
  t.equal(inferFacts(graph).get('z')?.type, undefined)
  t.same(
    inferFacts({ ...graph, values: new Map([['y', tensorType('f16', [5])]]) }).get('z')?.type,
    tensorType('f16', [5]),
  )
})
