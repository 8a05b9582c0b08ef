// Quantized graphs move bytes, look functions up and multiply integers; their outputs stay as they are.
import t, { type Test } from 'tap'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../../fixtures/backends.js'
import { close, maxAbs } from '../../../fixtures/close.js'
import { operators } from '../../../fixtures/models/optimized.js'
import { typed } from '../../../fixtures/one-node.js'
import { randomFeeds, runOnnxRuntime } from '../../../fixtures/onnx-runtime.js'
import { randomGenerator } from '../../../fixtures/values/random.js'

const random = randomGenerator(3)
const numel = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1)
const u8 = (...values: number[]): Constant => Constant.from('u8', [], Uint8Array.from(values))
const i8 = (value: number): Constant => Constant.from('i8', [], Int8Array.of(value))
const codes = (dtype: 'u8' | 'i8', ...shape: number[]): Constant => {
  const bytes = Uint8Array.from({ length: numel(shape) }, () => 256 * random())
  return dtype === 'u8'
    ? Constant.from('u8', shape, bytes)
    : Constant.from('i8', shape, new Int8Array(bytes.buffer))
}
const list = (count: number, value: (i: number) => number): Constant =>
  Constant.f32(Array.from({ length: count }, (_, i) => value(i)))

const constants = new Map<string, Constant>([
  ...Object.entries({
    s: Constant.f32(0.01),
    z: u8(120),
    t: Constant.f32(0.013),
    q: u8(99),
    sz: i8(-7),
    zero: u8(0),
    ...{
      w: codes('i8', 5, 3, 3, 3),
      ws: list(5, i => 0.002 * (i + 1)),
      wz: Constant.from('i8', [5], new Int8Array(5)),
    },
    unsigned: codes('u8', 5, 3, 3, 3),
    uz: u8(131),
    b: Constant.from('i32', [5], Int32Array.of(100, -200, 300, 0, 50)),
    bs: list(5, i => 0.01 * 0.002 * (i + 1)),
    other: list(5, () => 0.001),
    m: codes('i8', 7, 33),
    ms: Constant.f32(0.004),
    mz: i8(3),
    mc: list(33, i => 0.001 * (i + 1)),
    ...{
      mt: codes('i8', 5, 7),
      five: list(5, i => 0.003 * (i + 1)),
      last: Constant.i64([2, 3]),
      first: Constant.i64([1, 2]),
      'five/b': Constant.from('i32', [5], Int32Array.of(900, -700, 0, 1, 5)),
      'mc/b': Constant.from('i32', [33], new Int32Array(33).fill(321)),
      six: Constant.f32(6),
      none: Constant.f32(0),
    },
  }),
])

