// elementwise.ts: gradients of functions of every element. Where an operand was broadcast, its gradient is summed.
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** Gives input `i` the gradient, summed over the axes along which the input was broadcast. */
function giveSummed(at: GradientContext, i: number, gradient: string): void {
  at.give(i, at.add('SumLike', [gradient, at.input(i)], {}, sparkDomain))
}

/** dx = dy · factor */
const times =
  (factor: (at: GradientContext) => string): GradientRule =>
  at =>
    at.give(0, at.add('Mul', [at.dy(), factor(at)]))

const add: GradientRule = at => {
  const dy = at.dy()
  at.node.inputs.forEach((_, i) => {
    if (at.wants(i)) giveSummed(at, i, dy)
  })
}

const sub: GradientRule = at => {
  const dy = at.dy()
  if (at.wants(0)) giveSummed(at, 0, dy)
  if (at.wants(1)) giveSummed(at, 1, at.add('Neg', [dy]))
}

const mul: GradientRule = at => {
  const dy = at.dy()
  if (at.wants(0)) giveSummed(at, 0, at.add('Mul', [dy, at.input(1)]))
  if (at.wants(1)) giveSummed(at, 1, at.add('Mul', [dy, at.input(0)]))
}

/** d(a/b) = da/b − db · y/b */
const div: GradientRule = at => {
  const part = at.add('Div', [at.dy(), at.input(1)])
  if (at.wants(0)) giveSummed(at, 0, part)
  if (at.wants(1)) giveSummed(at, 1, at.add('Neg', [at.add('Mul', [part, at.output()])]))
}

/** d(a^b) = b · a^(b−1) da + log(a) · y db */
const pow: GradientRule = at => {
  const dy = at.dy()
  const [a, b] = [at.input(0), at.input(1)]
  if (at.wants(0)) {
    const power = at.add('Pow', [a, at.add('Sub', [b, at.constant(1)])])
    giveSummed(at, 0, at.add('Mul', [dy, at.add('Mul', [b, power])]))
  }
  if (at.wants(1)) {
    giveSummed(at, 1, at.add('Mul', [dy, at.add('Mul', [at.add('Log', [a]), at.output()])]))
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

/** Rules of elementwise operators. */
export const elementwise: GradientTable = {
  '': {
    Add: add,
    Sum: add,
    Sub: sub,
    Mul: mul,
    Div: div,
    Pow: pow,
    Neg: at => at.give(0, at.add('Neg', [at.dy()])),
    Exp: times(at => at.output()),
    Log: at => at.give(0, at.add('Div', [at.dy(), at.input(0)])),
    Sqrt: at => at.give(0, at.add('Div', [at.dy(), at.add('Mul', [at.constant(2), at.output()])])),
    Reciprocal: times(at => at.add('Neg', [at.add('Mul', [at.output(), at.output()])])),
    Tanh: times(tanhSlope),
    Sigmoid: times(sigmoidSlope),
    Erf: times(erfSlope),
    Relu: graded('ReluGrad', at => at.output()),
    Gelu: graded('GeluGrad', at => at.input(0)),
  },
}
