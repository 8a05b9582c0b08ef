// qlinear.ts: shapes of arithmetic on quantized tensors.
import { sparkDomain } from '../graph.js'
import { type Rule, tensorOrUnknown } from './call.js'
import { convolution, convolutionOperands } from './conv.js'
import { matMul, matMulOf, transposedIf } from './matmul.js'
import type { OperatorTable } from './row.js'
import { autoPads } from './window.js'

const mean: Rule = call => {
  const [shape, axis] = [call.shape(0), call.int('axis', 2)]
  const rest = call.int('keepdims', 1) ? shape?.slice(axis).map(() => 1) : []
  return [tensorOrUnknown(call.dtype(4), shape && [...shape.slice(0, axis), ...rest!])]
}

const gemm: Rule = call => {
  const right = transposedIf(call.shape(3), call.int('transB', 0) !== 0)
  return [tensorOrUnknown(call.dtype(7), matMulOf(call, call.shape(0), right))]
}

/** Output like input 0, in the type of the zero point of y. */
const elementwise: Rule = call => [tensorOrUnknown(call.dtype(7), call.shape(0))]

/** Rows of arithmetic on quantized tensors. */
export const quantizedArithmetic: OperatorTable = {
  '': {
    MatMulInteger: { shape: call => [tensorOrUnknown('i32', matMul(call, 0, 1))] },
    ConvInteger: {
      shape: call => [tensorOrUnknown('i32', convolution(call, 1))],
      check: convolutionOperands(1, -1),
      choices: autoPads,
    },
    QLinearMatMul: { shape: call => [tensorOrUnknown(call.dtype(7), matMul(call, 0, 3))] },
    QLinearConv: {
      shape: call => [tensorOrUnknown(call.dtype(7), convolution(call, 3))],
      check: convolutionOperands(3, 8),
      choices: autoPads,
    },
  },
  [sparkDomain]: {
    Lookup: { shape: call => [tensorOrUnknown(call.dtype(1), call.shape(0))] },
    QLinearAdd: { shape: elementwise },
    QLinearMul: { shape: elementwise },
    QLinearMean: { shape: mean },
    QLinearGemm: { shape: gemm },
  },
}
