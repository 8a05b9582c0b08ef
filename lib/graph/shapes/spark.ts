// spark.ts: shapes of the operators of our own domain.
import type { Dimension, ValueType } from '../graph.js'
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { convolution } from './convolution.js'
import { compatible, type Shape } from './dimensions.js'
import { expectBroadcast, expectHeads } from './operands.js'
import { einsum, matMulOf } from './product.js'

/** Output `n` has the type of input `inputs[n]`. */
const sameAs =
  (...inputs: readonly number[]) =>
  (call: Call): (ValueType | undefined)[] =>
    inputs.map(i => call.type(i))

const f32 = (...shapes: readonly (Shape | undefined)[]): (ValueType | undefined)[] =>
  shapes.map(shape => tensorOrUnknown('f32', shape))

/** Rows of the weight that is input `i`. */
const rowsOf = (call: Call, i: number): readonly [Dimension] => [call.shape(i)?.[0] ?? null]

const swapped = (shape: Shape | undefined, swap: boolean): Shape | undefined =>
  shape && swap ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape

/** x, W, A, B, magnitude, bias, mask → y, xa, z, norm, gain */
const dora: Rule = call => {
  const [x, w, a] = [call.shape(0), call.shape(1), call.shape(2)]
  const rows = rowsOf(call, 1)
  if (x && w && !compatible(x.at(-1)!, w[1]!))
    throw call.fail(`x has ${x.at(-1)} features, the weight ${w[1]}`)
  const lead = x?.slice(0, -1)
  const [y, xa] = [lead && [...lead, ...rows], lead && [...lead, a?.[0] ?? null]]
  return f32(y, xa, y, rows, rows)
}

/** Rules by operator. */
export const sparkRules: Readonly<Record<string, Rule>> = {
  FusedMatMul: call => {
    const [left, right] = [call.int('transA', 0) !== 0, call.int('transB', 0) !== 0]
    return f32(matMulOf(call, swapped(call.shape(0), left), swapped(call.shape(1), right)))
  },
  FusedLinear: call => {
    const swap = call.int('transB', 0) !== 0
    return [
      tensorOrUnknown(
        call.commonDtype([0, 1, 2, 3]),
        matMulOf(call, call.shape(0), swapped(call.shape(1), swap)),
      ),
    ]
  },
  FusedConv: call => [tensorOrUnknown(call.commonDtype([0, 1, 2, 3]), convolution(call, 1))],
  Lookup: call => [tensorOrUnknown(call.dtype(1), call.shape(0))],
  QLinearAdd: call => [tensorOrUnknown(call.dtype(7), call.shape(0))],
  QLinearMul: call => [tensorOrUnknown(call.dtype(7), call.shape(0))],
  QLinearMean: call => {
    const [shape, axis] = [call.shape(0), call.int('axis', 2)]
    const rest = call.int('keepdims', 1) ? shape?.slice(axis).map(() => 1) : []
    return [tensorOrUnknown(call.dtype(4), shape && [...shape.slice(0, axis), ...rest!])]
  },
  QLinearGemm: call => {
    const right = swapped(call.shape(3), call.int('transB', 0) !== 0)
    return [tensorOrUnknown(call.dtype(7), matMulOf(call, call.shape(0), right))]
  },
  DoRA: dora,
  DoRAGrad: call => [...sameAs(1, 3, 4, 5)(call), ...f32(rowsOf(call, 2))],
  DoRAWeight: call => [call.type(0), ...f32(rowsOf(call, 0), rowsOf(call, 0))],
  DoRAWeightGrad: call => [...sameAs(2, 3)(call), ...f32(rowsOf(call, 1))],
  DropoutMask: sameAs(0),
  AttentionGrad: call => {
    expectHeads(call, 1)
    return sameAs(1, 2, 3)(call)
  },
  ConvGrad: call => [...sameAs(1, 2)(call), ...f32(rowsOf(call, 2))],
  ConvTransposeGrad: call => [...sameAs(1, 2)(call), ...f32([call.shape(0)?.[1] ?? null])],
  BatchNormalizationGrad: sameAs(1, 2, 2),
  MaxPoolGrad: sameAs(1),
  AveragePoolGrad: sameAs(1),
  GlobalAveragePoolGrad: sameAs(1),
  ReluGrad: sameAs(1),
  GeluGrad: sameAs(1),
  SumLike: sameAs(1),
  NormalizationGrad: sameAs(1, 2, 2),
  EinsumGrad: call => {
    expectBroadcast(call, 0, 'dy', einsum(call, 1))
    return call.node.outputs.map((_, i) => call.type(i + 1))
  },
  ConcatGrad: call => call.node.outputs.map((_, i) => call.type(i + 1)),
  SliceGrad: sameAs(1),
  PadGrad: sameAs(1),
  TileGrad: sameAs(1),
  ResizeGrad: sameAs(1),
  GatherGrad: sameAs(1),
  ReduceExtremeGrad: sameAs(1),
  ReduceSumGrad: sameAs(1),
  ReduceMeanGrad: sameAs(1),
  SoftmaxCrossEntropyLossGrad: sameAs(1),
  AdamW: sameAs(2, 4, 5),
}
