// attention.ts: attention and rotary embeddings, as compositions where there is no kernel.
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { HeadStrides } from '../../kernels/network-args.js'
import type { Lowering, Value } from '../lowering.js'
import { broadcastStrides } from '../views.js'
import type { LowerTable } from './table.js'

/** [B, T, H · D] as [B, H, T, D]; what has four dimensions is so already. */
function splitHeads(at: Lowering, x: Value, heads: number): Value {
  if (x.shape.length === 4) return x
  const [batch = 0, length = 0, width = 0] = x.shape
  const parts = at.reshaped(x, [batch, length, heads, width / heads])
  return at.call('Transpose', [parts], { perm: ints([0, 2, 1, 3]) })
}

/** [B, H, T, D] as [B, T, H · D]. */
function joinHeads(at: Lowering, x: Value): Value {
  const [batch = 0, heads = 0, length = 0, depth = 0] = x.shape
  const moved = at.call('Transpose', [x], { perm: ints([0, 2, 1, 3]) })
  return at.reshaped(moved, [batch, length, heads * depth])
}

/** Each head as often as query heads share it. */
function repeatHeads(at: Lowering, x: Value, heads: number): Value {
  const [batch = 0, own = 0, length = 0, depth = 0] = x.shape
  if (own === heads) return x
  const lone = at.call('Unsqueeze', [x, at.ints([2])])
  const repeated = at.call('Expand', [lone, at.ints([batch, own, heads / own, length, depth])])
  return at.reshaped(repeated, [batch, heads, length, depth])
}

const counts = (at: Lowering, count: number, shape: readonly number[]): Value =>
  at.constantOf(
    'i64',
    shape,
    Array.from({ length: count }, (_, i) => i),
  )

/** 0 where `seen` holds, else −∞. */
function maskOf(at: Lowering, seen: Value): Value {
  return at.call('Where', [seen, at.one(0), at.one(Number.NEGATIVE_INFINITY)])
}

/** What decides which keys a query sees. */
interface Visibility {
  readonly queries: number
  readonly keys: number
  readonly past: number
  readonly causal: boolean
}

/**
 * What is added to the scores [B, H, T, S] of the attention whose queries are input `first`: mask, the lengths of padded
 * keys, and causality where `causal` says so; undefined: nothing.
 */
function biasOf(at: Lowering, first: number, { queries, keys, past, causal }: Visibility): Value | undefined {
  const parts: Value[] = []
  const mask = at.inputIfAny(first + 3)
  if (mask) {
    const values = mask.dtype === 'bool' ? maskOf(at, mask) : mask
    const missing = keys - values.shape.at(-1)!
    const pads = values.shape.flatMap(() => 0)
    const ends = values.shape.map((_, axis) => (axis === values.shape.length - 1 ? missing : 0))
    const padding = at.ints([...pads, ...ends])
    parts.push(missing > 0 ? at.call('Pad', [values, padding, at.one(Number.NEGATIVE_INFINITY)]) : values)
  }
  const lengths = at.inputIfAny(first + 6)
  const columns = counts(at, keys, [1, 1, 1, keys])
  const perBatch = lengths && at.reshaped(lengths, [lengths.shape[0]!, 1, 1, 1])
  if (causal) {
    const offset = perBatch ? at.call('Sub', [perBatch, at.one(queries, 'i64')]) : at.one(past, 'i64')
    const last = at.call('Add', [counts(at, queries, [1, 1, queries, 1]), offset])
    parts.push(maskOf(at, at.call('LessOrEqual', [columns, last])))
  }
  if (perBatch) parts.push(maskOf(at, at.call('Less', [columns, perBatch])))
  return parts.reduce<Value | undefined>((sum, part) => (sum ? at.call('Add', [sum, part]) : part), undefined)
}

