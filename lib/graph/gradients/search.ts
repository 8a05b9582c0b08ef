// search.ts: searches, which have no gradients.
import type { GradientTable } from './context.js'

/** Gradients of searches. */
export const searches: GradientTable = {
  '': { ArgMax: 'none', ArgMin: 'none', NonZero: 'none' },
}
