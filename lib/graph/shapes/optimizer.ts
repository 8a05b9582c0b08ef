// optimizer.ts: shapes of optimizers.
import { sparkDomain } from '../graph.js'
import type { Rule } from './context.js'
import { type OperatorTable, sameAs } from './row.js'

/** Optimizers: learning rate, step count, then tensors, gradients and states, a group of each. */
const optimizer =
  (groups: number): Rule =>
  ctx => {
    const count = (ctx.node.inputs.length - 2) / groups
    return ctx.node.outputs.map((_, i) => ctx.type(2 + (i < count ? i : i + count)))
  }

/** Rows of optimizers. */
export const optimizers: OperatorTable = {
  'ai.onnx.preview.training': {
    Adagrad: { shape: optimizer(3) },
    Adam: { shape: optimizer(4) },
    Momentum: { shape: optimizer(3) },
  },
  [sparkDomain]: {
    AdamW: { shape: sameAs(2, 4, 5) },
  },
}
