// model-source.ts: models and graphs as arguments.
import { argumentError } from '../../core/checks.js'
import type { Graph } from '../../graph/graph.js'

/** A model, or its canonical graph. */
export type ModelSource = Graph | HasGraph

/** A model, or any other object with a graph. */
export interface HasGraph {
  /** In canonical form. */
  readonly graph: Graph
}

/** The graph of a model. @throws SparkError ERR_ARGUMENT naming `argument` unless it has one */
export function graphOf(model: ModelSource, argument = 'model'): Graph {
  const isObject = typeof model === 'object' && model !== null
  const graph = isObject && 'graph' in model ? model.graph : model
  if (!(graph?.initializers instanceof Map) || !Array.isArray(graph.nodes)) {
    throw argumentError(argument, 'a model or a graph', model)
  }
  return graph
}
