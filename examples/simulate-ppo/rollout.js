// rollout.js: what a policy does in the environment, and how much better its actions were than expected.
import { Tensor } from 'dgx-spark'
import { logProbability } from './loss.js'
import { actionsOf } from './network.js'

/** @import { Environment, Model } from 'dgx-spark' */

/** @typedef {{ steps: number, discount: number, smoothing: number, seed: number }} RolloutOptions */

/**
 * @typedef {object} Rollout
 * @property {Record<string, import('dgx-spark').BatchTensor>} samples fields of the loss
 * @property {Tensor<'f32'>} seen what agents see at the end
 * @property {number} reward mean of a step
 */

/**
 * Drives all scenarios of the environment some steps, with actions drawn from the policy.
 * @param {Environment<any>} env @param {Model} model @param {Tensor<'f32'>} start @param {RolloutOptions} options
 * @returns {Promise<Rollout>}
 */
export async function drive(env, model, start, { steps, discount, smoothing, seed }) {
  const { count } = env
  const columns = env.observations.length
  const rows = steps * count
  const noise = Tensor.random([rows], { seed, distribution: 'normal' }).data
  const observation = new Float32Array(rows * columns)
  const [sampled, logProbabilities, rewards, values, nextValues, ends] = Array.from(
    { length: 6 },
    () => new Float32Array(rows),
  )
  let seen = start
  let now = await look(model, seen)
  for (let step = 0; step < steps; step++) {
    const first = step * count
    const { mean, value, logDeviation } = now
    const drawn = noise.subarray(first, first + count)
    const outputs = mean.map((each, i) => each + Math.exp(logDeviation) * drawn[i])
    observation.set(seen.data, first * columns)
    sampled.set(outputs, first)
    logProbabilities.set(
      drawn.map(each => logProbability(each, logDeviation)),
      first,
    )
    values.set(value, first)
    const result = await env.step(actionsOf(outputs))
    rewards.set(result.rewards.data, first)
    ends.set(result.reset.data, first)
    seen = result.observations
    now = await look(model, seen)
    nextValues.set(await valuesAfter(model, result, now.value), first)
  }
  const advantages = generalizedAdvantages({ rewards, values, nextValues, ends }, count, discount, smoothing)
  return {
    samples: {
      observation: { shape: [rows, columns], data: observation },
      sampled: column(sampled),
      logProbability: column(logProbabilities),
      advantage: column(normalized(advantages)),
      return: column(advantages.map((advantage, i) => advantage + values[i])),
    },
    seen,
    reward: mean(rewards),
  }
}

/** What the networks say. @param {Model} model @param {Tensor<'f32'>} observation */
async function look(model, observation) {
  const { mean, value, logDeviations } = await model.run({ observation })
  const numbers = (/** @type {unknown} */ tensor) => /** @type {Tensor<'f32'>} */ (tensor).data
  return { mean: numbers(mean), value: numbers(value), logDeviation: numbers(logDeviations)[0] }
}

/**
 * What is to be expected after a step: 0 for a scenario that ended, and of one whose time was over the value of what was seen last.
 * @param {Model} model @param {import('dgx-spark').EnvironmentStep} step @param {Float32Array} values of what is seen now
 */
async function valuesAfter(model, { ended, truncated, finalObservations }, values) {
  if (!truncated.data.includes(1) && !ended.data.includes(1)) return values
  const last = await look(model, finalObservations)
  return last.value.map((value, i) => (ended.data[i] ? 0 : value))
}

/**
 * Generalized advantage estimation (Schulman et al. 2016, equation 16), backwards from the last step.
 * @param {Record<'rewards' | 'values' | 'nextValues' | 'ends', Float32Array>} rollout [steps, count]
 * @param {number} count @param {number} discount @param {number} smoothing
 */
export function generalizedAdvantages({ rewards, values, nextValues, ends }, count, discount, smoothing) {
  const advantages = new Float32Array(rewards.length)
  for (let i = rewards.length - 1; i >= 0; i--) {
    const error = rewards[i] + discount * nextValues[i] - values[i]
    const later = ends[i] ? 0 : (advantages[i + count] ?? 0)
    advantages[i] = error + discount * smoothing * later
  }
  return advantages
}

/** With mean 0 and standard deviation 1. @param {Float32Array} values */
function normalized(values) {
  const average = mean(values)
  const deviation = Math.sqrt(mean(values.map(value => (value - average) ** 2)))
  return values.map(value => (value - average) / (deviation + 1e-8))
}

/** @param {Float32Array} values */
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length

/** @param {Float32Array} data */
const column = data => ({ shape: [data.length, 1], data })
