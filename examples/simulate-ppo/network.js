// network.js: the policy and the value network, as one graph for the training and as a policy alone for its file.
import { GraphBuilder, Tensor } from 'dgx-spark'
import { observations } from './scenarios.js'

/** Units of hidden layers. */
const width = 64
/** rad of the front wheels for an output of 1. */
const steeringScale = 0.05
/** The natural logarithm of the standard deviation of the first actions. */
const firstLogDeviation = Math.log(0.5)

/** What the networks see: each observation minus an offset, times a factor. The rest of the observations is not used. */
const inputs = /** @type {const} */ ({
  speed: [20, 0.1],
  lateralError: [0, 1],
  headingError: [0, 20],
  curvature: [0, 100],
  steeringAngle: [0, 20],
})

/** Names of what is trained: names of layers begin with them. */
export const trainable = ['policy', 'value', 'logDeviation']

/** Makes the first values of weights: uniform, with the variance 1 / inputs (LeCun et al. 1998), small in the last layer of the policy. @param {number} seed */
function randomWeights(seed) {
  let next = seed * 100
  return (/** @type {string} */ name, /** @type {number[]} */ shape) => {
    const [fanIn = 1] = shape
    const bound = Math.sqrt(3 / fanIn) * (name === 'policy.out.weight' ? 0.01 : 1)
    const values = Tensor.random(shape, { seed: next++ }).data.map(value => (2 * value - 1) * bound)
    return name.endsWith('.bias') ? Tensor.zeros(shape) : Tensor.from(values, { shape })
  }
}

/** Adds the observation and the part of it that the networks see. @param {GraphBuilder} g */
function addInput(g) {
  const observation = g.input('observation', 'f32', ['n', observations.length])
  const names = Object.keys(inputs)
  const columns = BigInt64Array.from(names, name => BigInt(observations.indexOf(name)))
  const seen = g.add('Gather', [observation, Tensor.from(columns)], { axis: 1 })
  const [offsets, factors] = [0, 1].map(i => Object.values(inputs).map(scale => scale[i]))
  const centred = g.add('Sub', [seen, g.initializer('offsets', [offsets])])
  return g.add('Mul', [centred, g.initializer('factors', [factors])])
}

/**
 * Adds a network with two hidden layers and one output.
 * @param {GraphBuilder} g @param {string} seen @param {string} name
 * @param {(name: string, shape: number[]) => Tensor<'f32'>} weights
 */
function addNetwork(g, seen, name, weights) {
  const layer = (
    /** @type {string} */ x,
    /** @type {string} */ part,
    /** @type {number[]} */ [rows, columns],
  ) => {
    const [weight, bias] = [`${name}.${part}.weight`, `${name}.${part}.bias`]
    const shapes = { weight: [rows, columns], bias: [columns] }
    return g.add('Gemm', [
      x,
      g.initializer(weight, weights(weight, shapes.weight)),
      g.initializer(bias, weights(bias, shapes.bias)),
    ])
  }
  const first = g.add('Tanh', [layer(seen, 'first', [Object.keys(inputs).length, width])])
  const second = g.add('Tanh', [layer(first, 'second', [width, width])])
  return layer(second, 'out', [width, 1])
}

/**
 * The graph that is trained: from `observation` [n, observations] the `mean` of normal actions and the `value` of what
 * is seen, [n, 1] each, and the logarithm of the actions' standard deviation, `logDeviations` [1, 1].
 * @param {number} seed
 */
export function actorCritic(seed) {
  const g = new GraphBuilder()
  const weights = randomWeights(seed)
  const seen = addInput(g)
  g.output(addNetwork(g, seen, 'policy', weights), 'mean')
  g.output(addNetwork(g, seen, 'value', weights), 'value')
  g.output(g.add('Identity', [g.initializer('logDeviation', [[firstLogDeviation]])]), 'logDeviations')
  return g.build()
}

/**
 * The policy alone, without noise: from `observation` the `action` [n, 2], no acceleration and the steering angle in rad.
 * @param {(name: string) => Float32Array} read - trained weights by name
 */
export function policy(read) {
  const g = new GraphBuilder({ name: 'policy' })
  const mean = addNetwork(g, addInput(g), 'policy', (name, shape) => Tensor.from(read(name), { shape }))
  g.output(g.add('MatMul', [mean, g.initializer('actions', [[0, steeringScale]])]), 'action')
  return g.build()
}

/** Actions of the world for outputs of the policy. @param {Float32Array} outputs */
export function actionsOf(outputs) {
  return Float32Array.from({ length: 2 * outputs.length }, (_, i) =>
    i % 2 === 0 ? 0 : steeringScale * outputs[(i - 1) / 2],
  )
}
