// elementwise.ts: functions of every element, with broadcasting.
import { exactType, isFloat, isWideFloat } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { float } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { BinaryFn, UnaryFn } from '../../kernels/tensor-kernel-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { broadcastStrides, collapse } from '../views.js'
import type { LowerTable } from './table.js'

/** Adds y = fn(a, b), broadcasting operands of the given shapes to that of y. */
export function addBinary(
  at: Lowering,
  fn: BinaryFn,
  [a, aShape]: readonly [Operand, readonly number[]],
  [b, bShape]: readonly [Operand, readonly number[]],
  [y, yShape]: readonly [Operand, readonly number[]],
): void {
  const loop = collapse(yShape, [broadcastStrides(aShape, yShape), broadcastStrides(bShape, yShape)])
  const [aStrides, bStrides] = loop.strides as [number[], number[]]
  at.step('binary', {
    fn,
    dtype: at.kernelType(a.buffer.dtype),
    shape: loop.shape,
    aStrides,
    bStrides,
    a,
    b,
    y,
  })
}

/** Parameters of a function. */
export interface Parameters {
  readonly alpha?: number
  readonly beta?: number
}

/** Adds y = fn(x). */
export function addUnary(
  at: Lowering,
  fn: UnaryFn,
  x: Operand,
  y: Operand,
  parameters: Parameters = {},
): void {
  at.step('unary', { fn, dtype: at.kernelType(x.buffer.dtype), count: x.count, ...parameters, x, y })
}

/** A function of each element; `parameters` reads what it depends on from the node. */
const unary =
  (fn: UnaryFn, parameters: (at: Lowering) => Parameters = () => ({})) =>
  (at: Lowering): void =>
    addUnary(at, fn, at.read(0), at.write(), parameters(at))

/** Two or more inputs, from the left to the right. */
const binary =
  (fn: BinaryFn) =>
  (at: Lowering): void => {
    const last = at.node.inputs.length - 1
    if (last === 0) at.view(0)
    let left = [at.read(0), at.shape(0)] as const
    for (let i = 1; i <= last; i++) {
      const { shape } = at.output()
      const y = i === last ? at.write() : at.scratch(numel(shape), at.output().dtype).write()
      addBinary(at, fn, left, [at.read(i), at.shape(i)], [y, shape])
      left = [y.buffer.read(), shape]
    }
  }

/** The attribute alpha, and beta. */
const alpha =
  (fallback: number) =>
  (at: Lowering): Parameters => ({ alpha: at.number('alpha', fallback) })

const alphaBeta =
  (first: number, second: number) =>
  (at: Lowering): Parameters => ({ alpha: at.number('alpha', first), beta: at.number('beta', second) })

/** a compared with b, in this order or turned around. */
const compare =
  (fn: BinaryFn, turned = false) =>
  (at: Lowering): void => {
    const [a, b] = turned ? [1, 0] : [0, 1]
    const left = [at.read(a), at.shape(a)] as const
    addBinary(at, fn, left, [at.read(b), at.shape(b)], [at.write(), at.output().shape])
  }

/** The base and the exponent may differ in type: both become f64 then. */
function pow(at: Lowering): void {
  const [base, exponent] = [at.input(0), at.input(1)]
  if (base.dtype === exponent.dtype) binary('pow')(at)
  else at.give(at.call('Pow', [at.cast(base, 'f64'), at.cast(exponent, 'f64')]))
}

function mean(at: Lowering): void {
  const inputs = at.node.inputs.map((_, i) => at.input(i))
  const sum = at.call('Sum', inputs)
  at.give(at.call('Div', [sum, at.one(inputs.length, at.dtype())]))
}

/** x, least, most */
function clip(at: Lowering): void {
  let x = at.input(0)
  if (at.has(1)) x = at.call('Max', [x, at.input(1)])
  if (at.has(2)) x = at.call('Min', [x, at.input(2)])
  at.give(x)
}

/** condition, a, b */
function where(at: Lowering): void {
  const { shape, dtype } = at.output()
  const strides = [0, 1, 2].map(i => broadcastStrides(at.shape(i), shape))
  const loop = collapse(shape, strides)
  const [conditionStrides, aStrides, bStrides] = loop.strides as [number[], number[], number[]]
  at.step('select', {
    ...{ dtype: at.kernelType(dtype), shape: loop.shape, conditionStrides, aStrides, bStrides },
    ...{ condition: at.read(0), a: at.read(1), b: at.read(2), y: at.write() },
  })
}

