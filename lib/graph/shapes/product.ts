// product.ts: shapes of matrix products and attention.
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, type Rule, showShape, tensorOrUnknown } from './call.js'
import { compatible, product, type Shape } from './dimensions.js'
import { expectBroadcast } from './operands.js'

function matMul(call: Call, left: number, right: number): Shape | undefined {
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

/** Subscripts of an Einsum: letters of each operand and of the result, `.` standing for the ellipsis. */
function subscripts(call: Call): { operands: string[]; result: string } {
  const [left = '', right] = stringOf(call.node, 'equation', '')
    .replaceAll(/\s/g, '')
    .replaceAll('...', '.')
    .split('->')
  const operands = left.split(',')
  const letters = [...operands.join('')].filter(letter => letter !== '.')
  const once = [...new Set(letters)].filter(letter => letters.indexOf(letter) === letters.lastIndexOf(letter))
  return { operands, result: right ?? (left.includes('.') ? '.' : '') + once.sort().join('') }
}

/** Shape of a sum of products whose operands are the inputs from `first` on. */
export function einsum(call: Call, first = 0): Shape | undefined {
  const { operands, result } = subscripts(call)
  const count = call.node.inputs.length - first
  if (operands.length !== count)
    throw call.fail(`its equation describes ${operands.length} operands of ${count}`)
  const sizes = new Map<string, Dimension>()
  let ellipsis: Shape | undefined = []
  for (const [i, letters] of operands.entries()) {
    const shape = call.shape(first + i)
    if (!shape) return undefined
    const dots = shape.length - letters.replace('.', '').length
    if (dots < 0 || (dots > 0 && !letters.includes('.'))) {
      throw call.fail(`'${letters}' does not describe ${showShape(shape)}`)
    }
    const start = letters.indexOf('.')
    if (start >= 0) ellipsis = call.broadcast([ellipsis, shape.slice(start, start + dots)])
    const named = start < 0 ? shape : [...shape.slice(0, start), ...shape.slice(start + dots)]
    for (const [at, letter] of [...letters.replace('.', '')].entries()) {
      const known = sizes.get(letter) ?? 1
      if (known !== 1 && named[at] !== 1 && !compatible(known, named[at]!)) {
        throw call.fail(`'${letter}' is ${known} and ${named[at]}`)
      }
      sizes.set(letter, known === 1 ? named[at]! : known)
    }
  }
  return [...result].flatMap(letter => (letter === '.' ? (ellipsis ?? []) : [sizes.get(letter) ?? null]))
}

/** Attention: 3-dimensional operands hold their heads side by side, 4-dimensional ones in an axis. */
const attention: Rule = call => {
  const [q, k, v] = [call.shape(0), call.shape(1), call.shape(2)]
  const dtype = call.dtype(0)
  if (!q || !k || !v) return [tensorOrUnknown(dtype, undefined)]
  const flat = q.length === 3
  const queryHeads = flat ? call.int('q_num_heads', 1) : q[1]!
  const heads = flat ? call.int('kv_num_heads', 1) : k[1]!
  const each = (dim: Dimension): Dimension =>
    typeof dim === 'number' && typeof heads === 'number' ? dim / heads : null
  const [keySize, valueSize] = flat ? [each(k[2]!), each(v[2]!)] : [k[3]!, v[3]!]
  const past = call.has(4) ? (call.shape(4)?.[2] ?? null) : 0
  const length = k[k.length - 2]!
  const total =
    past === 0 ? length : typeof past === 'number' && typeof length === 'number' ? past + length : null
  const queries = q[q.length - 2]!
  const output = flat
    ? [q[0]!, queries, product([queryHeads, valueSize])]
    : [q[0]!, queryHeads, queries, valueSize]
  return [
    tensorOrUnknown(dtype, output),
    tensorOrUnknown(call.dtype(1), [k[0]!, heads, total, keySize]),
    tensorOrUnknown(call.dtype(2), [v[0]!, heads, total, valueSize]),
    tensorOrUnknown(dtype, [q[0]!, queryHeads, queries, total]),
  ]
}

/** Linear attention: a state of keys by values in the place of a past. */
const linearAttention: Rule = call => {
  const [q, k, v] = [call.shape(0), call.shape(1), call.shape(2)]
  const heads = call.int('kv_num_heads', 1)
  const each = (dim: Dimension | undefined): Dimension => (typeof dim === 'number' ? dim / heads : null)
  const values = each(v?.[2])
  const width = typeof values === 'number' ? values * call.int('q_num_heads', 1) : null
  return [
    tensorOrUnknown(call.dtype(0), q && [q[0]!, q[1]!, width]),
    call.has(3)
      ? call.type(3)
      : tensorOrUnknown(call.dtype(0), [q?.[0] ?? null, heads, each(k?.[2]), values]),
  ]
}

/** Rules by operator. */
export const productRules: Readonly<Record<string, Rule>> = {
  MatMul: call => [tensorOrUnknown(call.commonDtype([0, 1]), matMul(call, 0, 1))],
  MatMulInteger: call => [tensorOrUnknown('i32', matMul(call, 0, 1))],
  QLinearMatMul: call => [tensorOrUnknown(call.dtype(7), matMul(call, 0, 3))],
  Gemm: call => [tensorOrUnknown(call.commonDtype([0, 1, 2]), gemm(call))],
  Einsum: call => [tensorOrUnknown(call.commonDtype(), einsum(call))],
  Det: call => [tensorOrUnknown(call.dtype(0), call.shape(0)?.slice(0, -2))],
  Attention: attention,
  LinearAttention: linearAttention,
}
