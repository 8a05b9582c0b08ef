// random.ts: gradients of dropout.
import { sparkDomain } from '../graph.js'
import type { GradientTable } from './context.js'

/** Gradients of dropout. */
export const randomness: GradientTable = {
  '': { Dropout: ctx => ctx.give(0, ctx.dy()) },
  [sparkDomain]: { DropoutMask: 'none' },
}
