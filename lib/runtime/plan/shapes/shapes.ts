// shapes.ts: element types and sizes of the outputs of a node, all sizes being known.
import { SparkError } from '../../../core/errors.js'
import { sparkDomain } from '../../../graph/graph.js'
import type { TensorShape } from '../lowering.js'
import { axisOf, broadcastShapes, volume } from '../views.js'
import type { ShapeContext, ShapeTable } from './context.js'
import { convGeometry } from './conv.js'

const same =
  (i: number) =>
  (at: ShapeContext): TensorShape[] => [at.type(i)]
const broadcast = (at: ShapeContext): TensorShape[] => [
  { dtype: at.type(0).dtype, shape: broadcastShapes(...at.node.inputs.map((_, i) => at.shape(i))) },
]
/** f32 of the shapes of inputs, or undefined for an output of no interest. */
const f32 = (...shapes: readonly (readonly number[])[]): TensorShape[] =>
  shapes.map(shape => ({ dtype: 'f32', shape }))

function gemm(at: ShapeContext): TensorShape[] {
  const [a, b] = [at.shape(0), at.shape(1)]
  const [transA, transB] = [at.integer('transA', 0), at.integer('transB', 0)]
  const [m, k] = transA ? [a[1]!, a[0]!] : [a[0]!, a[1]!]
  const [depth, n] = transB ? [b[1]!, b[0]!] : [b[0]!, b[1]!]
  if (a.length !== 2 || b.length !== 2 || k !== depth) throw at.mismatch(0, 1)
  return f32([m, n])
}

function matmul(at: ShapeContext): TensorShape[] {
  const flip = (shape: readonly number[], flag: string): readonly number[] =>
    at.integer(flag, 0) ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape
  const [a, b] = [flip(at.shape(0), 'transA'), flip(at.shape(1), 'transB')]
  if (a.length === 0 || b.length === 0 || a.at(-1) !== b.at(b.length > 1 ? -2 : 0)) throw at.mismatch(0, 1)
  const batch = broadcastShapes(a.slice(0, -2), b.slice(0, -2))
  return f32([...batch, ...(a.length > 1 ? [a.at(-2)!] : []), ...(b.length > 1 ? [b.at(-1)!] : [])])
}

function dora(at: ShapeContext): TensorShape[] {
  const [x, [out, inFeatures], [rank]] = [at.shape(0), at.shape(1) as number[], at.shape(2) as number[]]
  if (x.at(-1) !== inFeatures) throw at.mismatch(0, 1)
  const lead = x.slice(0, -1)
  return f32([...lead, out!], [...lead, rank!], [...lead, out!], [out!], [out!])
}

function reshape(at: ShapeContext): TensorShape[] {
  const from = at.shape(0)
  const wanted = at
    .integers(1)
    .map((size, i) => (size === 0 && !at.integer('allowzero', 0) ? from[i]! : size))
  const rest = wanted.reduce((product, size) => (size === -1 ? product : product * size), 1)
  const shape = wanted.map(size => (size === -1 ? volume(from) / rest : size))
  if (volume(shape) !== volume(from)) throw at.mismatch(0, 1)
  return [{ dtype: at.type(0).dtype, shape }]
}

function reduce(at: ShapeContext): TensorShape[] {
  const from = at.shape(0)
  const axes = (at.has(1) ? at.integers(1) : at.integersOf('axes')) ?? []
  const all = axes.length === 0 && at.integer('noop_with_empty_axes', 0) === 0
  const gone = new Set(all ? from.keys() : axes.map(axis => axisOf(axis, from.length)))
  const keep = at.integer('keepdims', 1) !== 0
  const shape = from.flatMap((size, axis) => (!gone.has(axis) ? [size] : keep ? [1] : []))
  return [{ dtype: at.type(0).dtype, shape }]
}

function unsqueeze(at: ShapeContext): TensorShape[] {
  const axes = at.has(1) ? at.integers(1) : (at.integersOf('axes') ?? [])
  const rank = at.shape(0).length + axes.length
  const added = new Set(axes.map(axis => axisOf(axis, rank)))
  const sizes = at.shape(0)[Symbol.iterator]()
  const shape = Array.from({ length: rank }, (_, axis) => (added.has(axis) ? 1 : sizes.next().value!))
  return [{ dtype: at.type(0).dtype, shape }]
}

