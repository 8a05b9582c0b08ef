// operators.ts: gradients that are one operator of our own domain.
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule } from './context.js'

/** An operator of ours that takes dy, x and what else the node reads, and gives dx. */
export const moved =
  (op: string): GradientRule =>
  ctx =>
    ctx.give(0, ctx.add(op, [ctx.dy(), ...ctx.node.inputs], ctx.node.attributes, sparkDomain))

/** Adds a node with an output for each of the given inputs that is wanted, and gives it to that input. */
export function addGradients(
  ctx: GradientContext,
  op: string,
  inputs: readonly string[],
  targets: readonly number[],
): void {
  const wanted = targets.map(i => ctx.wants(i))
  const gradients = ctx.addMany(op, inputs, wanted, ctx.node.attributes, sparkDomain)
  targets.forEach((i, n) => {
    ctx.give(i, gradients[n]!)
  })
}
