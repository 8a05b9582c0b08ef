// ends.ts: other inputs and outputs for a graph.
import { argumentError } from '../../core/checks.js'
import { nearestName } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import { readsOf } from '../edit.js'
import type { Graph } from '../graph.js'
import { removeDead } from './remove-dead.js'

/** The graph with overridable initializers, by name, as inputs behind its own. */
export function feedInitializers(graph: Graph, names: readonly string[]): Graph {
  const fed = (graph.overridable ?? []).filter(({ name }) => names.includes(name))
  return {
    ...graph,
    inputs: [...graph.inputs, ...fed],
    overridable: (graph.overridable ?? []).filter(info => !fed.includes(info)),
    initializers: new Map([...graph.initializers].filter(([name]) => !names.includes(name))),
  }
}

/**
 * The places of outputs among those of a graph.
 * @param option - names the list in errors
 * @throws SparkError ERR_ARGUMENT for anything but a list of names of outputs, each once
 */
export function outputIndices(
  { outputs }: Pick<Graph, 'outputs'>,
  names: readonly string[],
  option: string,
): number[] {
  const known = outputs.map(({ name }) => name)
  const isList = Array.isArray(names) && names.length > 0 && new Set(names).size === names.length
  if (!isList) throw argumentError(option, 'a list of names of outputs, each once', names)
  return names.map(name => {
    const index = known.indexOf(name)
    if (index >= 0) return index
    const near = typeof name === 'string' ? nearestName(name, known) : undefined
    const hint = near === undefined ? '' : ` (did you mean '${near}'?)`
    throw new SparkError(
      'ERR_ARGUMENT',
      `${option}: the model has no output '${name}'${hint}; it has: ${known.join(', ')}`,
    )
  })
}

/**
 * The graph with some of its outputs, without what only the others need: nodes, initializers, inputs.
 * @throws SparkError as {@link outputIndices}
 */
export function selectOutputs(graph: Graph, names: readonly string[], option: string): Graph {
  const outputs = outputIndices(graph, names, option).map(index => graph.outputs[index]!)
  const selected = removeDead({ ...graph, outputs })
  const reads = new Set([...selected.nodes.flatMap(readsOf), ...names])
  return {
    ...selected,
    inputs: selected.inputs.filter(({ name }) => reads.has(name)),
    overridable: (selected.overridable ?? []).filter(({ name }) => selected.initializers.has(name)),
  }
}
