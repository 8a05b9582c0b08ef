// Graphs of older opsets give the same outputs after they are brought to the canonical form.
import t, { type Test } from 'tap'
import { float, floats, int, intOf, ints, string, stringOf } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { close } from '../../fixtures/close.js'
import { modelFiles, noModels } from '../../fixtures/models/onnx-models.js'
import { weights as randomWeights, sameOutputs, single, typed } from '../../fixtures/one-node.js'
import { randomFeeds, runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { randomGenerator } from '../../fixtures/values/random.js'

const ops = (graph: Graph): string[] => graph.nodes.map(node => node.op)
const random = randomGenerator(11)
const weights = (...shape: number[]): Constant => randomWeights(random, ...shape)

t.test('attributes that became inputs', async t => {
  await sameOutputs(t, single('Squeeze', { inputs: { x: [1, 3, 1] }, attributes: { axes: ints([0, 2]) } }))
  await sameOutputs(t, single('Unsqueeze', { attributes: { axes: ints([0, 3]) } }))
  for (const op of ['Sum', 'Mean', 'Max', 'L2', 'LogSumExp']) {
    await sameOutputs(
      t,
      single(`Reduce${op}`, { opset: 11, attributes: { axes: ints([1]), keepdims: int(0) } }),
    )
  }
  await sameOutputs(t, single('ReduceProd', { opset: 13 }))
  await sameOutputs(t, single('Clip', { attributes: { min: float(-0.25), max: float(0.5) } }))
  await sameOutputs(t, single('Clip', { attributes: { max: float(0.5) } }))
  await sameOutputs(t, single('Pad', { attributes: { pads: ints([0, 1, 0, 2, 0, 1]), value: float(1.5) } }))
  await sameOutputs(
    t,
    single('Pad', { attributes: { pads: ints([0, 1, 0, 0, 1, 0]), mode: string('reflect') } }),
  )
  await sameOutputs(
    t,
    single('Slice', { attributes: { starts: ints([1, -3]), ends: ints([2 ** 40, -1]), axes: ints([1, 2]) } }),
  )
  await sameOutputs(
    t,
    single('Split', { attributes: { axis: int(2), split: ints([2, 3]) }, outputs: ['y', 'z'] }),
  )
  await sameOutputs(t, single('Split', { inputs: { x: [6, 5] }, outputs: ['y', 'z', 'w'] }))
  await sameOutputs(t, single('TopK', { attributes: { k: int(2), axis: int(1) }, outputs: ['y', 'z'] }))
  await sameOutputs(t, single('Dropout', { attributes: { ratio: float(0.25) } }))
})

t.test('softmax of a flattened input', async t => {
  for (const op of ['Softmax', 'LogSoftmax', 'Hardmax']) {
    for (const axis of [0, 1, 2]) await sameOutputs(t, single(op, { attributes: { axis: int(axis) } }))
    await sameOutputs(t, single(op, { opset: 11, attributes: { axis: int(-2) } }))
  }
  t.same(
    ops(canonicalise(single('Softmax', { inputs: { x: [2, 9] } }))),
    ['Softmax'],
    'matrices need nothing',
  )
  t.same(
    ops(canonicalise(single('Softmax', { inputs: { x: ['n', 9, 1, 1] } }))),
    ['Softmax'],
    'nor do trailing ones',
  )
})

t.test('resizing', async t => {
  const scales = (...values: number[]): Attributes => ({ scales: floats(values) })
  const image = { inputs: { x: [1, 2, 5, 7] } }
  await sameOutputs(t, single('Upsample', { ...image, attributes: scales(1, 1, 2, 3) }))
  await sameOutputs(
    t,
    single('Upsample', { ...image, attributes: { ...scales(1, 1, 2, 2), mode: string('linear') } }),
  )
  await sameOutputs(
    t,
    single('Upsample', { ...image, opset: 9, constants: { s: Constant.f32([1, 1, 2.5, 1]) } }),
  )
  await sameOutputs(
    t,
    single('Resize', { ...image, opset: 10, constants: { s: Constant.f32([1, 1, 1.5, 0.5]) } }),
  )
  await sameOutputs(
    t,
    single('Resize', {
      ...image,
      opset: 11,
      constants: { roi: Constant.f32([]), s: Constant.f32([]), sizes: Constant.i64([1, 2, 9, 3]) },
      attributes: { mode: string('linear'), coordinate_transformation_mode: string('align_corners') },
    }),
  )
})

t.test('normalizations', async t => {
  const channels = {
    scale: weights(3),
    bias: weights(3),
    mean: weights(3),
    variance: Constant.f32([0.5, 1, 2]),
  }
  await sameOutputs(t, single('BatchNormalization', { attributes: { spatial: int(1) }, constants: channels }))
  const groups = { scale: weights(3), bias: weights(3) }
  await sameOutputs(
    t,
    single('GroupNormalization', {
      opset: 18,
      inputs: { x: [2, 6, 5] },
      constants: groups,
      attributes: { num_groups: int(3) },
    }),
  )
  t.throws(
    () =>
      canonicalise(single('BatchNormalization', { attributes: { spatial: int(0) }, constants: channels })),
    {
      code: 'ERR_UNSUPPORTED',
      message: /node 'it' \(BatchNormalization\) of opset 7.*spatial/,
    },
  )
})

t.test('what ONNX Runtime is too young for', async t => {
  const wide = canonicalise(
    single('Add', {
      opset: 6,
      inputs: { a: [2, 3, 5, 7], b: [3, 5] },
      attributes: { broadcast: int(1), axis: int(1) },
    }),
  )
  t.same(ops(wide), ['Unsqueeze', 'Add'])
  await runs(t, wide, [2, 3, 5, 7])
  const slopes = canonicalise(single('PRelu', { opset: 6, inputs: { x: [2, 3, 5, 7], slope: [3] } }))
  t.same(ops(slopes), ['Unsqueeze', 'PRelu'])
  await runs(t, slopes, [2, 3, 5, 7])
  await runs(t, canonicalise(single('Reshape', { opset: 4, attributes: { shape: ints([5, -1]) } })), [5, 6])
  await runs(t, canonicalise(single('Concat', { opset: 3, inputs: { a: [2, 3], b: [2, 5] } })), [2, 8])
  await runs(
    t,
    canonicalise(
      single('Upsample', {
        opset: 1,
        inputs: { x: [1, 1, 3, 3] },
        attributes: { height_scale: float(2), width_scale: float(3) },
      }),
    ),
    [1, 1, 6, 9],
  )
  const cast = canonicalise(single('Cast', { opset: 5, attributes: { to: string('DOUBLE') } }))
  t.equal(intOf(cast.nodes[0]!, 'to'), 11)
  const tiled = canonicalise(
    single('Tile', { opset: 5, constants: { tiles: Constant.i64(3), axis: Constant.i64(1) } }),
  )
  await runs(t, tiled, [2, 9, 5])
  const relu = canonicalise(single('Relu', { opset: 5, attributes: { consumed_inputs: ints([0]) } }))
  t.same(relu.nodes[0]?.attributes, {})
  const grid = canonicalise(
    single('GridSample', {
      opset: 16,
      inputs: { x: [1, 1, 3, 3], g: [1, 2, 2, 2] },
      attributes: { mode: string('bicubic') },
    }),
  )
  t.equal(stringOf(grid.nodes[0]!, 'mode'), 'cubic')
  const dft = canonicalise(
    single('DFT', { opset: 17, inputs: { x: [1, 8, 1] }, attributes: { onesided: int(1) } }),
  )
  await runs(t, dft, [1, 5, 2])
})

/** The graph runs and its output has the given shape. */
async function runs(t: Test, graph: Graph, shape: readonly number[]): Promise<void> {
  const outputs = await runOnnxRuntime(serializeOnnx(typed(graph)), randomFeeds(graph, 3))
  t.same(outputs.y?.dims, shape, ops(graph).join(', '))
}

t.test('constants of every kind become initializers', async t => {
  const constant = (attributes: Attributes): Constant | undefined =>
    canonicalise(
      makeGraph({ nodes: [makeNode('Constant', [], ['c'], { attributes })], outputs: [{ name: 'c' }] }),
    ).initializers.get('c')
  t.same(constant({ value_float: float(1.5) })?.data, new Float32Array([1.5]))
  t.same(constant({ value_floats: floats([1, 2]) })?.shape, [2])
  t.same(constant({ value_int: int(-3) })?.data, new BigInt64Array([-3n]))
  t.same(
    constant({ value_ints: { type: 'ints', value: [2n ** 62n, 5] } })?.data,
    new BigInt64Array([2n ** 62n, 5n]),
  )
  t.same(constant({ value_string: string('é') })?.strings, ['é'])
  t.throws(() => constant({}), { code: 'ERR_UNSUPPORTED', message: /no value/ })
})

t.test('functions are inlined', async t => {
  const call = (name: string, output: string, attributes: Attributes = {}): Node =>
    makeNode('Twice', [name], [output], { domain: 'custom', attributes })
  const definition = {
    name: 'Twice',
    domain: 'custom',
    overload: '',
    inputs: ['a'],
    outputs: ['b'],
    attributes: [],
    defaults: { slope: float(0.5) },
    nodes: [
      makeNode('LeakyRelu', ['a'], ['inner'], {
        attributes: { alpha: { type: 'reference', value: 'slope', of: 1 } },
      }),
      makeNode('Add', ['inner', 'inner'], ['b']),
    ],
    opsets: new Map([['', 17]]),
  } as const
  const graph = makeGraph({
    inputs: [{ name: 'inner', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'z', type: tensorType('f32', [3]) }],
    nodes: [call('inner', 'y'), call('y', 'z', { slope: float(0.25) })],
    functions: [definition],
    opsets: new Map([
      ['', 17],
      ['custom', 1],
    ]),
  })
  const flat = canonicalise(graph)
  t.same(ops(flat), ['LeakyRelu', 'Add', 'LeakyRelu', 'Add'])
  await sameOutputs(t, graph)
  const endless = { ...definition, nodes: [call('a', 'b')] }
  t.throws(() => canonicalise({ ...graph, functions: [endless] }), {
    code: 'ERR_FORMAT',
    message: /calls itself/,
  })
  const strict = { ...definition, attributes: ['needed'] }
  t.throws(() => canonicalise({ ...graph, functions: [strict] }), { code: 'ERR_FORMAT', message: /'needed'/ })
})

t.test('values of branches get names of their own', async t => {
  const branch = (name: string, op: string) => ({
    ...makeGraph({
      name,
      nodes: [makeNode(op, ['x'], ['y']), makeNode('Neg', ['y'], ['out'])],
      outputs: [{ name: 'out', type: tensorType('f32', [3]) }],
    }),
  })
  const graph = makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', [3]) },
      { name: 'y', type: tensorType('f32', [3]) },
    ],
    outputs: [{ name: 'z', type: tensorType('f32', [3]) }],
    initializers: new Map([['yes', Constant.from('bool', [], new Uint8Array([1]))]]),
    nodes: [
      makeNode('If', ['yes'], ['chosen'], {
        attributes: {
          then_branch: { type: 'graph', value: branch('then', 'Abs') },
          else_branch: { type: 'graph', value: branch('else', 'Exp') },
        },
      }),
      makeNode('Add', ['chosen', 'y'], ['z']),
    ],
  })
  const unique = canonicalise(graph)
  const names = unique.nodes.flatMap(node => [
    ...node.outputs,
    ...Object.values(node.attributes).flatMap(it =>
      it.type === 'graph' ? it.value.nodes.flatMap(inner => inner.outputs) : [],
    ),
  ])
  t.equal(new Set([...names, 'x', 'y']).size, names.length + 2, names.join(', '))
  const feeds = randomFeeds(graph, 1)
  const { z } = await runOnnxRuntime(serializeOnnx(unique), feeds)
  const [x, y] = [feeds.get('x')!.data as Float32Array, feeds.get('y')!.data as Float32Array]
  t.same(
    z?.data,
    x.map((value, i) => -Math.abs(value) + y[i]!),
  )
})

