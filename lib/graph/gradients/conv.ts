// conv.ts: gradients of convolutions.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

const conv: GradientRule = at => addGradients(at, 'ConvGrad', [at.dy(), at.input(0), at.input(1)], [0, 1, 2])

const convTranspose: GradientRule = at =>
  addGradients(at, 'ConvTransposeGrad', [at.dy(), at.input(0), at.input(1)], [0, 1, 2])

/** Gradients of convolutions. */
export const convolutions: GradientTable = {
  '': { Conv: conv, ConvTranspose: convTranspose },
}
