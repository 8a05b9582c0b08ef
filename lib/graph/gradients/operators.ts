// operators.ts: gradients that are one operator of our own domain.
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule } from './context.js'

/** An operator of ours that takes dy, x and what else the node reads, and gives dx. */
export const moved =
  (op: string): GradientRule =>
  at =>
    at.give(0, at.add(op, [at.dy(), ...at.node.inputs], at.node.attributes, sparkDomain))

/** Adds a node with an output for each of the given inputs that is wanted, and gives it to that input. */
export function addGradients(
  at: GradientContext,
  op: string,
  inputs: readonly string[],
  targets: readonly number[],
): void {
  const wanted = targets.map(i => at.wants(i))
  const gradients = at.addMany(op, inputs, wanted, at.node.attributes, sparkDomain)
  targets.forEach((i, n) => {
    at.give(i, gradients[n]!)
  })
}
