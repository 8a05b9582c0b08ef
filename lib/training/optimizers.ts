// optimizers.ts: options of AdamW and SGD, and the updates they append to a training graph.
import { expectKnownOptions, expectNumber, expectOneOf } from '../core/checks.js'
import type { ElementArray } from '../core/dtype.js'
import { withAdamWDefaults } from '../graph/attribute-defaults.js'
import type { Graph } from '../graph/graph.js'
import { adamwInputs, addAdamW, addSgd, sgdInputs } from '../graph/rewrites/optimizer.js'

/** Adam with decoupled weight decay (Loshchilov and Hutter 2019). */
export interface AdamW {
  /** Selects this optimizer. */
  readonly type: 'adamw'
  /** Default: 1e-3. */
  readonly learningRate?: number
  /** Decay of the first moment. Default: 0.9. */
  readonly beta1?: number
  /** Decay of the second moment. Default: 0.999. */
  readonly beta2?: number
  /** Added to the square root of the second moment. Default: 1e-8. */
  readonly epsilon?: number
  /** Default: 0.01. */
  readonly weightDecay?: number
}

/** Stochastic gradient descent. */
export interface Sgd {
  /** Selects this optimizer. */
  readonly type: 'sgd'
  /** Default: 1e-2. */
  readonly learningRate?: number
  /** Default: 0. */
  readonly momentum?: number
  /** Default: false. */
  readonly nesterov?: boolean
  /** L2 penalty: the gradient of a parameter gets this multiple of the parameter added. Default: 0. */
  readonly weightDecay?: number
}

/** An optimizer: its name, or its name with options. */
export type OptimizerOptions = 'adamw' | 'sgd' | AdamW | Sgd

/** An optimizer, as a training step uses it. */
export interface Optimizer {
  /** Base learning rate of the schedule. */
  readonly learningRate: number
  /** Appends the parameter updates to a graph. @param gradients - names of gradients by parameter */
  append(graph: Graph, gradients: ReadonlyMap<string, string>): Graph
  /** Inputs of update number `step`, counted from 1. */
  feeds(rate: number, step: number): Readonly<Record<string, ElementArray>>
}

/**
 * Checks the options of an optimizer.
 * @throws SparkError ERR_ARGUMENT
 */
export function createOptimizer(options: OptimizerOptions): Optimizer {
  const given: AdamW | Sgd = typeof options === 'string' ? { type: options } : options
  expectOneOf('optimizer.type', given.type, ['adamw', 'sgd'])
  return given.type === 'adamw' ? createAdamW(given) : createSgd(given)
}

function createAdamW(options: AdamW): Optimizer {
  const known = ['type', 'learningRate', 'beta1', 'beta2', 'epsilon', 'weightDecay']
  expectKnownOptions('optimizer', options, known)
  const { learningRate = 1e-3, type: _, ...settings } = options
  const { beta1, beta2, epsilon, weightDecay } = withAdamWDefaults(settings)
  expectNumber('optimizer.learningRate', learningRate, 0)
  expectNumber('optimizer.beta1', beta1, 0, 1 - Number.EPSILON)
  expectNumber('optimizer.beta2', beta2, 0, 1 - Number.EPSILON)
  expectNumber('optimizer.epsilon', epsilon, 0)
  expectNumber('optimizer.weightDecay', weightDecay, 0)
  return {
    learningRate,
    append: (graph, gradients) => addAdamW(graph, { gradients, ...settings }),
    feeds: (rate, step) => ({
      [adamwInputs.rate]: Float64Array.of(rate),
      [adamwInputs.step]: Float64Array.of(step),
    }),
  }
}

function createSgd(options: Sgd): Optimizer {
  expectKnownOptions('optimizer', options, ['type', 'learningRate', 'momentum', 'nesterov', 'weightDecay'])
  const { learningRate = 1e-2, type: _, ...settings } = options
  const { momentum = 0, weightDecay = 0 } = settings
  expectNumber('optimizer.learningRate', learningRate, 0)
  expectNumber('optimizer.momentum', momentum, 0, 1)
  expectNumber('optimizer.weightDecay', weightDecay, 0)
  return {
    learningRate,
    append: (graph, gradients) => addSgd(graph, { gradients, ...settings }),
    feeds: rate => ({ [sgdInputs.rate]: Float32Array.of(rate) }),
  }
}
