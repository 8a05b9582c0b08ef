// conv.ts: gradients of convolutions.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

const conv: GradientRule = ctx =>
  addGradients(ctx, 'ConvGrad', [ctx.dy(), ctx.input(0), ctx.input(1)], [0, 1, 2])

const convTranspose: GradientRule = ctx =>
  addGradients(ctx, 'ConvTransposeGrad', [ctx.dy(), ctx.input(0), ctx.input(1)], [0, 1, 2])

/** Gradients of convolutions. */
export const convolutions: GradientTable = {
  '': { Conv: conv, ConvTranspose: convTranspose },
}
