// functions.ts: the functions of elementwise operations, in double.
import { roundHalfEven } from '../../core/rounding.js'
import type { BinaryFn, UnaryFn } from '../strided-args.js'
import { activations, erf, tanhCubic, tanhFactor } from './activations.js'

const { relu, sigmoid, gelu, gelu_tanh, silu } = activations

function geluTanhSlope(x: number): number {
  const inner = Math.tanh(tanhFactor * (x + tanhCubic * x ** 3))
  return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * tanhFactor * (1 + 3 * tanhCubic * x * x)
}

/** log(1 + e^x) without overflow. */
const softplus = (x: number): number => Math.log1p(Math.exp(-Math.abs(x))) + Math.max(x, 0)
const clampToUnit = (x: number): number => (x < 0 ? 0 : x > 1 ? 1 : x)

/** The remainder of a division that has the sign of the divisor. */
function floorMod(a: number, b: number): number {
  const rest = a % b
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest
}

type FloatUnary = Readonly<Partial<Record<UnaryFn, (x: number, alpha: number, beta: number) => number>>>

/** Functions of one float with parameters α and β. */
export const unaryFunctions: FloatUnary = {
  abs: Math.abs,
  neg: x => -x,
  sign: Math.sign,
  relu,
  not: x => Number(x === 0),
  reciprocal: x => 1 / x,
  sqrt: Math.sqrt,
  exp: Math.exp,
  log: Math.log,
  erf,
  floor: Math.floor,
  ceil: Math.ceil,
  round: roundHalfEven,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  asin: Math.asin,
  acos: Math.acos,
  atan: Math.atan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  asinh: Math.asinh,
  acosh: Math.acosh,
  atanh: Math.atanh,
  sigmoid,
  gelu,
  gelu_tanh,
  silu,
  swish: (x, alpha) => x * sigmoid(alpha * x),
  elu: (x, alpha) => (x < 0 ? alpha * Math.expm1(x) : x),
  celu: (x, alpha) => (x < 0 ? alpha * Math.expm1(x / alpha) : x),
  selu: (x, alpha, beta) => beta * (x < 0 ? alpha * Math.expm1(x) : x),
  leaky_relu: (x, alpha) => (x < 0 ? alpha * x : x),
  thresholded_relu: (x, alpha) => (x > alpha || Number.isNaN(x) ? x : 0),
  hard_sigmoid: (x, alpha, beta) => clampToUnit(alpha * x + beta),
  hard_swish: x => x * clampToUnit(x / 6 + 0.5),
  softplus,
  softsign: x => x / (1 + Math.abs(x)),
  mish: x => x * Math.tanh(softplus(x)),
  shrink: (x, alpha, beta) => (x < -alpha ? x + beta : x > alpha ? x - beta : 0),
  is_nan: x => Number(Number.isNaN(x)),
  is_inf: (x, alpha, beta) =>
    Number((x === Number.NEGATIVE_INFINITY && alpha !== 0) || (x === Number.POSITIVE_INFINITY && beta !== 0)),
}

type FloatBinary = Readonly<Partial<Record<BinaryFn, (a: number, b: number) => number>>>

/** Functions of two floats. */
export const binaryFunctions: FloatBinary = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  pow: (a, b) => (a === 1 ? 1 : a ** b),
  max: Math.max,
  min: Math.min,
  mod: floorMod,
  fmod: (a, b) => a % b,
  prelu: (a, b) => (a < 0 ? a * b : a),
  less: (a, b) => Number(a < b),
  less_or_equal: (a, b) => Number(a <= b),
  equal: (a, b) => Number(a === b),
  relu_grad: (a, b) => (b > 0 ? a : 0),
  gelu_grad: (a, b) =>
    a * (0.5 * (1 + erf(b * Math.SQRT1_2)) + (b * Math.exp(-0.5 * b * b)) / Math.sqrt(2 * Math.PI)),
  gelu_tanh_grad: (a, b) => a * geluTanhSlope(b),
  silu_grad: (a, b) => a * sigmoid(b) * (1 + b * (1 - sigmoid(b))),
}
