// rollout.js: comma's learned simulator, one drive after the other around onnxruntime-node, as tinyphysics.py runs it: in f64 but
// for the model, with a PID controller.
import { uniformNoise } from '#lib/simulation/noise.js'

/** @import { InferenceSession } from 'onnxruntime-node' */
/** @import { TinyphysicsDrive } from 'dgx-spark' */

/** Gains of the PID controller of the challenge. */
export const gains = { proportional: 0.195, integral: 0.1, derivative: -0.053 }

const [context, controlStart, costEnd] = [20, 100, 500]
const bins = Array.from({ length: 1024 }, (_, i) => -5 + (10 * i) / 1023)
/** @param {number} value @param {number} low @param {number} high */
const clip = (value, low, high) => Math.min(Math.max(value, low), high)

/** numpy.digitize(x, bins, right=True) of numbers that are f32. @param {number} x */
function digitize(x) {
  const inside = Math.fround(clip(x, -5, 5))
  let index = Math.max(0, Math.floor((inside + 5) * 102.3) - 1)
  while (Math.fround(bins[index] ?? Number.POSITIVE_INFINITY) < inside) index++
  return index
}

/** @param {typeof import('onnxruntime-node')} runtime @param {string} file */
export const openSession = (runtime, file) =>
  runtime.InferenceSession.create(file, { intraOpNumThreads: 1, interOpNumThreads: 1 })

/**
 * A drive: lateral accelerations and steering of all samples, and the cost of the challenge.
 * @param {typeof import('onnxruntime-node')} runtime @param {InferenceSession} session
 * @param {TinyphysicsDrive} drive @param {'sampled' | 'expected'} prediction
 */
export async function rollout(runtime, session, drive, prediction) {
  const { targetLateralAcceleration: target, rollLateralAcceleration: roll, vEgo, aEgo, steer } = drive
  const shares = uniformNoise(drive.seed ?? 0, 0, target.length)
  const [steers, accelerations] = [steer.slice(0, context), target.slice(0, context)]
  let [sum, before] = [0, 0]
  for (let step = context; step < target.length; step++) {
    const current = accelerations.at(-1) ?? 0
    const wanted = target[step] ?? 0
    const error = wanted - current
    sum += error
    const { proportional, integral, derivative } = gains
    const action = proportional * error + integral * sum + derivative * (error - before)
    before = error
    steers.push(clip(step < controlStart ? (steer[step] ?? 0) : action, -2, 2))
    const rows = Array.from({ length: context }, (_, i) => step - context + 1 + i)
    const states = rows.flatMap(i => [steers[i], roll[i], vEgo[i], aEgo[i]].map(value => value ?? 0))
    const tokens = BigInt64Array.from(accelerations.slice(-context), value => BigInt(digitize(value)))
    const results = await session.run({
      states: new runtime.Tensor('float32', Float32Array.from(states), [1, context, 4]),
      tokens: new runtime.Tensor('int64', tokens, [1, context]),
    })
    const logits = /** @type {Float32Array} */ (results.output?.data ?? new Float32Array())
    const predicted = predict(
      logits.subarray((context - 1) * bins.length),
      prediction,
      shares[step - context] ?? 0,
    )
    accelerations.push(step < controlStart ? wanted : clip(predicted, current - 0.5, current + 0.5))
  }
  return { accelerations, steers, cost: costOf(target, accelerations) }
}

/** @param {Float32Array} logits @param {'sampled' | 'expected'} prediction @param {number} share */
function predict(logits, prediction, share) {
  const highest = logits.reduce((a, b) => Math.max(a, b))
  const weights = Array.from(logits, value => Math.exp((value - highest) / 0.8))
  const all = weights.reduce((a, b) => a + b)
  if (prediction === 'expected')
    return weights.reduce((mean, weight, i) => mean + (weight / all) * (bins[i] ?? 0), 0)
  let [left, token] = [share * all, 0]
  for (; token < bins.length - 1 && left >= (weights[token] ?? 0); token++) left -= weights[token] ?? 0
  return bins[token] ?? 0
}

/** compute_cost of tinyphysics.py. @param {readonly number[]} target @param {readonly number[]} accelerations */
function costOf(target, accelerations) {
  const counted = accelerations.slice(controlStart, costEnd)
  /** @param {number[]} values */
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length
  const lateral = 100 * mean(counted.map((value, i) => ((target[controlStart + i] ?? 0) - value) ** 2))
  const jerk = 100 * mean(counted.slice(1).map((value, i) => ((value - (counted[i] ?? 0)) / 0.1) ** 2))
  return 50 * lateral + jerk
}
