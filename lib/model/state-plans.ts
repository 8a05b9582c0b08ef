// state-plans.ts: plans that work on states in place. One plan of a template follows the sizes of a sequence of runs.

import type { Pacer } from '../core/paced.js'
import { fixedSizes, type SizeValues } from '../core/size-scope.js'
import type { Plan } from '../plan/plan.js'
import type { SharedArena } from '../plan/shared-arena.js'
import type { Compiled } from './cuts.js'
import { ModelState } from './model-state.js'
import type { HostValue } from './values.js'

/** The states that a compiled segment replaces, by name. */
export function statesIn(
  { graph }: Compiled,
  values: ReadonlyMap<string, HostValue>,
): ReadonlyMap<string, ModelState> {
  const states = new Map<string, ModelState>()
  for (const name of graph?.updates?.keys() ?? []) {
    const value = values.get(name)
    if (value instanceof ModelState) states.set(name, value)
  }
  return states
}

/**
 * The plan of a segment for some values, with room in the states for what it adds to them.
 * @param states - that it replaces; at least one
 * @param sizes - what its sizes are for the values
 */
export async function statePlan(
  { template, symbols }: Compiled,
  values: ReadonlyMap<string, HostValue>,
  states: ReadonlyMap<string, ModelState>,
  sizes: SizeValues,
  arena: SharedArena,
  pacer: Pacer,
): Promise<Plan> {
  let used = symbols.isOpen ? sizes : fixedSizes
  const next = template!.program.next.map(({ name, shape, keeps }) => {
    const state = states.get(name)!
    return { state, shape: shape.map(size => sizes.of(size)), keeps }
  })
  const grown = next.filter(({ state, shape }) => state.reserve(shape))
  if (grown.length > 0) used = symbols.match(values)!
  const [first] = states.values()
  const { plans } = first!.group
  const known = plans.get(template!)
  plans.delete(template!)
  const memories = new Map([...states].map(([name, { memory }]) => [name, memory]))
  let plan = known?.plan
  if (
    !plan ||
    known?.key !== used.key ||
    ![...memories].every(([name, at]) => known.memories.get(name) === at)
  )
    plan = await template!.bind(used, pacer, { arena, states: memories, over: plan })
  plans.set(template!, { plan, key: used.key, memories })
  for (const { state, shape, keeps } of next) state.begin(shape, keeps)
  return plan
}
