// attention.ts: shapes of attention.
import { type Dimension, sparkDomain } from '../graph.js'
import { type Call, type Rule, showShape, tensorOrUnknown } from './call.js'
import { compatible, product, type Shape } from './dimensions.js'
import { expectBroadcast, expectShape } from './operands.js'
import { type Check, type OperatorTable, sameAs, sameAsFirst } from './row.js'

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

/** Heads, rows and the length of a row of input `i` of an attention. */
function headsOf(call: Call, i: number, attribute: string): Shape | undefined {
  const shape = call.shape(i)
  if (!shape || shape.length === 4) return shape
  const heads = call.int(attribute, 0)
  const width = shape[2]
  if (shape.length !== 3 || heads < 1) {
    throw call.fail(`input ${i} is ${showShape(shape)}; it needs 4 dimensions, or 3 and ${attribute}`)
  }
  if (typeof width === 'number' && width % heads !== 0)
    throw call.fail(`${attribute} ${heads} does not divide the last size of ${showShape(shape)}`)
  return [shape[0]!, heads, shape[1]!, typeof width === 'number' ? width / heads : null]
}

/** Queries, keys and values, the inputs from `first` on, must have heads that fit together. */
export function expectHeads(call: Call, first: number): readonly [q: Shape, k: Shape, v: Shape] | undefined {
  const q = headsOf(call, first, 'q_num_heads')
  const k = headsOf(call, first + 1, 'kv_num_heads')
  const v = headsOf(call, first + 2, 'kv_num_heads')
  if (!q || !k || !v) return undefined
  const fits =
    compatible(q[0]!, k[0]!) &&
    compatible(q[3]!, k[3]!) &&
    [0, 1, 2].every(axis => compatible(k[axis]!, v[axis]!))
  if (!fits)
    throw call.fail(`${[q, k, v].map(showShape).join(', ')} are no queries, keys and values of one attention`)
  const [heads, shared] = [q[1], k[1]]
  if (typeof heads === 'number' && typeof shared === 'number' && heads % shared !== 0)
    throw call.fail(`${heads} heads of queries cannot share ${shared} of keys`)
  return [q, k, v]
}

const expectAttention: Check = call => {
  const operands = expectHeads(call, 0)
  if (!operands) return
  const [q, k, v] = operands
  for (const [i, own] of [k, v].entries())
    expectShape(call, 4 + i, `past ${i === 0 ? 'keys' : 'values'}`, [own[0]!, own[1]!, null, own[3]!])
  const past = call.has(4) ? (call.shape(4)?.[2] ?? null) : 0
  const keys = typeof k[2] === 'number' && typeof past === 'number' ? k[2] + past : null
  expectMask(call, [q[0]!, q[1]!, q[2]!, keys])
}

/** A mask may be shorter than the keys, which are then not seen. */
function expectMask(call: Call, scores: Shape): void {
  const own = call.shape(3)
  const [width, keys] = [own?.at(-1), scores[3]]
  const shorter = typeof width === 'number' && typeof keys === 'number' && width < keys
  expectBroadcast(call, 3, 'the mask', shorter ? [...scores.slice(0, 3), width] : scores)
}

const expectLinearAttention: Check = call => {
  const x = call.shape(0)
  if (x && x.length !== 3) throw call.fail(`its input is ${showShape(x)}; it must have 3 dimensions`)
  expectHeads(call, 0)
}

const attentionGrad: Rule = call => {
  expectHeads(call, 1)
  return sameAs(1, 2, 3)(call)
}

/** Rows of attention. */
export const attentions: OperatorTable = {
  '': {
    Attention: {
      shape: attention,
      check: expectAttention,
      integers: [6],
      choices: { qk_matmul_output_mode: [0, 1, 2, 3] },
    },
    LinearAttention: {
      shape: linearAttention,
      check: expectLinearAttention,
      choices: { update_rule: ['linear', 'gated', 'delta', 'gated_delta'] },
    },
    RotaryEmbedding: { shape: sameAsFirst, integers: [3] },
  },
  [sparkDomain]: {
    AttentionGrad: { shape: attentionGrad },
  },
}
