// state-plans.ts: plans that work on states in place. One plan of a template follows the sizes of a sequence of runs.

import type { Pacer } from '../core/paced.js'
import { fixedSizes, type SizeValues } from '../core/size-scope.js'
import type { Plan, PlanTemplate, TemplateMemory } from '../plan/plan.js'
import type { SharedArena } from '../plan/shared-arena.js'
import type { Compiled } from './cuts.js'
import { ModelState, type StatePlan } from './model-state.js'
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
  let hasGrown = false
  for (const { state, shape } of next) hasGrown = (await state.reserve(shape)) || hasGrown
  if (hasGrown) used = symbols.match(values)!
  const [first] = states.values()
  const { plans } = first!.group
  const memories = new Map([...states].map(([name, { memory }]) => [name, memory]))
  const kept = plans.get(template!) ?? []
  plans.set(template!, kept)
  const plan =
    takePlan(kept, used.key, memories) ??
    (await boundPlan(kept, template!, used, pacer, { arena, states: memories }))
  kept.push({ plan, key: used.key, memories })
  for (const { state, shape, keeps } of next) state.begin(shape, keeps)
  return plan
}

/** Takes the plan out that is bound to these sizes and memories. */
function takePlan(kept: StatePlan[], key: string, memories: StatePlan['memories']): Plan | undefined {
  const at = kept.findIndex(
    known =>
      known.key === key && [...memories].every(([name, memory]) => known.memories.get(name) === memory),
  )
  return at < 0 ? undefined : kept.splice(at, 1)[0]!.plan
}

/** A plan for other sizes: the one that was used longest ago, where there are enough. */
function boundPlan(
  kept: StatePlan[],
  template: PlanTemplate,
  sizes: SizeValues,
  pacer: Pacer,
  memory: TemplateMemory & { readonly states: StatePlan['memories'] },
): Promise<Plan> {
  const isStale = kept.some(({ memories }) =>
    [...memory.states].some(([name, array]) => memories.get(name) !== array),
  )
  const over = isStale || kept.length >= template.plansToKeep ? kept.shift()?.plan : undefined
  if (isStale) for (const { plan } of kept.splice(0)) plan.dispose()
  return template.bind(sizes, pacer, { ...memory, over })
}
