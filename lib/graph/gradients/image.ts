// image.ts: gradients of operators on images.
import type { GradientTable } from './context.js'
import { moved } from './operators.js'

/** Gradients of operators on images. */
export const images: GradientTable = {
  '': { Resize: moved('ResizeGrad') },
}