/** Softmax over the keys; 0 in rows that see none. */
function probabilities(at: Lowering, scores: Value, bias: Value | undefined): Value {
  const result = at.call('Softmax', [scores], { axis: int(-1) })
  if (!bias) return result
  const most = at.call('ReduceMax', [bias, at.ints([-1])])
  const blind = at.call('Equal', [most, at.one(Number.NEGATIVE_INFINITY)])
  return at.call('Where', [blind, at.one(0), result])
}

/** Where the rows of heads are in [B, T, H · D], or in [B, H, T, D]. */
function headStrides(shape: readonly number[], depth: number): HeadStrides {
  const [, first = 0, second = 0] = shape
  return shape.length === 3
    ? [first * second, depth, second]
    : [first * second * depth, second * depth, depth]
}

/** Heads, rows and the length of a row. */
const headSizes = ({ shape }: Value, heads: number): [number, number, number] =>
  shape.length === 3 ? [heads, shape[1]!, shape[2]! / heads] : [shape[1]!, shape[2]!, shape[3]!]

/** Which of keys and values are wanted as [B, H, S, D]. */
type Split = readonly [k: boolean, v: boolean]

/** Operands and sizes of the attention whose queries are input `first`; keys and values with those of the past. */
function attentionOf(at: Lowering, first: number, split: Split) {
  const flat = at.shape(first).length === 3
  const [own, kvOwn] = [at.integer('q_num_heads', 1), at.integer('kv_num_heads', 1)]
  const join = (i: number): Value => {
    const past = first + 3 + i
    if (!at.has(past) && !split[i - 1]) return at.input(first + i)
    const heads = splitHeads(at, at.input(first + i), kvOwn)
    return at.has(past) ? at.call('Concat', [at.input(past), heads], { axis: int(2) }) : heads
  }
  const [q, k, v] = [at.input(first), join(1), join(2)]
  const [heads, queries, depth] = headSizes(q, own)
  const [kvHeads, keys] = headSizes(k, kvOwn)
  const [, , valueDepth] = headSizes(v, kvOwn)
  const past = at.has(first + 4) ? at.shape(first + 4)[2]! : 0
  const isCausal = at.integer('is_causal', 0) !== 0
  const hasLengths = at.has(first + 6)
  const bias = biasOf(at, first, { queries, keys, past, causal: isCausal && hasLengths })
  const batch = q.shape[0]!
  const mask = bias && at.call('Expand', [bias, at.ints([...bias.shape.slice(0, -1), keys])])
  const maskStrides = mask && broadcastStrides(mask.shape, [batch, heads, queries, keys])
  const yStrides: HeadStrides = flat
    ? [queries * heads * valueDepth, valueDepth, heads * valueDepth]
    : [heads * queries * valueDepth, queries * valueDepth, valueDepth]
  const args = {
    ...{ batch, heads, kvHeads, queries, keys, depth, valueDepth },
    ...{ scale: at.number('scale', 1 / Math.sqrt(depth)), softcap: at.number('softcap', 0) },
    ...{ causal: isCausal && !hasLengths, causalOffset: past },
    ...{ q: q.buffer.read(), k: k.buffer.read(), v: v.buffer.read(), mask: mask?.buffer.read() },
    ...{ qStrides: headStrides(q.shape, depth), kStrides: headStrides(k.shape, depth) },
    ...{ vStrides: headStrides(v.shape, valueDepth), maskStrides: maskStrides?.slice(0, 3) as never },
    yStrides,
  }
  return { k, v, past, flat, args }
}

/** Attention in one kernel, which holds no scores. */
function attention(at: Lowering): void {
  if (at.wants(3)) {
    composedAttention(at)
    return
  }
  const { k, v, args } = attentionOf(at, 0, [at.wants(1), at.wants(2)])
  at.give(k, 1)
  at.give(v, 2)
  at.step('attention', { ...args, y: at.write(), compute: at.compute })
}

