// model-source.ts: what the functions of this room take for a model.
import { argumentError } from '../../core/checks.js'
import type { Graph } from '../../graph/graph.js'

/** A model, or its canonical graph. */
export type ModelSource = Graph | HasGraph

/** A model, or whatever else has a graph. */
export interface HasGraph {
  /** Its nodes and weights, canonical. */
  readonly graph: Graph
}

/** The graph of a model. @throws SparkError ERR_ARGUMENT naming `argument` for anything else */
export function graphOf(model: ModelSource, argument = 'model'): Graph {
  const isObject = typeof model === 'object' && model !== null
  const graph = isObject && 'graph' in model ? model.graph : model
  if (!(graph?.initializers instanceof Map) || !Array.isArray(graph.nodes)) {
    throw argumentError(argument, 'a model or a graph', model)
  }
  return graph
}
