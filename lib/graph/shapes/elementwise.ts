// elementwise.ts: shapes of operators that treat every element alike.
import { isInteger } from '../../core/dtype.js'
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { mapped, numeric } from './known-values.js'
import { expectBroadcast, expectInputs, single } from './operands.js'
import { type OperatorTable, sameAs, sameAsFirst, type ValueRule } from './row.js'

/** The inputs have one type and broadcast. */
const broadcasting: Rule = ctx => [tensorOrUnknown(ctx.commonDtype(), ctx.broadcast())]

const compare: Rule = ctx => {
  ctx.commonDtype([0, 1])
  return [tensorOrUnknown('bool', ctx.broadcast())]
}

const test: Rule = ctx => [tensorOrUnknown('bool', ctx.shape(0))]

const commutative = (compute: (a: number, b: number) => number, neutral: number): ValueRule =>
  mapped(elements => {
    const names = elements.filter(element => element !== neutral)
    if (names.length === 1) return names[0]!
    return elements.every(element => typeof element === 'number')
      ? (elements as number[]).reduce(compute)
      : null
  })

const compared = (compute: (a: number, b: number) => boolean): ValueRule =>
  numeric((a, b) => Number(compute(a!, b!)))

/** Division of integers rounds towards 0. */
const divide: ValueRule = mapped(([a, b], dtype) => {
  if (b === 1) return a!
  if (typeof a !== 'number' || typeof b !== 'number') return null
  if (isInteger(dtype)) return b === 0 ? null : Math.trunc(a / b)
  return a / b
})

const modulo: ValueRule = (ctx, types) =>
  numeric((a, b) => (ctx.int('fmod') === 1 || b === 0 ? a! % b! : a! - Math.floor(a! / b!) * b!))(ctx, types)

const multiply: ValueRule = mapped(([a, b]) => {
  if (a === 0 || b === 0) return 0
  if (a === 1) return b!
  if (b === 1) return a!
  return typeof a === 'number' && typeof b === 'number' ? a * b : null
})

const subtract: ValueRule = mapped(([a, b]) => {
  if (b === 0) return a!
  return typeof a === 'number' && typeof b === 'number' ? a - b : null
})

const chosen: ValueRule = mapped(([condition, a, b]) =>
  typeof condition !== 'number' ? null : condition ? a! : b!,
)

const where: Rule = ctx => [tensorOrUnknown(ctx.commonDtype([1, 2]), ctx.broadcast())]

const pow: Rule = ctx => [tensorOrUnknown(ctx.dtype(0), ctx.broadcast())]

const cast: Rule = ctx => [tensorOrUnknown(ctx.typeAttribute('to'), ctx.shape(0))]

const castLike: Rule = ctx => [tensorOrUnknown(ctx.dtype(1), ctx.shape(0))]

/** Rows of elementwise operators. */
export const elementwise: OperatorTable = {
  '': {
    Abs: { shape: sameAsFirst, values: numeric(Math.abs) },
    Acos: { shape: sameAsFirst },
    Acosh: { shape: sameAsFirst },
    Asin: { shape: sameAsFirst },
    Asinh: { shape: sameAsFirst },
    Atan: { shape: sameAsFirst },
    Atanh: { shape: sameAsFirst },
    BitwiseNot: { shape: sameAsFirst },
    Ceil: { shape: sameAsFirst, values: numeric(Math.ceil) },
    Celu: { shape: sameAsFirst },
    Clip: { shape: sameAsFirst, check: single('min', 'max') },
    Cos: { shape: sameAsFirst },
    Cosh: { shape: sameAsFirst },
    Elu: { shape: sameAsFirst },
    Erf: { shape: sameAsFirst },
    Exp: { shape: sameAsFirst },
    Floor: { shape: sameAsFirst, values: numeric(Math.floor) },
    Gelu: { shape: sameAsFirst, choices: { approximate: ['none', 'tanh'] } },
    HardSigmoid: { shape: sameAsFirst },
    HardSwish: { shape: sameAsFirst },
    LeakyRelu: { shape: sameAsFirst },
    Log: { shape: sameAsFirst },
    Mish: { shape: sameAsFirst },
    Neg: { shape: sameAsFirst, values: numeric(a => -a!) },
    Not: { shape: sameAsFirst, values: numeric(a => Number(a === 0)) },
    PRelu: { shape: sameAsFirst, check: ctx => expectBroadcast(ctx, 1, 'slope', ctx.shape(0)) },
    Reciprocal: { shape: sameAsFirst },
    Relu: { shape: sameAsFirst },
    Round: { shape: sameAsFirst },
    Selu: { shape: sameAsFirst },
    Shrink: { shape: sameAsFirst },
    Sigmoid: { shape: sameAsFirst },
    Sign: { shape: sameAsFirst, values: numeric(Math.sign) },
    Sin: { shape: sameAsFirst },
    Sinh: { shape: sameAsFirst },
    Softplus: { shape: sameAsFirst },
    Softsign: { shape: sameAsFirst },
    Sqrt: { shape: sameAsFirst, values: numeric(Math.sqrt) },
    SwiGLU: { shape: sameAsFirst },
    Swish: { shape: sameAsFirst },
    Tan: { shape: sameAsFirst },
    Tanh: { shape: sameAsFirst },
    ThresholdedRelu: { shape: sameAsFirst },
    Add: { shape: broadcasting, values: commutative((a, b) => a + b, 0) },
    Sub: { shape: broadcasting, values: subtract },
    Mul: { shape: broadcasting, values: multiply },
    Div: { shape: broadcasting, values: divide },
    Pow: { shape: pow, values: numeric((a, b) => a! ** b!, 1) },
    Mod: { shape: broadcasting, values: modulo },
    Max: { shape: broadcasting, check: expectInputs, values: numeric(Math.max) },
    Min: { shape: broadcasting, check: expectInputs, values: numeric(Math.min) },
    Sum: { shape: broadcasting, check: expectInputs },
    Mean: { shape: broadcasting, check: expectInputs },
    And: { shape: broadcasting, values: numeric((a, b) => Number(a !== 0 && b !== 0)) },
    Or: { shape: broadcasting, values: numeric((a, b) => Number(a !== 0 || b !== 0)) },
    Xor: { shape: broadcasting },
    BitShift: { shape: broadcasting, choices: { direction: ['LEFT', 'RIGHT'] } },
    BitwiseAnd: { shape: broadcasting },
    BitwiseOr: { shape: broadcasting },
    BitwiseXor: { shape: broadcasting },
    Equal: { shape: compare, values: compared((a, b) => a === b) },
    Greater: { shape: compare, values: compared((a, b) => a > b) },
    GreaterOrEqual: { shape: compare, values: compared((a, b) => a >= b) },
    Less: { shape: compare, values: compared((a, b) => a < b) },
    LessOrEqual: { shape: compare, values: compared((a, b) => a <= b) },
    IsInf: { shape: test },
    IsNaN: { shape: test },
    Where: { shape: where, conditions: [0], values: chosen },
    Cast: { shape: cast, choices: { round_mode: ['up', 'down', 'nearest'] }, values: mapped(([a]) => a!) },
    CastLike: { shape: castLike, values: mapped(([a]) => a!) },
    BitCast: { shape: cast },
  },
  [sparkDomain]: {
    ReluGrad: { shape: sameAs(1) },
    GeluGrad: { shape: sameAs(1) },
  },
}
