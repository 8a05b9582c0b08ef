// functions.ts: the functions of elementwise operations, in double.
import type { BinaryFn, UnaryFn } from '../tensor-kernel-args.js'

const tanhFactor = Math.sqrt(2 / Math.PI)
const tanhCubic = 0.044715

/** erf(x) to about 1e-15: a power series near 0, a continued fraction of erfc farther out. */
export function erf(x: number): number {
  const size = Math.abs(x)
  if (!(size < 6)) return Number.isNaN(x) ? x : Math.sign(x)
  return Math.sign(x) * (size < 2.5 ? erfSeries(size) : 1 - erfcFraction(size))
}

/** 2/√π · e^(−x²) · Σ 2^n x^(2n+1) / (1 · 3 ⋯ (2n+1)) */
function erfSeries(x: number): number {
  let term = x
  let sum = x
  for (let n = 1; term > sum * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1)
    sum += term
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum
}

/** e^(−x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + …))) */
function erfcFraction(x: number): number {
  let tail = x
  for (let n = 60; n > 0; n--) tail = x + n / 2 / tail
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / tail
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))
const geluInner = (x: number): number => Math.tanh(tanhFactor * (x + tanhCubic * x ** 3))

function geluTanhSlope(x: number): number {
  const inner = geluInner(x)
  return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * tanhFactor * (1 + 3 * tanhCubic * x * x)
}

/** Functions of one number. */
export const unaryFunctions: Readonly<Record<UnaryFn, (x: number) => number>> = {
  abs: Math.abs,
  neg: x => -x,
  reciprocal: x => 1 / x,
  sqrt: Math.sqrt,
  exp: Math.exp,
  log: Math.log,
  erf,
  tanh: Math.tanh,
  sigmoid,
  relu: x => (x < 0 ? 0 : x),
  gelu: x => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: x => 0.5 * x * (1 + geluInner(x)),
  silu: x => x * sigmoid(x),
}

/** Functions of two numbers. */
export const binaryFunctions: Readonly<Record<BinaryFn, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  pow: (a, b) => a ** b,
  max: Math.max,
  min: Math.min,
  relu_grad: (a, b) => (b > 0 ? a : 0),
  gelu_grad: (a, b) =>
    a * (0.5 * (1 + erf(b * Math.SQRT1_2)) + (b * Math.exp(-0.5 * b * b)) / Math.sqrt(2 * Math.PI)),
  gelu_tanh_grad: (a, b) => a * geluTanhSlope(b),
  silu_grad: (a, b) => a * sigmoid(b) * (1 + b * (1 - sigmoid(b))),
}
