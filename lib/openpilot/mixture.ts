// mixture.ts: what raw numbers of a driving model mean: means and standard deviations, hypotheses, probabilities. The formulas are
// those of openpilot's selfdrive/modeld/parse_model_outputs.py.
import { SparkError } from '../core/errors.js'

/** Values and how sure the model is of each. */
export interface Estimate {
  /** The values. */
  readonly mean: Float32Array
  /**
   * Their standard deviations, in the same unit. It is the scale that the model was trained with; openpilot does not say of
   * which distribution.
   */
  readonly std: Float32Array
}

/** One value and how sure the model is of it. */
export interface ScalarEstimate {
  /** The value. */
  readonly mean: number
  /** Its standard deviation, in the same unit. */
  readonly std: number
}

/** One of several predictions. */
export interface Hypothesis extends Estimate {
  /** Its probability. */
  readonly weight: number
}

/** exp(11) is the largest number of that kind that f16 holds. */
const maxExponent = 11

/** 1 / (1 + e^-x) */
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))

/** e^x, at most e^11. */
export const clippedExp = (x: number): number => Math.exp(Math.min(x, maxExponent))

/** e^xᵢ / Σ e^xⱼ */
export function softmax(values: ArrayLike<number>): Float32Array {
  const max = Math.max(...Array.from(values))
  const powers = Array.from(values, value => Math.exp(value - max))
  const sum = powers.reduce((a, b) => a + b, 0)
  return Float32Array.from(powers, power => power / sum)
}

/** An error for an output whose size fits no model that is known. */
export function widthError(name: string, actual: number, expected: string): SparkError {
  const message = `the output '${name}' has ${actual} numbers; ${expected} are understood`
  return new SparkError('ERR_SHAPE', message)
}

/** Means, and behind them the logarithms of as many standard deviations. */
function estimate(raw: Float32Array, count: number): Estimate {
  return {
    mean: raw.slice(0, count),
    std: raw.slice(count, 2 * count).map(clippedExp),
  }
}

/**
 * `count` values with their standard deviations: [means, logarithms].
 * @throws SparkError ERR_SHAPE
 */
export function readEstimate(name: string, raw: Float32Array, count: number): Estimate {
  if (raw.length !== 2 * count) throw widthError(name, raw.length, `${2 * count}`)
  return estimate(raw, count)
}

/**
 * The hypotheses of each of `outputs` predictions of `count` values, the most probable first. In a row there are either the
 * values of all predictions with one hypothesis, [outputs · count means, as many logarithms], or hypotheses one behind another:
 * [count means, count logarithms, a weight's logit for each prediction], shared by the predictions.
 * @throws SparkError ERR_SHAPE
 */
export function readHypotheses(
  name: string,
  raw: Float32Array,
  count: number,
  outputs: number,
): readonly (readonly Hypothesis[])[] {
  const single = 2 * count * outputs
  const each = 2 * count + outputs
  if (raw.length === single) {
    const { mean, std } = estimate(raw, count * outputs)
    return Array.from({ length: outputs }, (_, i) => {
      const [start, end] = [i * count, (i + 1) * count]
      return [{ mean: mean.slice(start, end), std: std.slice(start, end), weight: 1 }]
    })
  }
  if (raw.length === 0 || raw.length % each !== 0)
    throw widthError(name, raw.length, `${single}, or a multiple of ${each},`)
  const parts = Array.from({ length: raw.length / each }, (_, i) => raw.subarray(i * each, (i + 1) * each))
  const estimates = parts.map(part => estimate(part, count))
  return Array.from({ length: outputs }, (_, i) => {
    const weights = softmax(parts.map(part => part[2 * count + i]!))
    return estimates.map((each, k) => ({ ...each, weight: weights[k]! })).sort((a, b) => b.weight - a.weight)
  })
}

/** Every `step`th number from `start` on. */
export const strided = (values: Float32Array, start: number, step: number): Float32Array =>
  Float32Array.from(
    { length: Math.ceil((values.length - start) / step) },
    (_, i) => values[start + i * step]!,
  )

/** A column of a matrix of `width` columns. */
export const column = ({ mean, std }: Estimate, index: number, width: number): Estimate => ({
  mean: strided(mean, index, width),
  std: strided(std, index, width),
})

/** Elements [start, end) of an estimate. */
export const part = ({ mean, std }: Estimate, start: number, end?: number): Estimate => ({
  mean: mean.slice(start, end),
  std: std.slice(start, end),
})

/** The only element of an estimate. */
export const scalar = ({ mean, std }: Estimate): ScalarEstimate => ({ mean: mean[0]!, std: std[0]! })
