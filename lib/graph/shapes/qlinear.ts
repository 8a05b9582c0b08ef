// qlinear.ts: shapes of arithmetic on quantized tensors.
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { convolution, convolutionOperands } from './conv.js'
import { matMul, matMulOf, transposedIf } from './matmul.js'
import type { OperatorTable } from './row.js'
import { autoPads } from './window.js'

const mean: Rule = ctx => {
  const [shape, axis] = [ctx.shape(0), ctx.int('axis')]
  const rest = ctx.int('keepdims') ? shape?.slice(axis).map(() => 1) : []
  return [tensorOrUnknown(ctx.dtype(4), shape && [...shape.slice(0, axis), ...rest!])]
}

const gemm: Rule = ctx => {
  const right = transposedIf(ctx.shape(3), ctx.int('transB') !== 0)
  return [tensorOrUnknown(ctx.dtype(7), matMulOf(ctx, ctx.shape(0), right))]
}

/** Output like input 0, in the type of the zero point of y. */
const elementwise: Rule = ctx => [tensorOrUnknown(ctx.dtype(7), ctx.shape(0))]

/** Rows of arithmetic on quantized tensors. */
export const quantizedArithmetic: OperatorTable = {
  '': {
    MatMulInteger: { shape: ctx => [tensorOrUnknown('i32', matMul(ctx, 0, 1))] },
    ConvInteger: {
      shape: ctx => [tensorOrUnknown('i32', convolution(ctx, 1))],
      check: convolutionOperands(1, -1),
      choices: autoPads,
    },
    QLinearMatMul: { shape: ctx => [tensorOrUnknown(ctx.dtype(7), matMul(ctx, 0, 3))] },
    QLinearConv: {
      shape: ctx => [tensorOrUnknown(ctx.dtype(7), convolution(ctx, 3))],
      check: convolutionOperands(3, 8),
      choices: autoPads,
    },
  },
  [sparkDomain]: {
    Lookup: { shape: ctx => [tensorOrUnknown(ctx.dtype(1), ctx.shape(0))] },
    QLinearAdd: { shape: elementwise },
    QLinearMul: { shape: elementwise },
    QLinearMean: { shape: mean },
    QLinearGemm: { shape: gemm },
  },
}
