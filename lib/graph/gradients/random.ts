// random.ts: gradients of dropout.
import { sparkDomain } from '../graph.js'
import type { GradientTable } from './context.js'

/** Gradients of dropout. */
export const randomness: GradientTable = {
  '': { Dropout: at => at.give(0, at.dy()) },
  [sparkDomain]: { DropoutMask: 'none' },
}
