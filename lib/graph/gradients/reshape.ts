// reshape.ts: gradients of views and permutations.
import { int, ints, intsOf } from '../attributes.js'
import type { GradientRule, GradientTable } from './context.js'

const reshaped: GradientRule = ctx => {
  const shape = ctx.add('Shape', [ctx.input(0)])
  ctx.give(0, ctx.add('Reshape', [ctx.dy(), shape], { allowzero: int(1) }))
}

const transpose: GradientRule = ctx => {
  const order = intsOf(ctx.node, 'perm')
  const back = order?.map((_, axis) => order.indexOf(axis))
  ctx.give(0, ctx.add('Transpose', [ctx.dy()], back ? { perm: ints(back) } : {}))
}

/** Gradients of operators that keep all elements. */
export const reshaping: GradientTable = {
  '': {
    Identity: ctx => ctx.give(0, ctx.dy()),
    Reshape: reshaped,
    Flatten: reshaped,
    Squeeze: reshaped,
    Unsqueeze: reshaped,
    Transpose: transpose,
    Expand: ctx => ctx.giveSummed(0, ctx.dy()),
    Shape: 'none',
    Size: 'none',
  },
}