function squeeze(at: ShapeContext): TensorShape[] {
  const from = at.shape(0)
  const axes =
    (at.has(1) ? at.integers(1) : at.integersOf('axes')) ?? [...from.keys()].filter(i => from[i] === 1)
  const gone = new Set(axes.map(axis => axisOf(axis, from.length)))
  return [{ dtype: at.type(0).dtype, shape: from.filter((_, axis) => !gone.has(axis)) }]
}

function transpose(at: ShapeContext): TensorShape[] {
  const from = at.shape(0)
  const order = at.integersOf('perm') ?? [...from.keys()].reverse()
  return [{ dtype: at.type(0).dtype, shape: order.map(axis => from[axis]!) }]
}

function flatten(at: ShapeContext): TensorShape[] {
  const from = at.shape(0)
  const given = at.integer('axis', 1)
  const axis = given < 0 ? given + from.length : given
  return [{ dtype: at.type(0).dtype, shape: [volume(from.slice(0, axis)), volume(from.slice(axis))] }]
}

function concat(at: ShapeContext): TensorShape[] {
  const first = at.shape(0)
  const axis = axisOf(at.integer('axis', 0), first.length)
  const size = at.node.inputs.reduce((sum, _, i) => sum + at.shape(i)[axis]!, 0)
  return [{ dtype: at.type(0).dtype, shape: first.map((old, i) => (i === axis ? size : old)) }]
}

function conv(at: ShapeContext): TensorShape[] {
  const [x, w] = [at.shape(0), at.shape(1)]
  return f32([x[0]!, w[0]!, ...convGeometry(at.node, x, w).out])
}

const known = (at: ShapeContext): TensorShape[] => [{ dtype: 'i64', shape: [at.shape(0).length] }]

const table: ShapeTable = {
  '': {
    ...Object.fromEntries(
      ['Abs', 'Neg', 'Reciprocal', 'Sqrt', 'Exp', 'Log', 'Erf', 'Tanh', 'Sigmoid', 'Relu', 'Gelu', 'Identity']
        .concat(['Softmax', 'LogSoftmax', 'BatchNormalization'])
        .map(op => [op, same(0)]),
    ),
    ...Object.fromEntries(
      ['Add', 'Sub', 'Mul', 'Div', 'Pow', 'Max', 'Min', 'Sum'].map(op => [op, broadcast]),
    ),
    ...Object.fromEntries(
      ['Sum', 'Mean', 'Max', 'Min', 'Prod', 'SumSquare'].map(fn => [`Reduce${fn}`, reduce]),
    ),
    Gemm: gemm,
    MatMul: matmul,
    Conv: conv,
    Reshape: reshape,
    Flatten: flatten,
    Squeeze: squeeze,
    Unsqueeze: unsqueeze,
    Transpose: transpose,
    Expand: at => [{ dtype: at.type(0).dtype, shape: broadcastShapes(at.shape(0), at.integers(1)) }],
    Concat: concat,
    Shape: known,
    Size: () => [{ dtype: 'i64', shape: [] }],
    Constant: () => [],
    SoftmaxCrossEntropyLoss: () => f32([]),
  },
  [sparkDomain]: {
    ReluGrad: same(1),
    GeluGrad: same(1),
    SumLike: same(1),
    ReduceSumGrad: same(1),
    ReduceMeanGrad: same(1),
    FusedMatMul: matmul,
    BatchNormalizationGrad: same(0),
    SoftmaxCrossEntropyLossGrad: same(1),
    AdamW: at => [at.type(2), at.type(4), at.type(5)],
    DoRA: dora,
    DoRAGrad: at => [at.type(1), at.type(3), at.type(4), at.type(5), ...f32([at.shape(2)[0]!])],
    DoRAWeight: at => [at.type(0), ...f32([at.shape(0)[0]!], [at.shape(0)[0]!])],
    DoRAWeightGrad: at => [at.type(2), at.type(3), ...f32([at.shape(1)[0]!])],
    ConvGrad: at => [at.type(1), at.type(2), ...f32([at.shape(2)[0]!])],
  },
}

/**
 * Types of the outputs of a node.
 * @throws SparkError ERR_UNSUPPORTED for an operator without a rule, ERR_SHAPE when the inputs do not fit
 */
export function outputTypes(at: ShapeContext): TensorShape[] {
  const rule = table[at.node.domain]?.[at.node.op]
  if (!rule) throw new SparkError('ERR_UNSUPPORTED', `${at.describe()}: there is no such operator yet`)
  return rule(at)
}
