// round-rows.ts: layers that round the rows of their activations where their weights are in the formats for it.
import type { RoundedRows } from '../../core/activation-types.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../graph.js'
import { roundingRows } from '../weight-constant.js'

/** The graph whose layers round their activations to `activations` where their weights are in a format for it. */
export function roundRows(graph: Graph, activations: RoundedRows): Graph {
  const initializers = [...graph.initializers].map(
    ([name, constant]) => [name, roundingRows(constant, activations)] as const,
  )
  return { ...graph, initializers: new Map(initializers) }
}

/** @throws SparkError ERR_ARGUMENT for a graph without weights of NVFP4 whose activations shall be in nvfp4 */
export function expectNvfp4Weights({ initializers }: Graph, activations: RoundedRows): void {
  if (activations !== 'nvfp4') return
  for (const { weight } of initializers.values()) if (weight?.shared.format === 'nvfp4') return
  throw new SparkError(
    'ERR_ARGUMENT',
    "options.activations is 'nvfp4', but no weight of the model is: add precision 'nvfp4', or load a file that stores NVFP4",
  )
}
