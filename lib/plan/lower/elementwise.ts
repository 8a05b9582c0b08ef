// elementwise.ts: functions of every element, with broadcasting.

import { arrayBytes, type ElementType, exactType, isFloat, isWideFloat } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { multiply, type Size, sameSize } from '../../core/size.js'
import { float } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { BinaryFn, UnaryFn } from '../../kernels/strided-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { broadcastStrides, collapse } from '../views.js'
import type { LowerTable } from './table.js'

/** Adds y = fn(a, b), broadcasting operands of the given shapes to that of y. */
export function addBinary(
  ctx: Lowering,
  fn: BinaryFn,
  [a, aShape]: readonly [Operand, readonly Size[]],
  [b, bShape]: readonly [Operand, readonly Size[]],
  [y, yShape]: readonly [Operand, readonly Size[]],
): void {
  const loop = collapse(yShape, [broadcastStrides(aShape, yShape), broadcastStrides(bShape, yShape)])
  const [aStrides, bStrides] = loop.strides as [number[], number[]]
  ctx.step('binary', {
    fn,
    dtype: ctx.kernelType(a.buffer.dtype),
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
  ctx: Lowering,
  fn: UnaryFn,
  x: Operand,
  y: Operand,
  parameters: Parameters = {},
): void {
  ctx.step('unary', { fn, dtype: ctx.kernelType(x.buffer.dtype), count: x.count, ...parameters, x, y })
}

/** A function of each element; `parameters` reads what it depends on from the node. */
const unary =
  (fn: UnaryFn, parameters: (ctx: Lowering) => Parameters = () => ({})) =>
  (ctx: Lowering): void =>
    addUnary(ctx, fn, ctx.read(0), ctx.write(), parameters(ctx))

/** Two or more inputs, from the left to the right. */
const binary =
  (fn: BinaryFn) =>
  (ctx: Lowering): void => {
    const last = ctx.node.inputs.length - 1
    if (last === 0) ctx.view(0)
    let left = [ctx.read(0), ctx.shape(0)] as const
    for (let i = 1; i <= last; i++) {
      const { shape } = ctx.output()
      const y = i === last ? ctx.write() : ctx.scratch(numel(shape), ctx.output().dtype).write()
      addBinary(ctx, fn, left, [ctx.read(i), ctx.shape(i)], [y, shape])
      left = [y.buffer.read(), shape]
    }
  }

const alpha = (ctx: Lowering): Parameters => ({ alpha: ctx.number('alpha') })

const alphaBeta = (ctx: Lowering): Parameters => ({ alpha: ctx.number('alpha'), beta: ctx.number('beta') })

/** a compared with b, in this order or swapped around. */
const compare =
  (fn: BinaryFn, swapped = false) =>
  (ctx: Lowering): void => {
    const [a, b] = swapped ? [1, 0] : [0, 1]
    const left = [ctx.read(a), ctx.shape(a)] as const
    addBinary(ctx, fn, left, [ctx.read(b), ctx.shape(b)], [ctx.write(), ctx.output().shape])
  }

/** The base and the exponent may differ in type: both become f64 then. */
function pow(ctx: Lowering): void {
  const [base, exponent] = [ctx.input(0), ctx.input(1)]
  if (base.dtype === exponent.dtype) binary('pow')(ctx)
  else ctx.give(ctx.call('Pow', [ctx.cast(base, 'f64'), ctx.cast(exponent, 'f64')]))
}

function mean(ctx: Lowering): void {
  const inputs = ctx.node.inputs.map((_, i) => ctx.input(i))
  const sum = ctx.call('Sum', inputs)
  ctx.give(ctx.call('Div', [sum, ctx.one(inputs.length, ctx.dtype())]))
}

/** x, least, most */
function clip(ctx: Lowering): void {
  let x = ctx.input(0)
  if (ctx.has(1)) x = ctx.call('Max', [x, ctx.input(1)])
  if (ctx.has(2)) x = ctx.call('Min', [x, ctx.input(2)])
  ctx.give(x)
}

/** condition, a, b */
function where(ctx: Lowering): void {
  const { shape, dtype } = ctx.output()
  const strides = [0, 1, 2].map(i => broadcastStrides(ctx.shape(i), shape))
  const loop = collapse(shape, strides)
  const [conditionStrides, aStrides, bStrides] = loop.strides as [number[], number[], number[]]
  ctx.step('select', {
    dtype: ctx.kernelType(dtype),
    shape: loop.shape,
    conditionStrides,
    aStrides,
    bStrides,
    condition: ctx.read(0),
    a: ctx.read(1),
    b: ctx.read(2),
    y: ctx.write(),
  })
}

/** To the type of the output; only f8 formats saturate. */
function cast(ctx: Lowering): void {
  const { dtype } = ctx.output()
  if (dtype === ctx.input(0).dtype) {
    ctx.view(0)
    return
  }
  const src = ctx.read(0)
  const dst = ctx.write(0, { exactIn: exactType(ctx.dtype(), dtype) })
  ctx.step('cast', {
    srcDtype: ctx.dtype(),
    dstDtype: ctx.kernelType(dtype),
    count: src.count,
    saturate: isFloat(dtype) && !isWideFloat(dtype) && ctx.integer('saturate') !== 0,
    rounding: ctx.text('round_mode') as 'up' | 'down' | 'nearest',
    src,
    dst,
  })
}

/** The bits of x as elements of another type of the same size: bytes are moved, whatever they mean. */
function bitCast(ctx: Lowering): void {
  const src = ctx.read(0)
  const [srcDtype, dstDtype] = [ctx.dtype(), ctx.kernelType(ctx.output().dtype)]
  const dst = ctx.write()
  const bytesOf = (dtype: ElementType, count: Size): Size => multiply(arrayBytes(dtype, 1), count)
  if (!sameSize(bytesOf(srcDtype, src.count), bytesOf(dstDtype, dst.count)))
    throw ctx.unsupported(`${srcDtype} and ${dstDtype} differ in size`)
  ctx.step('cast', { srcDtype, dstDtype, count: src.count, saturate: false, bits: true, src, dst })
}

/** x / (1 + e^-αx) */
const swish = unary('swish', alpha)

/** The gate through swish, times the other input. */
function swiGlu(ctx: Lowering): void {
  const gate = ctx.call('Swish', [ctx.input(0)], { alpha: float(ctx.number('alpha')) })
  ctx.give(ctx.call('Mul', [gate, ctx.input(1)]))
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
    IsInf: unary('is_inf', ctx => ({
      alpha: ctx.integer('detect_negative'),
      beta: ctx.integer('detect_positive'),
    })),
    Elu: unary('elu', alpha),
    Celu: unary('celu', alpha),
    Selu: unary('selu', ctx => ({
      alpha: ctx.number('alpha'),
      beta: ctx.number('gamma'),
    })),
    LeakyRelu: unary('leaky_relu', alpha),
    ThresholdedRelu: unary('thresholded_relu', alpha),
    HardSigmoid: unary('hard_sigmoid', alphaBeta),
    Shrink: unary('shrink', ctx => ({ alpha: ctx.number('lambd'), beta: ctx.number('bias') })),
    Swish: swish,
    SwiGLU: swiGlu,
    Gelu: ctx => unary(ctx.text('approximate') === 'tanh' ? 'gelu_tanh' : 'gelu')(ctx),
    Add: binary('add'),
    Sub: binary('sub'),
    Mul: binary('mul'),
    Div: binary('div'),
    Pow: pow,
    Mod: ctx => binary(ctx.integer('fmod') === 0 ? 'mod' : 'fmod')(ctx),
    PRelu: binary('prelu'),
    And: binary('bit_and'),
    Or: binary('bit_or'),
    Xor: binary('bit_xor'),
    BitwiseAnd: binary('bit_and'),
    BitwiseOr: binary('bit_or'),
    BitwiseXor: binary('bit_xor'),
    BitShift: ctx => binary(ctx.text('direction') === 'LEFT' ? 'shift_left' : 'shift_right')(ctx),
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
    GeluGrad: ctx => binary(ctx.text('approximate') === 'tanh' ? 'gelu_tanh_grad' : 'gelu_grad')(ctx),
  },
}
