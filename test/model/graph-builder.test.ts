// Graphs that a caller makes: they run, are checked as they are made, and become ONNX files.
import { type Graph, GraphBuilder, Model, Tensor, writeOnnx } from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

/** scores = softmax(relu(x · w + 0.5)) */
function small(): GraphBuilder {
  const g = new GraphBuilder({ name: 'small' })
  const x = g.input('x', 'f32', ['n', 2])
  const w = g.initializer('w', [
    [1, 0, 2],
    [0, 1, 3],
  ])
  const h = g.add('Relu', [g.add('Add', [g.add('MatMul', [x, w]), 0.5])])
  g.output(h, 'hidden')
  return g.output(g.add('Softmax', [h], { axis: -1 }), 'scores')
}

for (const backend of [...backends, 'onnxruntime'] as const) {
  t.test(`a graph of operators on ${backend}`, async t => {
    const model = await Model.fromGraph(small().build(), { backend })
    t.same(model.outputs, [
      { name: 'hidden', kind: 'tensor', dtype: 'f32', shape: ['n', 3] },
      { name: 'scores', kind: 'tensor', dtype: 'f32', shape: ['n', 3] },
    ])
    const { hidden, scores } = await model.run<{ hidden: 'f32'; scores: 'f32' }>({ x: [[1, -1]] })
    t.same([...hidden.data], [1.5, 0, 0])
    t.ok(Math.abs(scores.data.reduce((a, b) => a + b) - 1) < 1e-6)
    model.dispose()
  })
}

t.test('a file of it', async t => {
  const file = `${t.testdir()}/small.onnx`
  await writeOnnx(small().build(), file)
  const model = await Model.load(file, { backend: 'js' })
  t.same((await model.run({ x: [[1, -1]] })).hidden!.toArray(), [[1.5, 0, 0]])
  model.dispose()
})

t.test('attributes', async t => {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', [1, 1, 4, 4])
  const pooled = g.add('MaxPool', [x], { kernel_shape: [2, 2], strides: [2, 2], ceil_mode: true })
  const leaky = g.add('LeakyRelu', [pooled], { alpha: 1 })
  const cast = g.add('Cast', [leaky], { to: { type: 'int', value: 7n as never } })
  const filled = g.add('ConstantOfShape', [Tensor.from([2n])], { value: Tensor.from([7n]) })
  const [values, indices] = g.addAll('TopK', [g.add('Flatten', [x]), Tensor.from([3n])], 2, { largest: 0 })
  const padded = g.add('Pad', [x, Tensor.from([0n, 0n, 1n, 1n, 0n, 0n, 1n, 1n])], { mode: 'edge' })
  g.output(cast, 'cast').output(filled, 'filled').output(values!, 'values').output(indices!, 'indices')
  g.output(g.add('Shape', [padded]), 'sizes').output(g.add('Clip', [x, '', 5]), 'clipped')
  const graph: Graph = g.build()
  t.same(graph.nodes[0]!.attributes, {
    kernel_shape: { type: 'ints', value: [2, 2] },
    strides: { type: 'ints', value: [2, 2] },
    ceil_mode: { type: 'int', value: 1 },
  })
  t.same(graph.nodes[1]!.attributes, { alpha: { type: 'float', value: 1 } }, 'a float in ONNX')
  const model = await Model.fromGraph(graph, { backend: 'js' })
  const image = Float32Array.from({ length: 16 }, (_, i) => i)
  const results = await model.run({ x: image })
  t.same(results.cast!.toArray(), [
    [
      [
        [5, 7],
        [13, 15],
      ],
    ],
  ])
  t.same(results.filled!.toArray(), [7, 7])
  t.same([results.values!.toArray(), results.indices!.toArray()], [[[0, 1, 2]], [[0, 1, 2]]])
  t.same(results.sizes!.toArray(), [1, 1, 6, 6])
  t.equal(Math.max(...(results.clipped!.data as Float32Array)), 5)
  model.dispose()
})

t.test('bodies of control flow read outer values', async t => {
  const g = new GraphBuilder()
  const [x, yes] = [g.input('x', 'f32', [2]), g.input('yes', 'bool', [])]
  const double = g.body('double')
  double.output(double.add('Add', [x, x]), 'doubled')
  const keep = g.body('keep')
  keep.output(keep.add('Identity', [x]), 'kept')
  g.output(g.add('If', [yes], { then_branch: double.build(), else_branch: keep.build() }), 'y')
  const model = await Model.fromGraph(g.build(), { backend: 'js' })
  const run = async (flag: number): Promise<unknown> =>
    (await model.run({ x: [1, 2], yes: Uint8Array.of(flag) })).y!.toArray()
  t.same(
    [await run(1), await run(0)],
    [
      [2, 4],
      [1, 2],
    ],
  )
  model.dispose()
})

