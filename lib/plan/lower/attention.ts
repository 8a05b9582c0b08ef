// attention.ts: attention and rotary embeddings, as compositions where there is no kernel.
import { fixSize, lessThan, multiply, partOf, type Size, sameSize, subtract } from '../../core/size.js'
import { givenFloat, int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { HeadStrides } from '../../kernels/network-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand, Symbolic } from '../program.js'
import type { Value } from '../value.js'
import { broadcastStrides } from '../views.js'
import { positions } from './positions.js'
import type { LowerTable } from './table.js'

/** [B, T, H · D] as [B, H, T, D]; what has four dimensions is so already. */
function splitHeads(ctx: Lowering, x: Value, heads: Size): Value {
  if (x.shape.length === 4) return x
  const [batch = 0, length = 0, width = 0] = x.shape
  const parts = ctx.reshaped(x, [batch, length, heads, partOf(width, heads)])
  return ctx.call('Transpose', [parts], { perm: ints([0, 2, 1, 3]) })
}

/** [B, H, T, D] as [B, T, H · D]. */
function joinHeads(ctx: Lowering, x: Value): Value {
  const [batch = 0, heads = 0, length = 0, depth = 0] = x.shape
  const moved = ctx.call('Transpose', [x], { perm: ints([0, 2, 1, 3]) })
  return ctx.reshaped(moved, [batch, length, multiply(heads, depth)])
}

/** Each head as often as query heads share it. */
function repeatHeads(ctx: Lowering, x: Value, heads: Size): Value {
  const [batch = 0, own = 0, length = 0, depth = 0] = x.shape
  if (sameSize(own, heads)) return x
  const lone = ctx.call('Unsqueeze', [x, ctx.ints([2])])
  const repeated = ctx.call('Expand', [lone, ctx.ints([batch, own, partOf(heads, own), length, depth])])
  return ctx.reshaped(repeated, [batch, heads, length, depth])
}

/** 0, 1, 2 … */
const counts = (ctx: Lowering, count: Size, shape: readonly Size[]): Value =>
  ctx.reshaped(positions(ctx, count), shape)

/** 0 where `seen` holds, else −∞. */
function maskOf(ctx: Lowering, seen: Value): Value {
  return ctx.call('Where', [seen, ctx.one(0), ctx.one(Number.NEGATIVE_INFINITY)])
}

/** What decides which keys a query sees. */
interface Visibility {
  readonly queries: Size
  readonly keys: Size
  readonly past: Size
  readonly causal: boolean
}

/**
 * What is added to the scores [B, H, T, S] of the attention whose queries are input `first`: mask, the lengths of padded
 * keys, and causality where `causal` says so; undefined: nothing.
 */
function biasOf(
  ctx: Lowering,
  first: number,
  { queries, keys, past, causal }: Visibility,
): Value | undefined {
  const parts: Value[] = []
  const mask = ctx.inputIfAny(first + 3)
  if (mask) {
    const values = mask.dtype === 'bool' ? maskOf(ctx, mask) : mask
    const missing = subtract(keys, values.shape.at(-1)!)
    const pads = values.shape.flatMap(() => 0)
    const ends = values.shape.map((_, axis) => (axis === values.shape.length - 1 ? missing : 0))
    const padding = ctx.ints([...pads, ...ends])
    parts.push(
      lessThan(0, missing) ? ctx.call('Pad', [values, padding, ctx.one(Number.NEGATIVE_INFINITY)]) : values,
    )
  }
  const lengths = ctx.inputIfAny(first + 6)
  const columns = counts(ctx, keys, [1, 1, 1, keys])
  const perBatch = lengths && ctx.reshaped(lengths, [lengths.shape[0]!, 1, 1, 1])
  if (causal) {
    const offset = perBatch ? ctx.call('Sub', [perBatch, ctx.one(queries, 'i64')]) : ctx.one(past, 'i64')
    const last = ctx.call('Add', [counts(ctx, queries, [1, 1, queries, 1]), offset])
    parts.push(maskOf(ctx, ctx.call('LessOrEqual', [columns, last])))
  }
  if (perBatch) parts.push(maskOf(ctx, ctx.call('Less', [columns, perBatch])))
  return parts.reduce<Value | undefined>(
    (sum, part) => (sum ? ctx.call('Add', [sum, part]) : part),
    undefined,
  )
}

/** Softmax over the keys; 0 in rows that see none. */
function probabilities(ctx: Lowering, scores: Value, bias: Value | undefined): Value {
  const result = ctx.call('Softmax', [scores], { axis: int(-1) })
  if (!bias) return result
  const max = ctx.call('ReduceMax', [bias, ctx.ints([-1])])
  const blind = ctx.call('Equal', [max, ctx.one(Number.NEGATIVE_INFINITY)])
  return ctx.call('Where', [blind, ctx.one(0), result])
}

/** Where the rows of heads are in [B, T, H · D], or in [B, H, T, D]. */
function headStrides(shape: readonly Size[], depth: Size): Symbolic<HeadStrides> {
  const [, first = 0, second = 0] = shape
  return shape.length === 3
    ? [multiply(first, second), depth, second]
    : [multiply(first, second, depth), multiply(second, depth), depth]
}

/** Heads, rows and the length of a row. */
const headSizes = ({ shape }: Value, heads: number): [Size, Size, Size] =>
  shape.length === 3 ? [heads, shape[1]!, partOf(shape[2]!, heads)] : [shape[1]!, shape[2]!, shape[3]!]

/** Which of keys and values are wanted as [B, H, S, D]. */
type Split = readonly [k: boolean, v: boolean]

/** Operands and sizes of the attention whose queries are input `first`; keys and values with those of the past. */
function attentionOf(ctx: Lowering, first: number, split: Split) {
  const flat = ctx.shape(first).length === 3
  const [own, kvOwn] = [ctx.integer('q_num_heads'), ctx.integer('kv_num_heads')]
  const join = (i: number): Value => {
    const past = first + 3 + i
    if (!ctx.has(past) && !split[i - 1]) return ctx.input(first + i)
    const heads = splitHeads(ctx, ctx.input(first + i), kvOwn)
    return ctx.has(past) ? ctx.call('Concat', [ctx.input(past), heads], { axis: int(2) }) : heads
  }
  const [q, k, v] = [ctx.input(first), join(1), join(2)]
  const [heads, queries, depth] = headSizes(q, own)
  const [kvHeads, keys] = headSizes(k, kvOwn)
  const [, , valueDepth] = headSizes(v, kvOwn)
  const past = ctx.has(first + 4) ? ctx.shape(first + 4)[2]! : 0
  const isCausal = ctx.integer('is_causal') !== 0
  const hasLengths = ctx.has(first + 6)
  const bias = biasOf(ctx, first, { queries, keys, past, causal: isCausal && hasLengths })
  const batch = q.shape[0]!
  const mask = bias && ctx.call('Expand', [bias, ctx.ints([...bias.shape.slice(0, -1), keys])])
  const maskStrides = mask && broadcastStrides(mask.shape, [batch, heads, queries, keys])
  const image = multiply(heads, queries, valueDepth)
  const yStrides: Symbolic<HeadStrides> = flat
    ? [image, valueDepth, multiply(heads, valueDepth)]
    : [image, multiply(queries, valueDepth), valueDepth]
  const args = {
    batch,
    heads,
    kvHeads,
    queries,
    keys,
    depth,
    valueDepth,
    scale: givenFloat(ctx.node, 'scale') ?? 1 / Math.sqrt(fixSize(depth)),
    softcap: ctx.number('softcap'),
    causal: isCausal && !hasLengths,
    causalOffset: past,
    q: q.buffer.read(),
    k: k.buffer.read(),
    v: v.buffer.read(),
    mask: mask?.buffer.read(),
    qStrides: headStrides(q.shape, depth),
    kStrides: headStrides(k.shape, depth),
    vStrides: headStrides(v.shape, valueDepth),
    maskStrides: maskStrides?.slice(0, 3) as never,
    yStrides,
  }
  return { q, k, v, past, flat, args }
}

/** Attention in one kernel, which holds no scores. */
function attention(ctx: Lowering): void {
  if (ctx.wants(3)) {
    composedAttention(ctx)
    return
  }
  const { q, k, v, args } = attentionOf(ctx, 0, [ctx.wants(1), ctx.wants(2)])
  ctx.give(k, 1)
  ctx.give(v, 2)
  const compute = ctx.computeOf({ kind: 'values', operands: [q, k, v] })
  ctx.step('attention', { ...args, y: ctx.write(), compute })
}

/** dY, Q, K, V, mask, past K, past V, lengths → dQ, dK, dV. The forward pass is computed again for its sums. */
function attentionGrad(ctx: Lowering): void {
  const { q, k, v, past, flat, args } = attentionOf(ctx, 1, [false, false])
  const compute = ctx.computeOf({ kind: 'exact', operands: [ctx.input(0), q, k, v] })
  const [y, logSum] = [
    ctx.scratch(ctx.read(0).count),
    ctx.scratch(multiply(args.batch, args.heads, args.queries)),
  ]
  ctx.step('attention', { ...args, y: y.write(), logSum: logSum.write(), compute })
  const [dk, dv] = [k, v].map(({ shape, buffer }, i): Value | undefined =>
    ctx.wants(i + 1) ? { dtype: 'f32', shape, buffer: ctx.scratch(buffer.count) } : undefined,
  )
  ctx.step('attentionBackward', {
    ...args,
    y: y.read(),
    logSum: logSum.read(),
    dy: ctx.read(0),
    dq: ctx.result(0),
    dk: dk?.buffer.write(),
    dv: dv?.buffer.write(),
    compute,
  })
  for (const [i, whole] of [dk, dv].entries()) {
    if (!whole) continue
    const ends = [past, args.keys, 2].map(number => ctx.ints([number]))
    const own = ctx.has(5 + i) ? ctx.call('Slice', [whole, ...ends]) : whole
    ctx.give(flat && ctx.has(5 + i) ? joinHeads(ctx, own) : own, i + 1)
  }
}

/** Q, K, V, mask, past K, past V, lengths → Y, present K, present V, scores in between */
function composedAttention(ctx: Lowering): void {
  const q = splitHeads(ctx, ctx.input(0), ctx.integer('q_num_heads'))
  const kvHeads = ctx.integer('kv_num_heads')
  const join = (past: number, value: Value): Value =>
    ctx.has(past) ? ctx.call('Concat', [ctx.input(past), value], { axis: int(2) }) : value
  const k = join(4, splitHeads(ctx, ctx.input(1), kvHeads))
  const v = join(5, splitHeads(ctx, ctx.input(2), kvHeads))
  ctx.give(k, 1)
  ctx.give(v, 2)
  const [, heads = 0, queries = 0, depth = 0] = q.shape
  const root = ctx.one(Math.sqrt(givenFloat(ctx.node, 'scale') ?? 1 / Math.sqrt(fixSize(depth))))
  const keys = ctx.call('Transpose', [repeatHeads(ctx, k, heads)], { perm: ints([0, 1, 3, 2]) })
  let scores = ctx.call('MatMul', [ctx.call('Mul', [q, root]), ctx.call('Mul', [keys, root])])
  const mode = ctx.integer('qk_matmul_output_mode')
  if (mode === 0) ctx.give(scores, 3)
  const softcap = ctx.number('softcap')
  if (softcap > 0) {
    const limit = ctx.one(softcap)
    scores = ctx.call('Mul', [ctx.call('Tanh', [ctx.call('Div', [scores, limit])]), limit])
  }
  if (mode === 1) ctx.give(scores, 3)
  const past = ctx.has(4) ? ctx.shape(4)[2]! : 0
  const causal = ctx.integer('is_causal') !== 0
  const bias = biasOf(ctx, 0, { queries, keys: k.shape[2]!, past, causal })
  if (bias) scores = ctx.call('Add', [scores, bias])
  if (mode === 2) ctx.give(scores, 3)
  const weights = probabilities(ctx, scores, bias)
  if (mode === 3) ctx.give(weights, 3)
  const y = ctx.call('MatMul', [weights, repeatHeads(ctx, v, heads)])
  ctx.give(ctx.shape(0).length === 3 ? joinHeads(ctx, y) : y)
}

/** x, cos, sin, positions: pairs of the first `rotary_embedding_dim` elements of a head are rotated. */
function rotaryEmbedding(ctx: Lowering): void {
  const { shape } = ctx.input(0)
  const headsFirst = shape.length === 4
  const [batch = 0, second = 0, third = 0] = shape
  const [heads, tokens] = headsFirst ? [second, third] : [ctx.integer('num_heads'), second]
  const depth = fixSize(headsFirst ? shape[3]! : partOf(third, heads))
  const rotary = ctx.integer('rotary_embedding_dim') || depth
  const angles = (i: number): Operand => {
    const cache = ctx.has(3)
      ? ctx.call('Gather', [ctx.input(i), ctx.input(3)], { axis: int(0) })
      : ctx.input(i)
    return ctx.reshaped(cache, [batch, tokens, rotary / 2]).buffer.read()
  }
  ctx.step('rotary', {
    ...{ batch, tokens, heads, depth, rotary },
    interleaved: ctx.integer('interleaved') !== 0,
    headsFirst,
    x: ctx.read(0),
    cos: angles(1),
    sin: angles(2),
    y: ctx.write(),
  })
}

/** q, k, v [B, T, H · D], past state [B, H, D, E], decay, beta → y and the state after the last step */
function linearAttention(ctx: Lowering): void {
  const [heads, own] = [ctx.integer('q_num_heads'), ctx.integer('kv_num_heads')]
  const rule = ctx.text('update_rule')
  const q = splitHeads(ctx, ctx.input(0), heads)
  const [k, v] = [splitHeads(ctx, ctx.input(1), own), splitHeads(ctx, ctx.input(2), own)]
  const [batch = 0, , length = 0, depth = 0] = k.shape
  const gate = (i: number): Value | undefined =>
    ctx.has(i) ? splitHeads(ctx, ctx.input(i), lessThan(ctx.shape(i)[2]!, own) ? 1 : own) : undefined
  const [decay, beta] = [gate(4), gate(5)]
  if ((rule.startsWith('gated') && !decay) || (rule.endsWith('delta') && !beta))
    throw ctx.unsupported(`update_rule '${rule}' needs its decay, input 4, and its beta, input 5`)
  const step = (value: Value, t: number): Value =>
    ctx.call('Slice', [value, ctx.ints([t]), ctx.ints([t + 1]), ctx.ints([2])])
  const column = (value: Value): Value => ctx.call('Transpose', [value], { perm: ints([0, 1, 3, 2]) })
  const size = ctx.ints([batch, own, depth, v.shape[3]!])
  let state = ctx.inputIfAny(3) ?? ctx.call('Expand', [ctx.one(0), size])
  const scale = ctx.one(ctx.number('scale') || 1 / Math.sqrt(fixSize(depth)))
  const outputs: Value[] = []
  for (let t = 0; t < fixSize(length); t++) {
    const key = step(k, t)
    if (rule.startsWith('gated')) state = ctx.call('Mul', [state, ctx.call('Exp', [column(step(decay!, t))])])
    let value = step(v, t)
    if (rule.endsWith('delta')) {
      const known = ctx.call('MatMul', [key, state])
      value = ctx.call('Mul', [ctx.call('Sub', [value, known]), step(beta!, t)])
    }
    state = ctx.call('Add', [state, ctx.call('MatMul', [column(key), value])])
    outputs.push(ctx.call('MatMul', [ctx.call('Mul', [step(q, t), scale]), repeatHeads(ctx, state, heads)]))
  }
  ctx.give(joinHeads(ctx, ctx.call('Concat', outputs, { axis: int(2) })))
  ctx.give(state, 1)
}

/** Lowerings of attention. */
export const attentions: LowerTable = {
  '': {
    Attention: ctx => ctx.inF32(attention),
    LinearAttention: ctx => ctx.inF32(linearAttention),
    RotaryEmbedding: ctx => ctx.inF32(rotaryEmbedding),
  },
  [sparkDomain]: { AttentionGrad: ctx => ctx.inF32(attentionGrad) },
}