/** y, dequantized, from a quantized x: an image [2, 3, 7, 9], or rows [2, 5, 7]. */
function graphOf(nodes: readonly Node[], shape: readonly number[] = [2, 3, 7, 9], type = ['t', 'q']): Graph {
  return makeGraph({
    inputs: [{ name: 'input', type: tensorType('f32', shape) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('QuantizeLinear', ['input', 's', 'z'], ['x']),
      makeNode('DequantizeLinear', ['x', 's', 'z'], ['f']),
      ...nodes,
      makeNode('DequantizeLinear', ['bytes', ...type], ['y']),
    ],
    initializers: constants,
  })
}

const quantize = (value: string, ...type: string[]): Node =>
  makeNode('QuantizeLinear', [value, ...(type.length > 0 ? type : ['t', 'q'])], ['bytes'])

/** Optimizes, and compares outputs, computed in f32 and on bytes, with those before: at most `steps` steps of y apart. */
async function same(t: Test, graph: Graph, steps = 0) {
  const optimized = optimize(graph)
  const feeds = Object.fromEntries(Array.from(randomFeeds(graph, 3), ([name, { data }]) => [name, data]))
  for (const backend of backends) {
    const kernels = await openKernels({ backend })
    const run = async (graph: Graph, bytes: boolean) => {
      using plan = await Plan.create(graph, kernels, { bytes })
      return (await plan.run(feeds)).y!.slice() as Float32Array
    }
    const expected = await run(graph, false)
    for (const bytes of [false, true]) {
      const y = await run(optimized.graph, bytes)
      const limit = steps === 0 ? 0 : (1.01 * steps * 0.013) / maxAbs(expected)
      close(t, y, expected, limit, `${backend}, ${bytes ? 'bytes' : 'f32'}`)
    }
    close(t, await run(graph, true), expected, 0, `${backend}, bytes as they are`)
  }
  return optimized
}

t.test('functions become tables', async t => {
  const nodes = [
    makeNode('LeakyRelu', ['f'], ['a'], { attributes: { alpha: float(0.1) } }),
    makeNode('Sigmoid', ['a'], ['b0']),
    makeNode('Clip', ['b0', 'none', 'six'], ['c']),
  ]
  for (const type of [
    ['t', 'q'],
    ['t', 'sz'],
  ]) {
    const { graph } = await same(t, graphOf([...nodes, quantize('c', ...type)], undefined, type))
    t.equal(operators(graph).Lookup, 1)
    const { steps } = compile(graph, { bytes: true })
    t.strictSame(
      steps.map(({ op }) => op),
      ['quantize', 'lookup', 'dequantize'],
    )
  }
})

t.test('the same scale again is nothing', async t => {
  const { graph } = await same(
    t,
    graphOf([makeNode('Transpose', ['f'], ['m1']), quantize('m1', 's', 'z')], undefined, ['s', 'z']),
  )
  t.strictSame(operators(graph), { QuantizeLinear: 1, Transpose: 1, Identity: 1, DequantizeLinear: 1 })
})

t.test('a channel shuffle moves bytes', async t => {
  const { graph } = await same(
    t,
    graphOf([
      makeNode('Relu', ['f'], ['r']),
      makeNode('Concat', ['f', 'r', 'input'], ['c'], { attributes: { axis: int(0) } }),
      makeNode('Transpose', ['c'], ['m1'], { attributes: { perm: ints([1, 0, 2, 3]) } }),
      makeNode('Flatten', ['m1'], ['m2']),
      quantize('m2'),
    ]),
  )
  t.equal(operators(graph).Lookup, 2)
  t.equal(operators(graph).QuantizeLinear, 4, 'two for the input, two for tables')
})

t.test('values that others read stay', async t => {
  const graph = graphOf([makeNode('Transpose', ['f'], ['m1']), quantize('m1')])
  const { fusions } = optimize({ ...graph, outputs: [...graph.outputs, { name: 'm1' }] })
  t.notOk(fusions.has('lookup'))
})

t.test('convolutions', async t => {
  const pads = { attributes: { pads: ints([1, 1, 1, 1]), strides: ints([2, 1]) } }
  const weights = [
    makeNode('DequantizeLinear', ['w', 'ws', 'wz'], ['fw'], { attributes: { axis: int(0) } }),
    makeNode('DequantizeLinear', ['b', 'bs'], ['fb'], { attributes: { axis: int(0) } }),
  ]
  const { graph } = await same(
    t,
    graphOf([...weights, makeNode('Conv', ['f', 'fw', 'fb'], ['c'], pads), quantize('c')]),
    1,
  )
  t.equal(operators(graph).QLinearConv, 1)
  t.notOk(operators(graph).Conv)
  const relu = graphOf(
    [
      ...weights,
      makeNode('Conv', ['f', 'fw'], ['c'], pads),
      makeNode('Relu', ['c'], ['r']),
      quantize('r', 't', 'zero'),
    ],
    undefined,
    ['t', 'zero'],
  )
  const active = await same(t, relu, 1)
  t.notOk(operators(active.graph).Relu, 'what the smallest byte cuts off')
  const kept = graphOf([
    ...weights,
    makeNode('Conv', ['f', 'fw'], ['c'], pads),
    makeNode('Relu', ['c'], ['r']),
    quantize('r'),
  ])
  t.equal(operators((await same(t, kept, 1)).graph).FusedConv, 1, 'a zero point in between')
  const clip = graphOf(
    [
      ...weights,
      makeNode('Conv', ['f', 'fw'], ['c'], pads),
      makeNode('Clip', ['c', 'none', 'six'], ['r']),
      quantize('r', 't', 'zero'),
    ],
    undefined,
    ['t', 'zero'],
  )
  t.notOk(operators((await same(t, clip, 1)).graph).Clip)
  const plain = [makeNode('DequantizeLinear', ['unsigned', 'ms', 'uz'], ['fw'])]
  const unsigned = graphOf(
    [...plain, makeNode('Conv', ['f', 'fw'], ['c'], pads), quantize('c', 't', 'sz')],
    undefined,
    ['t', 'sz'],
  )
  t.equal(operators((await same(t, unsigned, 1)).graph).QLinearConv, 1)
  const bias = [
    weights[0]!,
    makeNode('DequantizeLinear', ['b', 'other'], ['fb'], { attributes: { axis: int(0) } }),
  ]
  const other = graphOf([...bias, makeNode('Conv', ['f', 'fw', 'fb'], ['c'], pads), quantize('c')])
  t.notOk(operators((await same(t, other, 1)).graph).QLinearConv, 'a bias in other units')
})

t.test('products', async t => {
  for (const scale of ['ms', 'mc']) {
    const nodes = [
      makeNode('DequantizeLinear', ['m', scale, ...(scale === 'ms' ? ['mz'] : [])], ['fm']),
      makeNode('MatMul', ['f', 'fm'], ['c']),
      quantize('c'),
    ]
    const { graph } = await same(t, graphOf(nodes, [2, 5, 7]), 1)
    t.equal(operators(graph).QLinearMatMul, 1)
    t.notOk(operators(graph).MatMul)
  }
})

t.test('general products', async t => {
  const type = ['t', 'zero']
  for (const transB of [0, 1]) {
    const [matrix, scales] = transB ? ['mt', 'five'] : ['m', 'mc']
    const nodes = [
      makeNode('DequantizeLinear', [matrix, scales], ['fm'], { attributes: { axis: int(1 - transB) } }),
      makeNode('Mul', ['s', scales], ['units']),
      makeNode('DequantizeLinear', [`${scales}/b`, 'units'], ['fb'], { attributes: { axis: int(0) } }),
      makeNode('Gemm', ['f', 'fm', 'fb'], ['c'], { attributes: { transB: int(transB) } }),
      makeNode('Relu', ['c'], ['r']),
      quantize('r', ...type),
    ]
    const { graph } = await same(t, graphOf(nodes, [3, 7], type), 1)
    t.equal(operators(graph).QLinearGemm, 1)
    t.notOk(operators(graph).Gemm)
    const packed = compile(graph, { bytes: true }).steps.find(({ op }) => op === 'linearInteger')
    t.match(packed?.args, { packed: true })
    const cuda = compile(graph, { bytes: true, backend: 'cuda' }).steps.find(
      ({ op }) => op === 'linearInteger',
    )
    t.match(cuda?.args, { packed: false, wSum: undefined }, 'where tensor cores multiply them')
    t.notOk(compile(graph).steps.some(({ op }) => op === 'linearInteger'))
  }
})

t.test('sums, products and means', async t => {
  const other = [makeNode('Transpose', ['x'], ['xt'], { attributes: { perm: ints([0, 1, 2, 3]) } })]
  for (const op of ['Add', 'Mul']) {
    const nodes = [
      ...other,
      makeNode('DequantizeLinear', ['xt', 't', 'q'], ['g']),
      makeNode(op, ['f', 'g'], ['c']),
    ]
    const { graph } = await same(t, graphOf([...nodes, quantize('c')]))
    t.equal(operators(graph)[`QLinear${op}`], 1)
  }
  const means = [
    makeNode('GlobalAveragePool', ['f'], ['c']),
    makeNode('ReduceMean', ['f', 'last'], ['c'], { attributes: { keepdims: int(0) } }),
  ]
  for (const mean of means) {
    const { graph } = await same(t, graphOf([mean, quantize('c')]), 1)
    t.equal(operators(graph).QLinearMean, 1)
  }
  const { graph } = await same(t, graphOf([makeNode('ReduceMean', ['f', 'first'], ['c']), quantize('c')]), 1)
  t.notOk(operators(graph).QLinearMean, 'means over other axes')
})

const contributed: readonly (readonly [string, readonly string[], Attributes, string])[] = [
  ['QLinearAdd', ['x', 's', 'z', 'x', 's', 'z', 't', 'q'], {}, 'QLinearAdd'],
  ['QLinearMul', ['x', 's', 'z', 'x', 's', 'z', 't', 'q'], {}, 'QLinearMul'],
  ['QLinearConcat', ['t', 'q', 'x', 's', 'z', 'x', 's', 'z'], { axis: int(1) }, 'Lookup'],
  ['QLinearLeakyRelu', ['x', 's', 'z', 't', 'q'], { alpha: float(0.1) }, 'Lookup'],
  ['QLinearSigmoid', ['x', 's', 'z', 't', 'q'], {}, 'Lookup'],
  ['QLinearGlobalAveragePool', ['x', 's', 'z', 't', 'q'], {}, 'QLinearMean'],
]

t.test('contributed operators are one pass, within a step of ONNX Runtime', async t => {
  for (const [op, inputs, attributes, kernel] of contributed) {
    const plain = graphOf([makeNode(op, inputs, ['bytes'], { domain: 'com.microsoft', attributes })])
    const opsets = new Map([
      ['', 17],
      ['com.microsoft', 1],
    ])
    const graph = typed({ ...plain, opsets })
    const feeds = randomFeeds(graph, 5)
    const expected = (await runOnnxRuntime(serializeOnnx(graph), feeds)).y!.data as Float32Array
    const { graph: optimized } = optimize(canonicalise(graph))
    t.ok(operators(optimized)[kernel], `${op} is ${kernel}`)
    for (const backend of backends) {
      using plan = await Plan.create(optimized, await openKernels({ backend }))
      const { y } = await plan.run({ input: feeds.get('input')!.data })
      close(t, y as Float32Array, expected, (1.01 * 0.013) / maxAbs(expected), `${op} on ${backend}`)
    }
  }
})

t.test('weights may lie anywhere in a file', async t => {
  const bytes = new Uint8Array(4 * 64 + 1).map((_, i) => i * 37)
  const weight = Constant.lazy('i8', [4, 64, 1], { byteLength: 256, read: () => bytes.subarray(1) })
  const inputs = ['x', 's', 'z', 'odd', 'ms', 'mz', 't', 'q']
  const graph = graphOf([makeNode('QLinearConv', inputs, ['bytes'])], [1, 64, 5])
  await same(t, { ...graph, initializers: new Map([...constants, ['odd', weight]]) }, 1)
})
