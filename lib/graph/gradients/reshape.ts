// reshape.ts: gradients of views and permutations.
import { int, ints, intsOf } from '../attributes.js'
import type { GradientRule, GradientTable } from './context.js'

const reshaped: GradientRule = at => {
  const shape = at.add('Shape', [at.input(0)])
  at.give(0, at.add('Reshape', [at.dy(), shape], { allowzero: int(1) }))
}

const transpose: GradientRule = at => {
  const order = intsOf(at.node, 'perm')
  const back = order?.map((_, axis) => order.indexOf(axis))
  at.give(0, at.add('Transpose', [at.dy()], back ? { perm: ints(back) } : {}))
}

/** Gradients of operators that keep all elements. */
export const reshaping: GradientTable = {
  '': {
    Identity: at => at.give(0, at.dy()),
    Reshape: reshaped,
    Flatten: reshaped,
    Squeeze: reshaped,
    Unsqueeze: reshaped,
    Transpose: transpose,
    Expand: at => at.giveSummed(0, at.dy()),
    Shape: 'none',
    Size: 'none',
  },
}