/** To the type of the output; only f8 formats saturate. */
function cast(at: Lowering): void {
  const { dtype } = at.output()
  if (dtype === at.input(0).dtype) {
    at.view(0)
    return
  }
  const src = at.read(0)
  const dst = at.write(0, exactType(at.dtype(), dtype))
  at.step('cast', {
    ...{ srcDtype: at.dtype(), dstDtype: at.kernelType(dtype), count: src.count },
    saturate: isFloat(dtype) && !isWideFloat(dtype) && at.integer('saturate', 1) !== 0,
    rounding: at.text('round_mode', 'up') as 'up' | 'down' | 'nearest',
    ...{ src, dst },
  })
}

/** The bits of x as elements of another type of the same size: bytes are moved, whatever they mean. */
function bitCast(at: Lowering): void {
  const src = at.read(0)
  const [srcDtype, dstDtype] = [at.dtype(), at.kernelType(at.output().dtype)]
  const dst = at.write()
  if (src.count !== dst.count) throw at.unsupported(`${srcDtype} and ${dstDtype} differ in size`)
  at.step('cast', { srcDtype, dstDtype, count: src.count, saturate: false, bits: true, src, dst })
}

/** x / (1 + e^-αx) */
const swish = unary('swish', alpha(1))

/** The gate through swish, times the other input. */
function swiGlu(at: Lowering): void {
  const gate = at.call('Swish', [at.input(0)], { alpha: float(at.number('alpha', 1)) })
  at.give(at.call('Mul', [gate, at.input(1)]))
}

/** Lowerings of elementwise operators. */
export const elementwise: LowerTable = {
  '': {
    Abs: unary('abs'),
    Neg: unary('neg'),
    Sign: unary('sign'),
    Relu: unary('relu'),
    Not: unary('not'),
    Reciprocal: unary('reciprocal'),
    Sqrt: unary('sqrt'),
    Exp: unary('exp'),
    Log: unary('log'),
    Erf: unary('erf'),
    Floor: unary('floor'),
    Ceil: unary('ceil'),
    Round: unary('round'),
    Sin: unary('sin'),
    Cos: unary('cos'),
    Tan: unary('tan'),
    Asin: unary('asin'),
    Acos: unary('acos'),
    Atan: unary('atan'),
    Sinh: unary('sinh'),
    Cosh: unary('cosh'),
    Tanh: unary('tanh'),
    Asinh: unary('asinh'),
    Acosh: unary('acosh'),
    Atanh: unary('atanh'),
    Sigmoid: unary('sigmoid'),
    HardSwish: unary('hard_swish'),
    Softplus: unary('softplus'),
    Softsign: unary('softsign'),
    Mish: unary('mish'),
    BitwiseNot: unary('bitwise_not'),
    IsNaN: unary('is_nan'),
    IsInf: unary('is_inf', at => ({
      alpha: at.integer('detect_negative', 1),
      beta: at.integer('detect_positive', 1),
    })),
    Elu: unary('elu', alpha(1)),
    Celu: unary('celu', alpha(1)),
    Selu: unary('selu', at => ({
      alpha: at.number('alpha', 1.6732632423543772),
      beta: at.number('gamma', 1.0507009873554805),
    })),
    LeakyRelu: unary('leaky_relu', alpha(0.01)),
    ThresholdedRelu: unary('thresholded_relu', alpha(1)),
    HardSigmoid: unary('hard_sigmoid', alphaBeta(0.2, 0.5)),
    Shrink: unary('shrink', at => ({ alpha: at.number('lambd', 0.5), beta: at.number('bias', 0) })),
    Swish: swish,
    SwiGLU: swiGlu,
    Gelu: at => unary(at.text('approximate', 'none') === 'tanh' ? 'gelu_tanh' : 'gelu')(at),
    Add: binary('add'),
    Sub: binary('sub'),
    Mul: binary('mul'),
    Div: binary('div'),
    Pow: pow,
    Mod: at => binary(at.integer('fmod', 0) === 0 ? 'mod' : 'fmod')(at),
    PRelu: binary('prelu'),
    And: binary('bit_and'),
    Or: binary('bit_or'),
    Xor: binary('bit_xor'),
    BitwiseAnd: binary('bit_and'),
    BitwiseOr: binary('bit_or'),
    BitwiseXor: binary('bit_xor'),
    BitShift: at => binary(at.text('direction', '') === 'LEFT' ? 'shift_left' : 'shift_right')(at),
    Equal: compare('equal'),
    Less: compare('less'),
    LessOrEqual: compare('less_or_equal'),
    Greater: compare('less', true),
    GreaterOrEqual: compare('less_or_equal', true),
    Max: binary('max'),
    Min: binary('min'),
    Sum: binary('add'),
    Mean: mean,
    Clip: clip,
    Where: where,
    Cast: cast,
    CastLike: cast,
    BitCast: bitCast,
  },
  [sparkDomain]: {
    ReluGrad: binary('relu_grad'),
    GeluGrad: at => binary(at.text('approximate', 'none') === 'tanh' ? 'gelu_tanh_grad' : 'gelu_grad')(at),
  },
}
