// states.ts: the stage that a state stays with.
import { SparkError } from '../../../core/errors.js'
import type { Graph } from '../../graph.js'
import type { Living } from './living.js'
import { placeOf } from './points.js'

/**
 * The stage of each state: of initializers that are updated, and of inputs that an output replaces.
 * @throws SparkError ERR_UNSUPPORTED naming the cut and the state that it goes through
 */
export function stageOfStates(
  graph: Graph,
  ends: readonly number[],
  { made, readers }: Living,
  states: ReadonlyMap<string, string>,
): ReadonlyMap<string, number> {
  const stages = new Map<string, number>()
  for (const [name, next] of [...states, ...(graph.updates ?? [])]) {
    const places = [...(readers.get(name) ?? [])]
    const maker = made.get(next)
    if (maker !== undefined) places.push(maker)
    const [first, last] = [Math.min(...places), Math.max(...places)]
    const through = ends.find(end => first < end && last >= end)
    if (through !== undefined)
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${placeOf(graph, through)}, goes through the state '${name}', which is read and made anew ('${next}') on both sides: cut in front of it or behind it`,
      )
    const stage = ends.findIndex(end => first < end)
    stages.set(name, stage < 0 ? ends.length : stage)
  }
  return stages
}
