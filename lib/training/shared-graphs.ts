// shared-graphs.ts: the two graphs of a step that ranks share: the gradients of one batch, and the update with their sum.
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { type Graph, makeGraph, tensorType } from '../graph/graph.js'
import { lossScale } from '../graph/rewrites/loss-scale.js'
import { type TrainingGraph, trainingGraph } from '../pipeline.js'

/** Name of the input that takes the gradient of a parameter. */
export const gradientInput = (parameter: string): string => `gradient/${parameter}`

/** Loss and gradients as outputs; parameters are state, so that one plan serves all their values. */
export function gradientGraph({ graph, loss, gradients }: TrainingGraph): Graph {
  const outputs = [...new Set([loss, ...gradients.values()])].map(name => ({ name }))
  return { ...graph, outputs, updates: new Map([...gradients.keys()].map(name => [name, name])) }
}

/** A graph of parameters whose gradients are inputs. */
export function updateStart({ graph, parameters }: TrainableAdapter, scales: boolean): TrainingGraph {
  const own = new Map(parameters.map(name => [name, graph.initializers.get(name)!]))
  const inputs = parameters.map(name => ({
    name: gradientInput(name),
    type: tensorType('f32', own.get(name)!.shape),
  }))
  const scale = scales ? [{ name: lossScale, type: tensorType('f32', []) }] : []
  const start = trainingGraph(makeGraph({ inputs: [...inputs, ...scale], initializers: own }))
  return { ...start, gradients: new Map(parameters.map(name => [name, gradientInput(name)])) }
}
