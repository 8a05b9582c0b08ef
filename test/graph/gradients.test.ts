// Every gradient rule against finite differences of the same graph, in double precision, on odd shapes.
import t from 'tap'
import { float, int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Attributes, makeGraph, makeNode, type Node, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { type GradientCase, gradientError } from '../fixtures/gradients.js'

/** Central differences with steps of 1e-5 are exact to about 1e-9 for numbers near 1. */
const tolerance = 1e-7

const node = (op: string, inputs: readonly string[], attributes: Attributes = {}, domain = ''): Node =>
  makeNode(op, inputs, ['y'], { attributes, domain })

const positive = [0.4, 2] as const
const x = { shape: [3, 5] }

const cases: Readonly<Record<string, GradientCase>> = {
  Add: { inputs: { a: { shape: [3, 1, 5] }, b: { shape: [2, 1] } }, nodes: [node('Add', ['a', 'b'])] },
  Sub: { inputs: { a: { shape: [5] }, b: { shape: [3, 5] } }, nodes: [node('Sub', ['a', 'b'])] },
  Mul: { inputs: { a: { shape: [3, 5] }, b: { shape: [2, 1, 5] } }, nodes: [node('Mul', ['a', 'b'])] },
  Div: {
    inputs: { a: { shape: [3, 1] }, b: { shape: [3, 7], range: positive } },
    nodes: [node('Div', ['a', 'b'])],
  },
  Pow: {
    inputs: { a: { shape: [3, 5], range: positive }, b: { shape: [5] } },
    nodes: [node('Pow', ['a', 'b'])],
  },
  Sum: { inputs: { a: x, b: { shape: [5] }, c: { shape: [] } }, nodes: [node('Sum', ['a', 'b', 'c'])] },
  'a value read twice': { inputs: { a: x }, nodes: [node('Mul', ['a', 'a'])] },
  Neg: { inputs: { x }, nodes: [node('Neg', ['x'])] },
  Exp: { inputs: { x }, nodes: [node('Exp', ['x'])] },
  Log: { inputs: { x: { shape: [7], range: positive } }, nodes: [node('Log', ['x'])] },
  Sqrt: { inputs: { x: { shape: [7], range: positive } }, nodes: [node('Sqrt', ['x'])] },
  Reciprocal: { inputs: { x: { shape: [7], range: positive } }, nodes: [node('Reciprocal', ['x'])] },
  Tanh: { inputs: { x }, nodes: [node('Tanh', ['x'])] },
  Sigmoid: { inputs: { x }, nodes: [node('Sigmoid', ['x'])] },
  Erf: { inputs: { x: { shape: [11], range: [-3, 3] } }, nodes: [node('Erf', ['x'])] },
  Relu: { inputs: { x }, nodes: [node('Relu', ['x'])] },
  Gelu: { inputs: { x: { shape: [11], range: [-3, 3] } }, nodes: [node('Gelu', ['x'])] },
  'Gelu, tanh': {
    inputs: { x: { shape: [11], range: [-3, 3] } },
    nodes: [node('Gelu', ['x'], { approximate: string('tanh') })],
  },
  Identity: { inputs: { x }, nodes: [node('Identity', ['x'])] },
  Reshape: {
    inputs: { x },
    nodes: [node('Reshape', ['x', 'sizes'])],
    constants: { sizes: Constant.i64([5, -1, 1]) },
  },
  Flatten: { inputs: { x: { shape: [3, 2, 5] } }, nodes: [node('Flatten', ['x'], { axis: int(-1) })] },
  Squeeze: { inputs: { x: { shape: [3, 1, 5] } }, nodes: [node('Squeeze', ['x'])] },
  Unsqueeze: {
    inputs: { x },
    nodes: [node('Unsqueeze', ['x', 'axes'])],
    constants: { axes: Constant.i64([0, -1]) },
  },
  'MatMul, a row': {
    inputs: { a: { shape: [3] }, b: { shape: [2, 3, 3] } },
    nodes: [node('MatMul', ['a', 'b'])],
  },
  'MatMul, a column': {
    inputs: { a: { shape: [2, 5, 3] }, b: { shape: [3] } },
    nodes: [node('MatMul', ['a', 'b'])],
  },
  'MatMul, two vectors': {
    inputs: { a: { shape: [3] }, b: { shape: [3] } },
    nodes: [node('MatMul', ['a', 'b'])],
  },
  'Unsqueeze, nothing': {
    inputs: { x: { shape: [1, 0] } },
    nodes: [node('Unsqueeze', ['x', 'axes'])],
    constants: { axes: Constant.i64([1]) },
  },
  Transpose: {
    inputs: { x: { shape: [3, 2, 5] } },
    nodes: [
      makeNode('Transpose', ['x'], ['t'], { attributes: { perm: ints([2, 0, 1]) } }),
      node('Mul', ['t', 't']),
    ],
  },
  'Transpose, reversed': { inputs: { x }, nodes: [node('Transpose', ['x'])] },
  Expand: {
    inputs: { x: { shape: [3, 1] } },
    nodes: [node('Expand', ['x', 'sizes'])],
    constants: { sizes: Constant.i64([2, 1, 5]) },
  },
  ReduceSum: {
    inputs: { x: { shape: [3, 2, 5] } },
    nodes: [node('ReduceSum', ['x', 'axes'], { keepdims: int(0) })],
    constants: { axes: Constant.i64([0, -1]) },
  },
  ReduceMean: {
    inputs: { x: { shape: [3, 2, 5] } },
    nodes: [node('ReduceMean', ['x', 'axes'])],
    constants: { axes: Constant.i64([1]) },
  },
  Softmax: { inputs: { x: { shape: [3, 2, 5] } }, nodes: [node('Softmax', ['x'], { axis: int(1) })] },
  LogSoftmax: { inputs: { x }, nodes: [node('LogSoftmax', ['x'])] },
  Gemm: {
    inputs: { a: { shape: [3, 5] }, b: { shape: [7, 5] }, c: { shape: [7] } },
    nodes: [node('Gemm', ['a', 'b', 'c'], { transB: int(1) })],
  },
  'Gemm, scaled': {
    inputs: { a: { shape: [5, 3] }, b: { shape: [5, 7] }, c: { shape: [3, 1] } },
    nodes: [node('Gemm', ['a', 'b', 'c'], { transA: int(1), alpha: float(0.5), beta: float(-2) })],
  },
  'Gemm, both transposed': {
    inputs: { a: { shape: [5, 3] }, b: { shape: [7, 5] } },
    nodes: [node('Gemm', ['a', 'b'], { transA: int(1), transB: int(1) })],
  },
  MatMul: {
    inputs: { a: { shape: [2, 1, 3, 5] }, b: { shape: [3, 5, 2] } },
    nodes: [node('MatMul', ['a', 'b'])],
  },
  'MatMul, one weight': {
    inputs: { a: { shape: [2, 3, 5] }, b: { shape: [5, 7] } },
    nodes: [node('MatMul', ['a', 'b'])],
  },
  Conv: {
    inputs: { x: { shape: [2, 3, 5, 4] }, w: { shape: [5, 3, 3, 2] }, b: { shape: [5] } },
    nodes: [node('Conv', ['x', 'w', 'b'], { strides: ints([2, 1]), pads: ints([1, 0, 2, 1]) })],
  },
  'Conv, groups along one axis': {
    inputs: { x: { shape: [2, 4, 9] }, w: { shape: [6, 2, 3] } },
    nodes: [node('Conv', ['x', 'w'], { group: int(2), dilations: ints([2]) })],
  },
  MaxPool: {
    inputs: { x: { shape: [2, 3, 7, 5] } },
    nodes: [
      node('MaxPool', ['x'], {
        ...{
          kernel_shape: ints([3, 2]),
          strides: ints([2, 1]),
          pads: ints([1, 0, 1, 1]),
          dilations: ints([1, 2]),
        },
      }),
    ],
  },
  AveragePool: {
    inputs: { x: { shape: [2, 3, 7] } },
    nodes: [node('AveragePool', ['x'], { kernel_shape: ints([3]), strides: ints([2]), pads: ints([1, 2]) })],
  },
  'AveragePool, pads counted, ceil': {
    inputs: { x: { shape: [1, 2, 6, 5] } },
    nodes: [
      node('AveragePool', ['x'], {
        kernel_shape: ints([3, 2]),
        strides: ints([2, 3]),
        pads: ints([1, 0, 0, 1]),
        ceil_mode: int(1),
        count_include_pad: int(1),
      }),
    ],
  },
  GlobalAveragePool: { inputs: { x: { shape: [2, 3, 5, 2] } }, nodes: [node('GlobalAveragePool', ['x'])] },
  BatchNormalization: {
    inputs: {
      x: { shape: [2, 3, 5] },
      gamma: { shape: [3] },
      beta: { shape: [3] },
      mean: { shape: [3] },
      variance: { shape: [3], range: positive },
    },
    frozen: ['mean', 'variance'],
    nodes: [node('BatchNormalization', ['x', 'gamma', 'beta', 'mean', 'variance'], { epsilon: float(0.01) })],
  },
  LayerNormalization: {
    inputs: { x: { shape: [2, 3, 5] }, scale: { shape: [5] }, bias: { shape: [5] } },
    nodes: [node('LayerNormalization', ['x', 'scale', 'bias'], { epsilon: float(0.01) })],
  },
  'LayerNormalization, two axes': {
    inputs: { x: { shape: [2, 3, 5] }, scale: { shape: [3, 5] } },
    nodes: [node('LayerNormalization', ['x', 'scale'], { axis: int(1) })],
  },
  RMSNormalization: {
    inputs: { x: { shape: [3, 7] }, scale: { shape: [7] } },
    nodes: [node('RMSNormalization', ['x', 'scale'])],
  },
  GroupNormalization: {
    inputs: { x: { shape: [2, 6, 3] }, scale: { shape: [6] }, bias: { shape: [6] } },
    nodes: [node('GroupNormalization', ['x', 'scale', 'bias'], { num_groups: int(2) })],
  },
  InstanceNormalization: {
    inputs: { x: { shape: [2, 3, 2, 3] }, scale: { shape: [3] }, bias: { shape: [3] } },
    nodes: [node('InstanceNormalization', ['x', 'scale', 'bias'])],
  },
  LRN: {
    inputs: { x: { shape: [2, 7, 2, 3] } },
    nodes: [node('LRN', ['x'], { size: int(4), alpha: float(0.9), beta: float(0.6), bias: float(1.5) })],
  },
  'LRN of rows': {
    inputs: { x: { shape: [2, 7, 3] } },
    nodes: [node('LRN', ['x'], { size: int(3), alpha: float(0.9) })],
  },
  SoftmaxCrossEntropyLoss: {
    inputs: { scores: { shape: [5, 3] } },
    labels: { labels: Int32Array.of(2, 0, 1, 1, 2) },
    nodes: [node('SoftmaxCrossEntropyLoss', ['scores', 'labels'])],
    scalar: true,
  },
  'a loss of two parts': {
    inputs: { scores: { shape: [5, 3] } },
    labels: { labels: Int32Array.of(2, 0, 1, 1, 2) },
    nodes: [
      makeNode('SoftmaxCrossEntropyLoss', ['scores', 'labels'], ['loss0']),
      makeNode('ReduceMean', ['scores'], ['mean'], { attributes: { keepdims: int(0) } }),
      node('Mul', ['loss0', 'mean']),
    ],
    scalar: true,
  },
  DoRA: {
    inputs: {
      x: { shape: [2, 3, 5] },
      w: { shape: [7, 5] },
      a: { shape: [2, 5] },
      b: { shape: [7, 2] },
      m: { shape: [7] },
      bias: { shape: [7] },
    },
    frozen: ['w'],
    nodes: [
      node(
        'DoRA',
        ['x', 'w', 'a', 'b', 'm', 'bias'],
        { scale: float(1.5), norm_gradient: string('exact') },
        sparkDomain,
      ),
    ],
  },
  DoRAWeight: {
    inputs: {
      w: { shape: [5, 3, 2, 2] },
      a: { shape: [2, 3, 2, 2] },
      b: { shape: [5, 2, 1, 1] },
      m: { shape: [1, 5, 1, 1] },
    },
    frozen: ['w'],
    nodes: [
      node(
        'DoRAWeight',
        ['w', 'a', 'b', 'm'],
        { scale: float(0.5), norm_gradient: string('exact') },
        sparkDomain,
      ),
    ],
  },
}

for (const [name, checked] of Object.entries(cases)) {
  t.test(name, async t => {
    for (const [input, error] of Object.entries(await gradientError(checked))) {
      t.ok(error < tolerance, `${input}: relative error ${error.toExponential(1)}`)
    }
  })
}

t.test('a detached norm gives another gradient, and the check sees it', async t => {
  const { nodes, ...rest } = cases.DoRA!
  const detached = { ...rest, nodes: nodes.map(one => ({ ...one, attributes: { scale: float(1.5) } })) }
  const errors = await gradientError(detached)
  t.ok(errors.x! < tolerance && errors.m! < tolerance && errors.bias! < tolerance)
  t.ok(errors.a! > 1e-2 && errors.b! > 1e-2)
})

t.test('what cannot be differentiated', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3]) }],
    outputs: [{ name: 'loss' }],
    nodes: [makeNode('Atan', ['x'], ['y'], { name: 'odd' }), makeNode('ReduceSum', ['y'], ['loss'])],
    initializers: new Map([['unused', Constant.f32([1])]]),
  })
  t.throws(() => differentiate(graph, { loss: 'loss', wrt: ['x'] }), {
    code: 'ERR_UNSUPPORTED',
    message: /odd.*Atan/,
  })
  t.throws(() => differentiate(graph, { loss: 'loss', wrt: ['unused'] }), {
    code: 'ERR_ARGUMENT',
    message: /unused/,
  })
})