/** dY, Q, K, V, mask, past K, past V, lengths → dQ, dK, dV. The forward pass is computed again for its sums. */
function attentionGrad(at: Lowering): void {
  const { k, v, past, flat, args } = attentionOf(at, 1, [false, false])
  const [y, logSum] = [at.scratch(at.read(0).count), at.scratch(args.batch * args.heads * args.queries)]
  at.step('attention', { ...args, y: y.write(), logSum: logSum.write() })
  const [dk, dv] = [k, v].map(({ shape, buffer }, i): Value | undefined =>
    at.wants(i + 1) ? { dtype: 'f32', shape, buffer: at.scratch(buffer.count) } : undefined,
  )
  at.step('attentionBackward', {
    ...{ ...args, y: y.read(), logSum: logSum.read(), dy: at.read(0), dq: at.result(0) },
    ...{ dk: dk?.buffer.write(), dv: dv?.buffer.write() },
  })
  for (const [i, whole] of [dk, dv].entries()) {
    if (!whole) continue
    const ends = [past, args.keys, 2].map(number => at.ints([number]))
    const own = at.has(5 + i) ? at.call('Slice', [whole, ...ends]) : whole
    at.give(flat && at.has(5 + i) ? joinHeads(at, own) : own, i + 1)
  }
}

/** Q, K, V, mask, past K, past V, lengths → Y, present K, present V, scores in between */
function composedAttention(at: Lowering): void {
  const q = splitHeads(at, at.input(0), at.integer('q_num_heads', 1))
  const kvHeads = at.integer('kv_num_heads', 1)
  const join = (past: number, value: Value): Value =>
    at.has(past) ? at.call('Concat', [at.input(past), value], { axis: int(2) }) : value
  const k = join(4, splitHeads(at, at.input(1), kvHeads))
  const v = join(5, splitHeads(at, at.input(2), kvHeads))
  at.give(k, 1)
  at.give(v, 2)
  const [, heads = 0, queries = 0, depth = 0] = q.shape
  const root = at.one(Math.sqrt(at.number('scale', 1 / Math.sqrt(depth))))
  const turned = at.call('Transpose', [repeatHeads(at, k, heads)], { perm: ints([0, 1, 3, 2]) })
  let scores = at.call('MatMul', [at.call('Mul', [q, root]), at.call('Mul', [turned, root])])
  const mode = at.integer('qk_matmul_output_mode', 0)
  if (mode === 0) at.give(scores, 3)
  const softcap = at.number('softcap', 0)
  if (softcap > 0) {
    const limit = at.one(softcap)
    scores = at.call('Mul', [at.call('Tanh', [at.call('Div', [scores, limit])]), limit])
  }
  if (mode === 1) at.give(scores, 3)
  const past = at.has(4) ? at.shape(4)[2]! : 0
  const causal = at.integer('is_causal', 0) !== 0
  const bias = biasOf(at, 0, { queries, keys: k.shape[2]!, past, causal })
  if (bias) scores = at.call('Add', [scores, bias])
  if (mode === 2) at.give(scores, 3)
  const weights = probabilities(at, scores, bias)
  if (mode === 3) at.give(weights, 3)
  const y = at.call('MatMul', [weights, repeatHeads(at, v, heads)])
  at.give(at.shape(0).length === 3 ? joinHeads(at, y) : y)
}

