// experts.ts: linear layers of experts.
import { multiply } from '../../core/size.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import { weightOf } from './matmul.js'
import type { LowerTable } from './table.js'

/** x [N, I] or [N, k, I], weight [E, O, I], choice [N, k], bias [E, O] → [N, k, O] */
function expertLinear(ctx: Lowering): void {
  const [experts = 0, out = 0, cols = 0] = ctx.shape(1)
  const [tokens = 0, choices = 0] = ctx.shape(2)
  ctx.step('expertLinear', {
    weight: { ...weightOf(ctx, 1), rows: multiply(experts, out), cols },
    experts,
    tokens,
    choices,
    perChoice: ctx.shape(0).length === 3,
    x: ctx.read(0),
    choice: ctx.cast(ctx.input(2), 'i64').buffer.read(),
    bias: ctx.optional(3),
    y: ctx.write(),
  })
}

/** Lowerings of mixtures of experts. */
export const expertLayers: LowerTable = {
  [sparkDomain]: { ExpertLinear: ctx => ctx.inF32(expertLinear) },
}
