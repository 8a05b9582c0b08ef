// constant.ts: tensors made of attributes and sizes, which have no gradients.
import type { GradientTable } from './context.js'

/** Gradients of operators that make tensors. */
export const constants: GradientTable = {
  '': { ConstantOfShape: 'none', Range: 'none', EyeLike: 'none' },
}