/** x, cos, sin, positions: pairs of the first `rotary_embedding_dim` elements of a head are rotated. */
function rotaryEmbedding(at: Lowering): void {
  const x = at.input(0)
  const flat = x.shape.length === 3
  const heads = splitHeads(at, x, at.integer('num_heads', 1))
  const [batch = 0, , length = 0, depth = 0] = heads.shape
  const turning = at.integer('rotary_embedding_dim', 0) || depth
  const angle = (i: number): Value => {
    const cache = at.has(3) ? at.call('Gather', [at.input(i), at.input(3)], { axis: int(0) }) : at.input(i)
    return at.reshaped(cache, [batch, 1, length, turning / 2])
  }
  const part = (value: Value, start: number, end: number, step = 1): Value =>
    at.call('Slice', [value, at.ints([start]), at.ints([end]), at.ints([3]), at.ints([step])])
  const [cos, sin] = [angle(1), angle(2)]
  const interleaved = at.integer('interleaved', 0) !== 0
  const [a, b] = interleaved
    ? [part(heads, 0, turning, 2), part(heads, 1, turning, 2)]
    : [part(heads, 0, turning / 2), part(heads, turning / 2, turning)]
  const product = (left: Value, right: Value): Value => at.call('Mul', [left, right])
  const first = at.call('Sub', [product(a, cos), product(b, sin)])
  const second = at.call('Add', [product(a, sin), product(b, cos)])
  const axis = { axis: int(-1) }
  const stacked = [first, second].map(value => at.call('Unsqueeze', [value, at.ints([4])]))
  const turned = interleaved
    ? at.reshaped(at.call('Concat', stacked, axis), [...heads.shape.slice(0, 3), turning])
    : at.call('Concat', [first, second], axis)
  const whole = turning < depth ? at.call('Concat', [turned, part(heads, turning, depth)], axis) : turned
  at.give(flat ? joinHeads(at, whole) : whole)
}

/** q, k, v [B, T, H · D], past state [B, H, D, E], decay, beta → y and the state after the last step */
function linearAttention(at: Lowering): void {
  const [heads, own] = [at.integer('q_num_heads', 1), at.integer('kv_num_heads', 1)]
  const rule = at.text('update_rule', 'gated_delta')
  const q = splitHeads(at, at.input(0), heads)
  const [k, v] = [splitHeads(at, at.input(1), own), splitHeads(at, at.input(2), own)]
  const [batch = 0, , length = 0, depth = 0] = k.shape
  const gate = (i: number): Value | undefined =>
    at.has(i) ? splitHeads(at, at.input(i), at.shape(i)[2]! < own ? 1 : own) : undefined
  const [decay, beta] = [gate(4), gate(5)]
  if ((rule.startsWith('gated') && !decay) || (rule.endsWith('delta') && !beta))
    throw at.unsupported(`update_rule '${rule}' needs its decay, input 4, and its beta, input 5`)
  const step = (value: Value, t: number): Value =>
    at.call('Slice', [value, at.ints([t]), at.ints([t + 1]), at.ints([2])])
  const column = (value: Value): Value => at.call('Transpose', [value], { perm: ints([0, 1, 3, 2]) })
  const size = at.ints([batch, own, depth, v.shape[3]!])
  let state = at.inputIfAny(3) ?? at.call('Expand', [at.one(0), size])
  const scale = at.one(at.number('scale', 0) || 1 / Math.sqrt(depth))
  const outputs: Value[] = []
  for (let t = 0; t < length; t++) {
    const key = step(k, t)
    if (rule.startsWith('gated')) state = at.call('Mul', [state, at.call('Exp', [column(step(decay!, t))])])
    let value = step(v, t)
    if (rule.endsWith('delta')) {
      const known = at.call('MatMul', [key, state])
      value = at.call('Mul', [at.call('Sub', [value, known]), step(beta!, t)])
    }
    state = at.call('Add', [state, at.call('MatMul', [column(key), value])])
    outputs.push(at.call('MatMul', [at.call('Mul', [step(q, t), scale]), repeatHeads(at, state, heads)]))
  }
  at.give(joinHeads(at, at.call('Concat', outputs, { axis: int(2) })))
  at.give(state, 1)
}

/** Lowerings of attention. */
export const attentions: LowerTable = {
  '': {
    Attention: at => at.inF32(attention),
    LinearAttention: at => at.inF32(linearAttention),
    RotaryEmbedding: at => at.inF32(rotaryEmbedding),
  },
  [sparkDomain]: { AttentionGrad: at => at.inF32(attentionGrad) },
}
