// elementwise.ts: shapes of operators that treat every element alike.
import { type ElementType, isInteger } from '../../core/dtype.js'
import {
  add as addSizes,
  areNumbers,
  floorDivide,
  isSize,
  lessThan,
  maximum,
  minimum,
  multiply as multiplySizes,
  type Size,
  sameSize,
  subtract as subtractSizes,
} from '../../core/size.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { castElement, computed, dtypeOf, mapped, numeric } from './known-values.js'
import { expectBroadcast, expectInputs, single } from './operands.js'
import { type OperatorTable, sameAs, sameAsFirst, type ValueRule } from './row.js'

/** The inputs have one type and broadcast. */
const broadcasting: Rule = ctx => [tensorOrUnknown(ctx.commonDtype(), ctx.broadcast())]

const compare: Rule = ctx => {
  ctx.commonDtype([0, 1])
  return [tensorOrUnknown('bool', ctx.broadcast())]
}

const test: Rule = ctx => [tensorOrUnknown('bool', ctx.shape(0))]

/** An operation on two elements: polynomials of integers are exact, floats are rounded. */
const arithmetic =
  (name: string, exact: (a: Size, b: Size) => Size, compute: (a: number, b: number) => number) =>
  (
    a: SymbolicDimension | undefined,
    b: SymbolicDimension | undefined,
    dtype: ElementType,
  ): SymbolicDimension => {
    if (!isSize(a) || !isSize(b)) return null
    return isInteger(dtype) ? exact(a, b) : computed(name, compute as never, dtype, [a, b])
  }

const sumOf = arithmetic('add', addSizes, (a, b) => a + b)
const differenceOf = arithmetic('subtract', subtractSizes, (a, b) => a - b)
const productOf = arithmetic('multiply', multiplySizes, (a, b) => a * b)

const add: ValueRule = mapped((elements, dtype) => {
  const names = elements.filter(element => element !== 0)
  return names.length === 1 ? names[0]! : elements.reduce((a, b) => sumOf(a, b, dtype))
})

const isComparable = (element: SymbolicDimension | undefined): element is Size =>
  isSize(element) && !Number.isNaN(element)

const compared = (compute: (a: Size, b: Size) => boolean): ValueRule =>
  mapped(([a, b]) => (isComparable(a) && isComparable(b) ? Number(compute(a, b)) : null))

/** Division of integers rounds towards 0. */
const divide: ValueRule = mapped(([a, b], dtype) => {
  if (b === 1) return a!
  if (!isSize(a) || !isSize(b)) return null
  if (!isInteger(dtype)) return computed('divide', (a, b) => a! / b!, dtype, [a, b])
  if (sameSize(b, 0)) return null
  const rounds = typeof a !== 'number' || typeof b !== 'number'
  if (rounds && !lessThan(a, 0) && lessThan(0, b)) return floorDivide(a, b)
  return computed('truncated quotient', (a, b) => Math.trunc(a! / b!), dtype, [a, b])
})

const modulo: ValueRule = (ctx, types) => {
  const truncates = ctx.int('fmod') === 1
  const name = truncates ? 'fmod' : 'mod'
  const compute = (a?: number, b?: number): number =>
    truncates || b === 0 ? a! % b! : a! - Math.floor(a! / b!) * b!
  return numeric(name, compute)(ctx, types)
}

const multiply: ValueRule = mapped(([a, b], dtype) => {
  if (a === 0 || b === 0) return 0
  if (a === 1) return b!
  return b === 1 ? a! : productOf(a, b, dtype)
})

const subtract: ValueRule = mapped(([a, b], dtype) => (b === 0 ? a! : differenceOf(a, b, dtype)))

/** The extreme of elements. */
const extreme = (
  name: string,
  exact: (a: Size, b: Size) => Size,
  compute: (...numbers: number[]) => number,
): ValueRule =>
  mapped((elements, dtype) => {
    if (!elements.every(isSize)) return null
    const symbolic = isInteger(dtype) && !areNumbers(elements)
    return symbolic ? elements.reduce(exact) : computed(name, compute, dtype, elements)
  })

const isTrue = (element: SymbolicDimension): boolean => element !== 0

const logical = (compute: (a: boolean, b: boolean) => boolean): ValueRule =>
  mapped(([a, b]) =>
    typeof a === 'number' && typeof b === 'number' ? Number(compute(isTrue(a), isTrue(b))) : null,
  )