t.test('outputs under several names, inputs and constants as outputs', async t => {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', [1])
  const y = g.add('Neg', [x], {}, { name: 'negate', outputs: 'y' })
  g.output(y)
    .output(y, 'again')
    .output(x, 'same')
    .output(g.initializer('c', [4]), 'constant')
  const model = await Model.fromGraph(g.build(), { backend: 'js' })
  const results = await model.run({ x: [3] })
  t.same(
    Object.entries(results).map(([name, value]) => [name, value.toArray()]),
    [
      ['y', [-3]],
      ['again', [-3]],
      ['same', [3]],
      ['constant', [4]],
    ],
  )
  model.dispose()
})

t.test('mistakes are refused where they are made', async t => {
  const g = new GraphBuilder()
  const x = g.input('image', 'f32', ['n', 3])
  const refused = (work: () => unknown, code: string, message: RegExp): unknown =>
    t.throws(work, { code, message })
  refused(() => g.add('Rellu', [x]), 'ERR_UNSUPPORTED', /no operator 'Rellu' \(did you mean 'Relu'\?\)/)
  refused(
    () => g.add('Relu', ['imgae']),
    'ERR_ARGUMENT',
    /operands\[0\] of Relu: there is no value 'imgae' here \(did you mean 'image'/,
  )
  refused(() => g.add('Relu', x as never), 'ERR_ARGUMENT', /operands must be a list/)
  refused(() => g.add('Relu', [[1] as never]), 'ERR_ARGUMENT', /operands\[0\]/)
  refused(() => g.add('Softmax', [x], { axis: {} as never }), 'ERR_ARGUMENT', /attributes\.axis/)
  refused(
    () => g.add('Relu', [x], {}, { outputs: 'image' }),
    'ERR_ARGUMENT',
    /details\.outputs must be a name that no other/,
  )
  refused(() => g.input('image'), 'ERR_ARGUMENT', /name must be a name that no other value has/)
  refused(() => g.input('z', 'float32' as never), 'ERR_ARGUMENT', /dtype/)
  refused(() => g.input('s', 'f32', [-1]), 'ERR_SHAPE', /shape/)
  refused(() => g.initializer('w', [[1], 2] as never), 'ERR_SHAPE', /ragged/)
  refused(() => g.output('nothing'), 'ERR_ARGUMENT', /no value 'nothing'/)
  refused(() => g.build(), 'ERR_FORMAT', /no outputs/)
  g.output(g.add('MatMul', [x, Tensor.ones([4, 2])], {}, { name: 'head' }), 'y')
  refused(() => g.build(), 'ERR_SHAPE', /node 'head' \(MatMul\)/)
})

t.test('a graph in another one, twice', async t => {
  const inner = new GraphBuilder({ name: 'inner' })
  const [a, b] = [inner.input('a', 'f32', ['n', 2]), inner.input('b', 'f32', ['n', 2])]
  const sum = inner.add(
    'Add',
    [inner.add('Mul', [a, inner.initializer('w', [[2, 3]])]), b],
    {},
    { outputs: 'sum' },
  )
  const graph = inner
    .output(sum, 'total')
    .output(inner.add('Neg', [sum]), 'negative')
    .build()
  const text = JSON.stringify(graph.nodes)
  const outer = new GraphBuilder()
  const x = outer.input('x', 'f32', ['n', 2])
  const w = outer.initializer('w', [[10, 10]])
  const once = outer.inline(
    graph,
    new Map([
      ['a', x],
      ['b', w],
    ]),
  )
  const twice = outer.inline(
    graph,
    new Map([
      ['a', once.get('total')!],
      ['b', once.get('negative')!],
    ]),
  )
  t.same([...once.keys()], ['total', 'negative'])
  outer.output(once.get('total')!, 'first').output(twice.get('total')!, 'second')
  t.equal(JSON.stringify(graph.nodes), text, 'the inner graph stays as it is')
  for (const backend of backends) {
    const model = await Model.fromGraph(outer.build(), { backend })
    const { first, second } = await model.run({ x: [[1, 2]] })
    t.same(first!.toArray(), [[12, 16]], 'x · w + 10')
    t.same(second!.toArray(), [[12, 32]], 'of 12, 16 and −12, −16')
    model.dispose()
  }
  const refused = (inputs: [string, string][]) => () => outer.inline(graph, new Map(inputs))
  t.throws(refused([['a', x]]), { code: 'ERR_ARGUMENT', message: /input 'b'/ })
  t.throws(
    refused([
      ['a', x],
      ['b', x],
      ['c', x],
    ]),
    { code: 'ERR_ARGUMENT', message: /a, b.*'c'/ },
  )
  t.throws(
    refused([
      ['a', x],
      ['b', 'y'],
    ]),
    { code: 'ERR_ARGUMENT', message: /no value 'y'/ },
  )
})
