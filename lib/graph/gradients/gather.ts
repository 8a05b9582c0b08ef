// gather.ts: gradients of gathers.
import type { GradientTable } from './context.js'
import { moved } from './operators.js'

/** Gradients of operators with indices. */
export const gathers: GradientTable = {
  '': { Gather: moved('GatherGrad'), OneHot: 'none' },
}
