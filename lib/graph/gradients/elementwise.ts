// elementwise.ts: gradients of functions of every element. Where an operand was broadcast, its gradient is summed.
import { float, floatOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** dx = dy · factor */
const times =
  (factor: (at: GradientContext) => string): GradientRule =>
  at =>
    at.give(0, at.add('Mul', [at.dy(), factor(at)]))

const add: GradientRule = at => {
  const dy = at.dy()
  at.node.inputs.forEach((_, i) => {
    if (at.wants(i)) at.giveSummed(i, dy)
  })
}

const sub: GradientRule = at => {
  const dy = at.dy()
  if (at.wants(0)) at.giveSummed(0, dy)
  if (at.wants(1)) at.giveSummed(1, at.add('Neg', [dy]))
}

const mul: GradientRule = at => {
  const dy = at.dy()
  if (at.wants(0)) at.giveSummed(0, at.add('Mul', [dy, at.input(1)]))
  if (at.wants(1)) at.giveSummed(1, at.add('Mul', [dy, at.input(0)]))
}

/** d(a/b) = da/b − db · y/b */
const div: GradientRule = at => {
  const part = at.add('Div', [at.dy(), at.input(1)])
  if (at.wants(0)) at.giveSummed(0, part)
  if (at.wants(1)) at.giveSummed(1, at.add('Neg', [at.add('Mul', [part, at.output()])]))
}

/** d(a^b) = b · a^(b−1) da + log(a) · y db */
const pow: GradientRule = at => {
  const dy = at.dy()
  const [a, b] = [at.input(0), at.input(1)]
  if (at.wants(0)) {
    const power = at.add('Pow', [a, at.add('Sub', [b, at.constant(1)])])
    at.giveSummed(0, at.add('Mul', [dy, at.add('Mul', [b, power])]))
  }
  if (at.wants(1)) {
    at.giveSummed(1, at.add('Mul', [dy, at.add('Mul', [at.add('Log', [a]), at.output()])]))
  }
}

/** 1 − y² */
const tanhSlope = (at: GradientContext): string =>
  at.add('Sub', [at.constant(1), at.add('Mul', [at.output(), at.output()])])

/** y · (1 − y) */
const sigmoidSlope = (at: GradientContext): string =>
  at.add('Mul', [at.output(), at.add('Sub', [at.constant(1), at.output()])])

/** 2/√π · e^(−x²) */
const erfSlope = (at: GradientContext): string => {
  const power = at.add('Exp', [at.add('Neg', [at.add('Mul', [at.input(0), at.input(0)])])])
  return at.add('Mul', [power, at.constant(2 / Math.sqrt(Math.PI))])
}

/** dx from dy and x by an operator of ours. */
const graded =
  (op: string, operand: (at: GradientContext) => string): GradientRule =>
  at =>
    at.give(0, at.add(op, [at.dy(), operand(at)], at.node.attributes, sparkDomain))

/** |x|: 0 at 0. */
const abs: GradientRule = at => at.give(0, at.add('Mul', [at.dy(), at.add('Sign', [at.input(0)])]))

/** The operand that was chosen gets the gradient; of equal ones the first. */
const chosen =
  (op: 'GreaterOrEqual' | 'LessOrEqual'): GradientRule =>
  at => {
    const [a, b, ...others] = at.node.inputs
    if (others.length > 0) throw at.unsupported('only two operands can be')
    const [dy, zero] = [at.dy(), at.constant(0)]
    if (b === undefined) {
      at.give(0, dy)
      return
    }
    const first = at.add(op, [a!, b])
    at.giveSummed(0, at.add('Where', [first, dy, zero]))
    at.giveSummed(1, at.add('Where', [first, zero, dy]))
  }

/** Elements between the limits, those included, get the gradient. */
const clip: GradientRule = at => {
  let dy = at.dy()
  const [x, low, high] = [at.input(0), at.input(1), at.input(2)]
  if (low) dy = at.add('Where', [at.add('GreaterOrEqual', [x, low]), dy, at.constant(0)])
  if (high) dy = at.add('Where', [at.add('LessOrEqual', [x, high]), dy, at.constant(0)])
  at.give(0, dy)
}

/** Slope alpha below 0. */
const leakyRelu: GradientRule = at => {
  const below = at.add('Mul', [at.dy(), at.constant(floatOf(at.node, 'alpha', 0.01))])
  at.give(0, at.add('Where', [at.add('GreaterOrEqual', [at.input(0), at.constant(0)]), at.dy(), below]))
}

/** x above alpha, 0 below. */
const thresholdedRelu: GradientRule = at => {
  const above = at.add('Greater', [at.input(0), at.constant(floatOf(at.node, 'alpha', 1))])
  at.give(0, at.add('Where', [above, at.dy(), at.constant(0)]))
}

/** x / (1 + |x|): (1 − |y|)² */
const softsignSlope = (at: GradientContext): string => {
  const rest = at.add('Sub', [at.constant(1), at.add('Abs', [at.output()])])
  return at.add('Mul', [rest, rest])
}

/** x, slope below 0 */
const prelu: GradientRule = at => {
  const [dy, x, zero] = [at.dy(), at.input(0), at.constant(0)]
  const below = at.add('Less', [x, zero])
  if (at.wants(0)) at.give(0, at.add('Where', [below, at.add('Mul', [dy, at.input(1)]), dy]))
  if (at.wants(1)) at.giveSummed(1, at.add('Where', [below, at.add('Mul', [dy, x]), zero]))
}

/** x · sigmoid(alpha · x): s + alpha · y · (1 − s), s being the sigmoid. */
const swish: GradientRule = at => {
  const alpha = floatOf(at.node, 'alpha', 1)
  const scaled = alpha === 1 ? at.input(0) : at.add('Mul', [at.input(0), at.constant(alpha)])
  const s = at.add('Sigmoid', [scaled])
  const rest = at.add('Mul', [at.output(), at.add('Sub', [at.constant(1), s])])
  const slope = at.add('Add', [s, alpha === 1 ? rest : at.add('Mul', [rest, at.constant(alpha)])])
  at.give(0, at.add('Mul', [at.dy(), slope]))
}

/** max(0, min(1, alpha · x + beta)) */
const hardSigmoidSlope = (at: GradientContext, alpha: number, beta: number): string => {
  const line = at.add('Add', [at.add('Mul', [at.input(0), at.constant(alpha)]), at.constant(beta)])
  const inside = at.add('And', [
    at.add('Greater', [line, at.constant(0)]),
    at.add('Less', [line, at.constant(1)]),
  ])
  return at.add('Where', [inside, at.constant(alpha), at.constant(0)])
}

/** x · hardSigmoid(x) */
const hardSwish: GradientRule = at => {
  const gate = at.add('HardSigmoid', [at.input(0)], { alpha: float(1 / 6), beta: float(0.5) })
  const slope = at.add('Add', [gate, at.add('Mul', [at.input(0), hardSigmoidSlope(at, 1 / 6, 0.5)])])
  at.give(0, at.add('Mul', [at.dy(), slope]))
}

/** alpha · (e^x − 1) below 0: e^x · alpha = y + alpha there */
const elu: GradientRule = at => {
  const below = at.add('Add', [at.output(), at.constant(floatOf(at.node, 'alpha', 1))])
  const positive = at.add('GreaterOrEqual', [at.input(0), at.constant(0)])
  at.give(0, at.add('Mul', [at.dy(), at.add('Where', [positive, at.constant(1), below])]))
}

/** condition, a, b */
const where: GradientRule = at => {
  const [dy, zero] = [at.dy(), at.constant(0)]
  const chosen = [
    [1, dy, zero],
    [2, zero, dy],
  ] as const
  for (const [i, yes, no] of chosen) {
    if (at.wants(i)) at.giveSummed(i, at.add('Where', [at.input(0), yes, no]))
  }
}

/** Only floats have gradients. */
const cast: GradientRule = at => at.give(0, at.add('CastLike', [at.dy(), at.input(0)]))

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
    Neg: at => at.give(0, at.add('Neg', [at.dy()])),
    Exp: times(at => at.output()),
    Log: at => at.give(0, at.add('Div', [at.dy(), at.input(0)])),
    Sqrt: at => at.give(0, at.add('Div', [at.dy(), at.add('Mul', [at.constant(2), at.output()])])),
    Reciprocal: times(at => at.add('Neg', [at.add('Mul', [at.output(), at.output()])])),
    Tanh: times(tanhSlope),
    Sigmoid: times(sigmoidSlope),
    Erf: times(erfSlope),
    Sin: times(at => at.add('Cos', [at.input(0)])),
    Cos: times(at => at.add('Neg', [at.add('Sin', [at.input(0)])])),
    Softplus: times(at => at.add('Sigmoid', [at.input(0)])),
    HardSigmoid: times(at =>
      hardSigmoidSlope(at, floatOf(at.node, 'alpha', 0.2), floatOf(at.node, 'beta', 0.5)),
    ),
    HardSwish: hardSwish,
    Softsign: times(softsignSlope),
    LeakyRelu: leakyRelu,
    ThresholdedRelu: thresholdedRelu,
    PRelu: prelu,
    Elu: elu,
    Swish: swish,
    Relu: graded('ReluGrad', at => at.output()),
    Gelu: graded('GeluGrad', at => at.input(0)),
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
