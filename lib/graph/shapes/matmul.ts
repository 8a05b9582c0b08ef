// matmul.ts: shapes of matrix products.
import { sparkDomain } from '../graph.js'
import { type Call, type Rule, showShape, tensorOrUnknown } from './call.js'
import { compatible, type Shape } from './dimensions.js'
import { expectBroadcast } from './operands.js'
import { f32, type OperatorTable } from './row.js'

export function matMul(call: Call, left: number, right: number): Shape | undefined {
  return matMulOf(call, call.shape(left), call.shape(right))
}

/** Shape of a product of stacks of matrices, where one dimension is a vector. */
export function matMulOf(call: Call, a: Shape | undefined, b: Shape | undefined): Shape | undefined {
  if (!a || !b) return undefined
  if (a.length === 0 || b.length === 0) throw call.fail('an operand has no dimensions')
  const [rows, inner] = a.length === 1 ? [[], a[0]!] : [[a.at(-2)!], a.at(-1)!]
  const [columns, other] = b.length === 1 ? [[], b[0]!] : [[b.at(-1)!], b.at(-2)!]
  if (!compatible(inner, other))
    throw call.fail(`${showShape(a)} times ${showShape(b)}: ${inner} is not ${other}`)
  return [...call.broadcast([a.slice(0, -2), b.slice(0, -2)])!, ...rows, ...columns]
}

function gemm(call: Call): Shape | undefined {
  const [a, b] = [call.shape(0), call.shape(1)]
  if (!a || !b) return undefined
  if (a.length !== 2 || b.length !== 2)
    throw call.fail(`${showShape(a)} times ${showShape(b)} are not matrices`)
  const [rows, inner] = call.int('transA', 0) ? [a[1]!, a[0]!] : [a[0]!, a[1]!]
  const [other, columns] = call.int('transB', 0) ? [b[1]!, b[0]!] : [b[0]!, b[1]!]
  if (!compatible(inner, other))
    throw call.fail(`${showShape(a)} times ${showShape(b)}: ${inner} is not ${other}`)
  expectBroadcast(call, 2, 'C', [rows, columns])
  return [rows, columns]
}

export const transposedIf = (shape: Shape | undefined, swap: boolean): Shape | undefined =>
  shape && swap ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape

const fusedMatMul: Rule = call => {
  const [left, right] = [call.int('transA', 0) !== 0, call.int('transB', 0) !== 0]
  return f32(matMulOf(call, transposedIf(call.shape(0), left), transposedIf(call.shape(1), right)))
}

const fusedLinear: Rule = call => {
  const swap = call.int('transB', 0) !== 0
  return [
    tensorOrUnknown(
      call.commonDtype([0, 1, 2, 3]),
      matMulOf(call, call.shape(0), transposedIf(call.shape(1), swap)),
    ),
  ]
}

/** Rows of matrix products. */
export const matmuls: OperatorTable = {
  '': {
    MatMul: { shape: call => [tensorOrUnknown(call.commonDtype([0, 1]), matMul(call, 0, 1))] },
    Gemm: { shape: call => [tensorOrUnknown(call.commonDtype([0, 1, 2]), gemm(call))] },
    Det: { shape: call => [tensorOrUnknown(call.dtype(0), call.shape(0)?.slice(0, -2))] },
  },
  [sparkDomain]: {
    FusedMatMul: { shape: fusedMatMul },
    FusedLinear: { shape: fusedLinear },
  },
}
