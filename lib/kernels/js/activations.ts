// activations.ts: the activations of a linear layer, in double.
import type { Activation } from '../kernels.js'

/** The approximation of Gelu is tanh(tanhFactor · (x + tanhCubic · x³)). */
export const [tanhFactor, tanhCubic] = [Math.sqrt(2 / Math.PI), 0.044715]

/**
 * The error function: its Taylor series (Abramowitz and Stegun 7.1.6) up to 3, the continued fraction of its complement
 * (7.1.14) beyond.
 */
export function erf(x: number): number {
  const z = Math.abs(x)
  if (!(z < 6)) return Number.isNaN(x) ? x : Math.sign(x)
  const gauss = Math.exp(-z * z)
  if (z < 3) {
    let term = (2 / Math.sqrt(Math.PI)) * gauss * x
    let sum = term
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * z * z) / (2 * n + 1)
      sum += term
    }
    return sum
  }
  let fraction = z
  for (let n = 40; n > 0; n--) fraction = z + n / 2 / fraction
  return Math.sign(x) * (1 - gauss / (fraction * Math.sqrt(Math.PI)))
}

/** Between 0 and 1. */
const clamped = (x: number): number => (x < 0 ? 0 : x > 1 ? 1 : x)

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))

/** Each activation of Activation in native/backend/linear_args.h by its name. */
export const activations: Readonly<Record<Activation, (x: number) => number>> = {
  none: x => x,
  relu: x => (x < 0 ? 0 : x),
  gelu: x => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: x => 0.5 * x * (1 + Math.tanh(tanhFactor * (x + tanhCubic * x ** 3))),
  silu: x => x * sigmoid(x),
  sigmoid,
  tanh: Math.tanh,
  relu6: x => (x < 0 ? 0 : x > 6 ? 6 : x),
  hard_swish: x => x * clamped(x / 6 + 0.5),
}
