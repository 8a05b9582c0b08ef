// elementwise.ts: gradients of functions of every element. Where an operand was broadcast, its gradient is summed.
import { float, floatOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** dx = dy · factor */
const times =
  (factor: (ctx: GradientContext) => string): GradientRule =>
  ctx =>
    ctx.give(0, ctx.add('Mul', [ctx.dy(), factor(ctx)]))

const add: GradientRule = ctx => {
  const dy = ctx.dy()
  ctx.node.inputs.forEach((_, i) => {
    if (ctx.wants(i)) ctx.giveSummed(i, dy)
  })
}

const sub: GradientRule = ctx => {
  const dy = ctx.dy()
  if (ctx.wants(0)) ctx.giveSummed(0, dy)
  if (ctx.wants(1)) ctx.giveSummed(1, ctx.add('Neg', [dy]))
}

const mul: GradientRule = ctx => {
  const dy = ctx.dy()
  if (ctx.wants(0)) ctx.giveSummed(0, ctx.add('Mul', [dy, ctx.input(1)]))
  if (ctx.wants(1)) ctx.giveSummed(1, ctx.add('Mul', [dy, ctx.input(0)]))
}

/** d(a/b) = da/b − db · y/b */
const div: GradientRule = ctx => {
  const part = ctx.add('Div', [ctx.dy(), ctx.input(1)])
  if (ctx.wants(0)) ctx.giveSummed(0, part)
  if (ctx.wants(1)) ctx.giveSummed(1, ctx.add('Neg', [ctx.add('Mul', [part, ctx.output()])]))
}

/** d(a^b) = b · a^(b−1) da + log(a) · y db */
const pow: GradientRule = ctx => {
  const dy = ctx.dy()
  const [a, b] = [ctx.input(0), ctx.input(1)]
  if (ctx.wants(0)) {
    const power = ctx.add('Pow', [a, ctx.add('Sub', [b, ctx.constant(1)])])
    ctx.giveSummed(0, ctx.add('Mul', [dy, ctx.add('Mul', [b, power])]))
  }
  if (ctx.wants(1)) {
    ctx.giveSummed(1, ctx.add('Mul', [dy, ctx.add('Mul', [ctx.add('Log', [a]), ctx.output()])]))
  }
}

/** 1 − y² */
const tanhSlope = (ctx: GradientContext): string =>
  ctx.add('Sub', [ctx.constant(1), ctx.add('Mul', [ctx.output(), ctx.output()])])

/** y · (1 − y) */
const sigmoidSlope = (ctx: GradientContext): string =>
  ctx.add('Mul', [ctx.output(), ctx.add('Sub', [ctx.constant(1), ctx.output()])])

/** 2/√π · e^(−x²) */
const erfSlope = (ctx: GradientContext): string => {
  const power = ctx.add('Exp', [ctx.add('Neg', [ctx.add('Mul', [ctx.input(0), ctx.input(0)])])])
  return ctx.add('Mul', [power, ctx.constant(2 / Math.sqrt(Math.PI))])
}

/** dx from dy and x by an operator of ours. */
const graded =
  (op: string, operand: (ctx: GradientContext) => string): GradientRule =>
  ctx =>
    ctx.give(0, ctx.add(op, [ctx.dy(), operand(ctx)], ctx.node.attributes, sparkDomain))

/** |x|: 0 at 0. */
const abs: GradientRule = ctx => ctx.give(0, ctx.add('Mul', [ctx.dy(), ctx.add('Sign', [ctx.input(0)])]))

/** The operand that was chosen gets the gradient; of equal ones the first. */
const chosen =
  (op: 'GreaterOrEqual' | 'LessOrEqual'): GradientRule =>
  ctx => {
    const [a, b, ...others] = ctx.node.inputs
    if (others.length > 0) throw ctx.unsupported('only two operands can be')
    const [dy, zero] = [ctx.dy(), ctx.constant(0)]
    if (b === undefined) {
      ctx.give(0, dy)
      return
    }
    const first = ctx.add(op, [a!, b])
    ctx.giveSummed(0, ctx.add('Where', [first, dy, zero]))
    ctx.giveSummed(1, ctx.add('Where', [first, zero, dy]))
  }

/** Elements between the limits, those included, get the gradient. */
const clip: GradientRule = ctx => {
  let dy = ctx.dy()
  const [x, low, high] = [ctx.input(0), ctx.input(1), ctx.input(2)]
  if (low) dy = ctx.add('Where', [ctx.add('GreaterOrEqual', [x, low]), dy, ctx.constant(0)])
  if (high) dy = ctx.add('Where', [ctx.add('LessOrEqual', [x, high]), dy, ctx.constant(0)])
  ctx.give(0, dy)
}

/** Slope alpha below 0. */
const leakyRelu: GradientRule = ctx => {
  const below = ctx.add('Mul', [ctx.dy(), ctx.constant(floatOf(ctx.node, 'alpha'))])
  ctx.give(0, ctx.add('Where', [ctx.add('GreaterOrEqual', [ctx.input(0), ctx.constant(0)]), ctx.dy(), below]))
}

/** x above alpha, 0 below. */
const thresholdedRelu: GradientRule = ctx => {
  const above = ctx.add('Greater', [ctx.input(0), ctx.constant(floatOf(ctx.node, 'alpha'))])
  ctx.give(0, ctx.add('Where', [above, ctx.dy(), ctx.constant(0)]))
}

/** x / (1 + |x|): (1 − |y|)² */
const softsignSlope = (ctx: GradientContext): string => {
  const rest = ctx.add('Sub', [ctx.constant(1), ctx.add('Abs', [ctx.output()])])
  return ctx.add('Mul', [rest, rest])
}

/** x, slope below 0 */
const prelu: GradientRule = ctx => {
  const [dy, x, zero] = [ctx.dy(), ctx.input(0), ctx.constant(0)]
  const below = ctx.add('Less', [x, zero])
  if (ctx.wants(0)) ctx.give(0, ctx.add('Where', [below, ctx.add('Mul', [dy, ctx.input(1)]), dy]))
  if (ctx.wants(1)) ctx.giveSummed(1, ctx.add('Where', [below, ctx.add('Mul', [dy, x]), zero]))
}

/** x · sigmoid(alpha · x): s + alpha · y · (1 − s), s being the sigmoid. */
const swish: GradientRule = ctx => {
  const alpha = floatOf(ctx.node, 'alpha')
  const scaled = alpha === 1 ? ctx.input(0) : ctx.add('Mul', [ctx.input(0), ctx.constant(alpha)])
  const s = ctx.add('Sigmoid', [scaled])
  const rest = ctx.add('Mul', [ctx.output(), ctx.add('Sub', [ctx.constant(1), s])])
  const slope = ctx.add('Add', [s, alpha === 1 ? rest : ctx.add('Mul', [rest, ctx.constant(alpha)])])
  ctx.give(0, ctx.add('Mul', [ctx.dy(), slope]))
}

/** max(0, min(1, alpha · x + beta)) */
const hardSigmoidSlope = (ctx: GradientContext, alpha: number, beta: number): string => {
  const line = ctx.add('Add', [ctx.add('Mul', [ctx.input(0), ctx.constant(alpha)]), ctx.constant(beta)])
  const inside = ctx.add('And', [
    ctx.add('Greater', [line, ctx.constant(0)]),
    ctx.add('Less', [line, ctx.constant(1)]),
  ])
  return ctx.add('Where', [inside, ctx.constant(alpha), ctx.constant(0)])
}

/** x · hardSigmoid(x) */
const hardSwish: GradientRule = ctx => {
  const gate = ctx.add('HardSigmoid', [ctx.input(0)], { alpha: float(1 / 6), beta: float(0.5) })
  const slope = ctx.add('Add', [gate, ctx.add('Mul', [ctx.input(0), hardSigmoidSlope(ctx, 1 / 6, 0.5)])])
  ctx.give(0, ctx.add('Mul', [ctx.dy(), slope]))
}

/** alpha · (e^x − 1) below 0: e^x · alpha = y + alpha there */
const elu: GradientRule = ctx => {
  const below = ctx.add('Add', [ctx.output(), ctx.constant(floatOf(ctx.node, 'alpha'))])
  const positive = ctx.add('GreaterOrEqual', [ctx.input(0), ctx.constant(0)])
  ctx.give(0, ctx.add('Mul', [ctx.dy(), ctx.add('Where', [positive, ctx.constant(1), below])]))
}

/** condition, a, b */
const where: GradientRule = ctx => {
  const [dy, zero] = [ctx.dy(), ctx.constant(0)]
  const chosen = [
    [1, dy, zero],
    [2, zero, dy],
  ] as const
  for (const [i, yes, no] of chosen) {
    if (ctx.wants(i)) ctx.giveSummed(i, ctx.add('Where', [ctx.input(0), yes, no]))
  }
}

/** Only floats have gradients. */
const cast: GradientRule = ctx => ctx.give(0, ctx.add('CastLike', [ctx.dy(), ctx.input(0)]))

/** Gradients of elementwise operators. */
export const elementwise: GradientTable = {
  '': {
    Add: add,
    Sum: add,
    Sub: sub,
    Mul: mul,
    Div: div,
    Pow: pow,
    Abs: abs,
    Max: chosen('GreaterOrEqual'),
    Min: chosen('LessOrEqual'),
    Clip: clip,
    Neg: ctx => ctx.give(0, ctx.add('Neg', [ctx.dy()])),
    Exp: times(ctx => ctx.output()),
    Log: ctx => ctx.give(0, ctx.add('Div', [ctx.dy(), ctx.input(0)])),
    Sqrt: ctx => ctx.give(0, ctx.add('Div', [ctx.dy(), ctx.add('Mul', [ctx.constant(2), ctx.output()])])),
    Reciprocal: times(ctx => ctx.add('Neg', [ctx.add('Mul', [ctx.output(), ctx.output()])])),
    Tanh: times(tanhSlope),
    Sigmoid: times(sigmoidSlope),
    Erf: times(erfSlope),
    Sin: times(ctx => ctx.add('Cos', [ctx.input(0)])),
    Cos: times(ctx => ctx.add('Neg', [ctx.add('Sin', [ctx.input(0)])])),
    Softplus: times(ctx => ctx.add('Sigmoid', [ctx.input(0)])),
    HardSigmoid: times(ctx => hardSigmoidSlope(ctx, floatOf(ctx.node, 'alpha'), floatOf(ctx.node, 'beta'))),
    HardSwish: hardSwish,
    Softsign: times(softsignSlope),
    LeakyRelu: leakyRelu,
    ThresholdedRelu: thresholdedRelu,
    PRelu: prelu,
    Elu: elu,
    Swish: swish,
    Relu: graded('ReluGrad', ctx => ctx.output()),
    Gelu: graded('GeluGrad', ctx => ctx.input(0)),
    Where: where,
    Cast: cast,
    And: 'none',
    BitwiseAnd: 'none',
    BitwiseNot: 'none',
    BitwiseOr: 'none',
    BitwiseXor: 'none',
    Ceil: 'none',
    Equal: 'none',
    Floor: 'none',
    Greater: 'none',
    GreaterOrEqual: 'none',
    IsInf: 'none',
    IsNaN: 'none',
    Less: 'none',
    LessOrEqual: 'none',
    Not: 'none',
    Or: 'none',
    Round: 'none',
    Sign: 'none',
    Xor: 'none',
  },
}