t.test('real models give the same outputs', { skip: noModels }, async t => {
  const sizes = { batch: 1, sequence: 576, length: 7, b: 3 }
  // The large ones have only operators of the others, and take seconds.
  for (const file of modelFiles().filter(name => !/vgg19|alexnet|zfnet|resnet50|inception/.test(name))) {
    const graph = await readOnnx(file)
    const feeds = randomFeeds(graph, 5, sizes)
    if (feeds.has('sr')) feeds.set('sr', Constant.i64(16000))
    const before = await runOnnxRuntime(file, feeds)
    const canonical = canonicalise(graph)
    const after = await runOnnxRuntime(serializeOnnx(canonical), feeds)
    // ONNX Runtime packs a weight that is an initializer of the product's shape, and then sums in another order.
    const folds = [...graph.initializers].some(
      ([name, { shape }]) => `${canonical.initializers.get(name)?.shape ?? shape}` !== `${shape}`,
    )
    for (const [name, expected] of Object.entries(before)) {
      t.same(after[name]?.dims, expected.dims, file)
      const [actual, what] = [after[name]?.data, `${file}: ${name}`]
      if (folds) close(t, actual as Float32Array, expected.data as Float32Array, 1e-6, what)
      else t.same(actual, expected.data, what)
    }
  }
})
