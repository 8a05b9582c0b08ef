// optimizer.ts: appends the update of the parameters, so that a training step is one graph.
import { SparkError } from '../../core/errors.js'
import { float } from '../attributes.js'
import { Constant } from '../constant.js'
import { freshNames } from '../edit.js'
import { type Graph, makeNode, type Node, sparkDomain, tensorType } from '../graph.js'

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

/** Inputs that {@link addAdamW} adds: each one f64. */
export const adamwInputs = {
  /** Learning rate of the step. */
  rate: 'adamw/rate',
  /** Number of the step, from 1. */
  step: 'adamw/step',
} as const

/**
 * Appends an `AdamW` node for each parameter (Loshchilov and Hutter 2019, algorithm 2). Parameters and their moments
 * become state: {@link Graph.updates} names the values that replace them. Adds the inputs of {@link adamwInputs}.
 *
 * @throws SparkError ERR_ARGUMENT for a parameter that is no initializer of f32
 */
export function addAdamW(graph: Graph, options: AdamWOptions): Graph {
  const { gradients, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weightDecay = 0.01 } = options
  const fresh = freshNames(graph)
  const initializers = new Map(graph.initializers)
  const updates = new Map(graph.updates)
  const nodes: Node[] = []
  const attributes = {
    ...{ beta1: float(beta1), beta2: float(beta2) },
    ...{ epsilon: float(epsilon), weight_decay: float(weightDecay) },
  }
  for (const [name, gradient] of gradients) {
    const parameter = initializers.get(name)
    if (parameter?.dtype !== 'f32') {
      throw new SparkError('ERR_ARGUMENT', `'${name}' is no initializer of f32, so that it cannot be trained`)
    }
    const moments = ['m', 'v'].map(moment => fresh(`${name}/${moment}`))
    for (const moment of moments) {
      initializers.set(moment, Constant.from('f32', parameter.shape, new Float32Array(parameter.count)))
    }
    const state = [name, ...moments] as const
    const next = state.map(name => fresh(`${name}/next`))
    state.forEach((name, i) => {
      updates.set(name, next[i]!)
    })
    const inputs = [adamwInputs.rate, adamwInputs.step, name, gradient, ...moments]
    nodes.push(makeNode('AdamW', inputs, next, { domain: sparkDomain, attributes }))
  }
  const scalar = tensorType('f64', [])
  return {
    ...graph,
    inputs: [...graph.inputs, ...Object.values(adamwInputs).map(name => ({ name, type: scalar }))],
    nodes: [...graph.nodes, ...nodes],
    initializers,
    updates,
    opsets: new Map([...graph.opsets, [sparkDomain, 1]]),
  }
}
