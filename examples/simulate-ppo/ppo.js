// ppo.js: proximal policy optimization with the trainer of this library: it reads minibatches that its own policy drives.
import { ArrayDataset, Model, Tensor, Trainer } from 'dgx-spark'
import { ppoLoss } from './loss.js'
import { actorCritic, policy, trainable } from './network.js'
import { drive } from './rollout.js'
import { trainingEnvironment } from './scenarios.js'

/** @import { BackendName } from 'dgx-spark' */

const scenarios = 256
const steps = 64
const epochs = 5
const minibatch = 2048
const [discount, smoothing] = [0.98, 0.95]
/** Steps that a discounted sum reaches. */
const horizon = 1 / (1 - discount)

/** @typedef {{ iteration: number, reward: number, loss: number, deviation: number }} Progress */

/**
 * Trains a policy.
 * @param {{ iterations: number, seed: number, backend: BackendName }} options
 * @param {(progress: Progress) => void} onIteration is told the mean reward of a step and the mean loss of the updates after it
 * @returns the graph of the policy
 */
export async function trainPolicy({ iterations, seed, backend }, onIteration) {
  const env = await trainingEnvironment(scenarios, horizon, backend)
  const updates = (epochs * scenarios * steps) / minibatch
  const trainer = new Trainer({ graph: actorCritic(seed) }, null, {
    loss: { graph: ppoLoss({ clip: 0.2, valueWeight: 0.5, entropyWeight: 0.001 }) },
    trainable,
    optimizer: { type: 'adamw', learningRate: 1e-3, weightDecay: 0 },
    schedule: { type: 'linear', steps: iterations * updates },
    maxNorm: 0.5,
    backend,
  })
  let reward = 0

  async function* minibatches() {
    let { observations: seen } = await env.reset()
    for (let iteration = 0; iteration < iterations; iteration++) {
      await trainer.publish()
      const model = await Model.fromGraph(trainer.weights.graph, { backend })
      const options = { steps, discount, smoothing, seed: seed * 1e4 + iteration }
      const rollout = await drive(env, model, seen, options)
      model.dispose()
      ;({ seen, reward } = rollout)
      const samples = new ArrayDataset(rollout.samples)
      for (let epoch = 0; epoch < epochs; epoch++) {
        const order = shuffled(samples.size, options.seed * epochs + epoch)
        for (let i = 0; i < order.length; i += minibatch) yield samples.read(order.slice(i, i + minibatch))
      }
    }
  }

  let sum = 0
  try {
    for await (const { step, loss } of trainer.steps(minibatches())) {
      sum += loss
      if (step % updates > 0) continue
      const deviation = Math.exp(trainer.weights.read('logDeviation')[0])
      onIteration({ iteration: step / updates, reward, loss: sum / updates, deviation })
      sum = 0
    }
  } finally {
    env.dispose()
  }
  return policy(name => trainer.weights.read(name))
}

/** The integers below `count` in a random order. @param {number} count @param {number} seed */
function shuffled(count, seed) {
  const keys = Tensor.random([count], { seed }).data
  return Array.from(keys.keys()).sort((a, b) => keys[a] - keys[b])
}
