// pool.ts: gradients of pooling.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** dx from dy and x. */
const pool: GradientRule = ctx => addGradients(ctx, `${ctx.node.op}Grad`, [ctx.dy(), ctx.input(0)], [0])

/** Gradients of pooling. */
export const pooling: GradientTable = {
  '': { MaxPool: pool, AveragePool: pool, GlobalAveragePool: pool },
}
