// carriers.ts: how far summands travel before they are summed over ranks: through what is linear in them.
import type { Node } from '../../graph.js'
import type { SplitFacts } from './facts.js'
import type { SplitPlan } from './plan-split.js'

/**
 * Values that are summands of each rank and are summed only after they have been scaled and added up, such as those of the experts of a
 * token, or of attention and a feed-forward network that read the same state.
 */
export function carriedValues({ summed, parts, gathered }: SplitPlan, facts: SplitFacts): Set<string> {
  const outputs = new Set(facts.graph.outputs.map(({ name }) => name))
  const open = new Set<string>()
  const carried = new Set<string>()
  for (const node of facts.graph.nodes) {
    if (summed.has(node)) {
      open.add(node.outputs[0]!)
      continue
    }
    const summands = node.inputs.filter(name => open.has(name))
    const isOnly = (name: string): boolean => facts.consumers.get(name)?.length === 1 && !outputs.has(name)
    const isFree = !parts.has(node) && !gathered.has(node)
    if (!isFree || summands.length === 0 || !summands.every(isOnly) || !isLinear(node, summands)) continue
    for (const name of summands) carried.add(name)
    open.add(node.outputs[0]!)
  }
  return carried
}

function isLinear({ op, domain, inputs }: Node, summands: readonly string[]): boolean {
  if (domain !== '') return false
  if (op === 'Mul') return summands.length === 1
  if (op === 'ReduceSum') return true
  return op === 'Add' && summands.length === inputs.length && inputs[0] !== inputs[1]
}