const converted: ValueRule = (ctx, types) =>
  mapped(([a], dtype) => castElement(a!, dtype, dtypeOf(types[0])))(ctx, types)

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
    Abs: { shape: sameAsFirst, values: numeric('abs', Math.abs) },
    Acos: { shape: sameAsFirst },
    Acosh: { shape: sameAsFirst },
    Asin: { shape: sameAsFirst },
    Asinh: { shape: sameAsFirst },
    Atan: { shape: sameAsFirst },
    Atanh: { shape: sameAsFirst },
    BitwiseNot: { shape: sameAsFirst },
    Ceil: { shape: sameAsFirst, values: numeric('ceil', Math.ceil) },
    Celu: { shape: sameAsFirst },
    Clip: { shape: sameAsFirst, check: single('min', 'max') },
    Cos: { shape: sameAsFirst },
    Cosh: { shape: sameAsFirst },
    Elu: { shape: sameAsFirst },
    Erf: { shape: sameAsFirst },
    Exp: { shape: sameAsFirst },
    Floor: { shape: sameAsFirst, values: numeric('floor', Math.floor) },
    Gelu: { shape: sameAsFirst, choices: { approximate: ['none', 'tanh'] } },
    HardSigmoid: { shape: sameAsFirst },
    HardSwish: { shape: sameAsFirst },
    LeakyRelu: { shape: sameAsFirst },
    Log: { shape: sameAsFirst },
    Mish: { shape: sameAsFirst },
    Neg: { shape: sameAsFirst, values: numeric('negate', a => -a!) },
    Not: { shape: sameAsFirst, values: mapped(([a]) => (typeof a === 'number' ? Number(a === 0) : null)) },
    PRelu: { shape: sameAsFirst, check: ctx => expectBroadcast(ctx, 1, 'slope', ctx.shape(0)) },
    Reciprocal: { shape: sameAsFirst },
    Relu: { shape: sameAsFirst },
    Round: { shape: sameAsFirst },
    Selu: { shape: sameAsFirst },
    Shrink: { shape: sameAsFirst },
    Sigmoid: { shape: sameAsFirst },
    Sign: { shape: sameAsFirst, values: numeric('sign', Math.sign) },
    Sin: { shape: sameAsFirst },
    Sinh: { shape: sameAsFirst },
    Softplus: { shape: sameAsFirst },
    Softsign: { shape: sameAsFirst },
    Sqrt: { shape: sameAsFirst, values: numeric('sqrt', Math.sqrt) },
    SwiGLU: { shape: sameAsFirst },
    Swish: { shape: sameAsFirst },
    Tan: { shape: sameAsFirst },
    Tanh: { shape: sameAsFirst },
    ThresholdedRelu: { shape: sameAsFirst },
    Add: { shape: broadcasting, values: add },
    Sub: { shape: broadcasting, values: subtract },
    Mul: { shape: broadcasting, values: multiply },
    Div: { shape: broadcasting, values: divide },
    Pow: { shape: pow, values: numeric('power', (a, b) => a! ** b!, 1) },
    Mod: { shape: broadcasting, values: modulo },
    Max: { shape: broadcasting, check: expectInputs, values: extreme('max', maximum, Math.max) },
    Min: { shape: broadcasting, check: expectInputs, values: extreme('min', minimum, Math.min) },
    Sum: { shape: broadcasting, check: expectInputs },
    Mean: { shape: broadcasting, check: expectInputs },
    And: { shape: broadcasting, values: logical((a, b) => a && b) },
    Or: { shape: broadcasting, values: logical((a, b) => a || b) },
    Xor: { shape: broadcasting },
    BitShift: { shape: broadcasting, choices: { direction: ['LEFT', 'RIGHT'] } },
    BitwiseAnd: { shape: broadcasting },
    BitwiseOr: { shape: broadcasting },
    BitwiseXor: { shape: broadcasting },
    Equal: { shape: compare, values: compared(sameSize) },
    Greater: { shape: compare, values: compared((a, b) => lessThan(b, a)) },
    GreaterOrEqual: { shape: compare, values: compared((a, b) => !lessThan(a, b)) },
    Less: { shape: compare, values: compared(lessThan) },
    LessOrEqual: { shape: compare, values: compared((a, b) => !lessThan(b, a)) },
    IsInf: { shape: test },
    IsNaN: { shape: test },
    Where: { shape: where, conditions: [0], values: chosen },
    Cast: { shape: cast, choices: { round_mode: ['up', 'down', 'nearest'] }, values: converted },
    CastLike: { shape: castLike, values: converted },
    BitCast: { shape: cast },
  },
  [sparkDomain]: {
    ReluGrad: { shape: sameAs(1) },
    GeluGrad: { shape: sameAs(1) },
  },
}
