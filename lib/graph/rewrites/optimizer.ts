// optimizer.ts: appends the update of the parameters, so that a training step is one graph.

import { SparkError } from '../../core/errors.js'
import { withAdamWDefaults } from '../attribute-defaults.js'
import { float } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { Constant } from '../constant.js'
import { type Graph, makeNode, sparkDomain, tensorType } from '../graph.js'

/** Options of {@link addAdamW}. */
export interface AdamWOptions {
  /** Name of the gradient of each parameter; parameters are initializers of f32. */
  readonly gradients: ReadonlyMap<string, string>
  /** Decay of the first moment. Default: 0.9. */
  readonly beta1?: number
  /** Decay of the second moment. Default: 0.999. */
  readonly beta2?: number
  /** Added to the root of the second moment. Default: 1e-8. */
  readonly epsilon?: number
  /** Decoupled weight decay. Default: 0.01. */
  readonly weightDecay?: number
}

/** Options of {@link addSgd}. */
export interface SgdOptions {
  /** As those of {@link AdamWOptions}. */
  readonly gradients: ReadonlyMap<string, string>
  /** Share of the last step's direction that is kept. Default: 0. */
  readonly momentum?: number
  /** Whether the step looks ahead along that direction (Nesterov). Default: false. */
  readonly nesterov?: boolean
  /** Added to the gradient as `weightDecay` · parameter. Default: 0. */
  readonly weightDecay?: number
}

/** Inputs that {@link addAdamW} adds: each one f64. */
export const adamwInputs = {
  /** Learning rate of the step. */
  rate: 'adamw/rate',
  /** Number of the step, from 1. */
  step: 'adamw/step',
} as const

/** Input that {@link addSgd} adds: the learning rate, one f32. */
export const sgdInputs = { rate: 'sgd/rate' } as const

/**
 * Appends an `AdamW` node for each parameter (Loshchilov and Hutter 2019, algorithm 2). Parameters and their moments
 * become state: {@link Graph.updates} names the values that replace them. Adds the inputs of {@link adamwInputs}.
 *
 * @throws SparkError ERR_ARGUMENT for a parameter that is no initializer of f32
 */
export function addAdamW(graph: Graph, options: AdamWOptions): Graph {
  const { gradients, ...settings } = options
  const { beta1, beta2, epsilon, weightDecay } = withAdamWDefaults(settings)
  const builder = new GraphBuilder(graph, 'adamw')
  const updates = new Map(graph.updates)
  const attributes = {
    beta1: float(beta1),
    beta2: float(beta2),
    epsilon: float(epsilon),
    weight_decay: float(weightDecay),
  }
  for (const [name, gradient] of gradients) {
    const parameter = parameterOf(graph, name)
    const moments = ['m', 'v'].map(moment => builder.initializer(`${name}/${moment}`, zerosLike(parameter)))
    const state = [name, ...moments] as const
    const next = state.map(name => builder.fresh(`${name}/next`))
    state.forEach((name, i) => {
      updates.set(name, next[i]!)
    })
    const inputs = [adamwInputs.rate, adamwInputs.step, name, gradient, ...moments]
    builder.append(makeNode('AdamW', inputs, next, { domain: sparkDomain, attributes }))
  }
  for (const name of Object.values(adamwInputs)) builder.input({ name, type: tensorType('f64', []) })
  return { ...builder.build(), updates }
}

/**
 * Appends stochastic gradient descent: v = momentum · v + g, parameter -= rate · v, with g = gradient + weightDecay ·
 * parameter; with `nesterov`, parameter -= rate · (g + momentum · v). v starts at 0, so that the first v is g. Adds the
 * input of {@link sgdInputs}.
 *
 * @throws SparkError ERR_ARGUMENT for a parameter that is no initializer of f32, or `nesterov` without momentum
 */
export function addSgd(graph: Graph, options: SgdOptions): Graph {
  const { gradients, momentum = 0, nesterov = false, weightDecay = 0 } = options
  if (nesterov && momentum === 0) throw new SparkError('ERR_ARGUMENT', 'nesterov needs a momentum above 0')
  const builder = new GraphBuilder(graph, 'sgd')
  const updates = new Map(graph.updates)
  const scaled = (name: string, factor: number): string =>
    builder.add('Mul', [name, builder.constant(factor)])
  for (const [name, gradient] of gradients) {
    const parameter = parameterOf(graph, name)
    const slope = weightDecay === 0 ? gradient : builder.add('Add', [gradient, scaled(name, weightDecay)])
    let direction = slope
    if (momentum > 0) {
      const velocity = builder.initializer(`${name}/velocity`, zerosLike(parameter))
      const next = builder.add('Add', [scaled(velocity, momentum), slope])
      updates.set(velocity, builder.add('Identity', [next]))
      direction = nesterov ? builder.add('Add', [slope, scaled(next, momentum)]) : next
    }
    updates.set(name, builder.add('Sub', [name, builder.add('Mul', [direction, sgdInputs.rate])]))
  }
  builder.input({ name: sgdInputs.rate, type: tensorType('f32', []) })
  return { ...builder.build(), updates }
}

function parameterOf(graph: Graph, name: string): Constant {
  const parameter = graph.initializers.get(name)
  if (parameter?.dtype === 'f32') return parameter
  throw new SparkError('ERR_ARGUMENT', `'${name}' is no initializer of f32, so that it cannot be trained`)
}

const zerosLike = ({ shape, count }: Constant): Constant =>
  Constant.from('f32', shape, new Float32Array(count))
