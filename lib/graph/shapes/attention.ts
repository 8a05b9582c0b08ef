// attention.ts: shapes of attention.
import { add, exactDivide, isSize, lessThan, multiply } from '../../core/size.js'
import { givenInt } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import { compatible, product, type Shape } from './dimensions.js'
import { expectBroadcast, expectShape } from './operands.js'
import { type Check, type OperatorTable, sameAs, sameAsFirst } from './row.js'

/** Attention: 3-dimensional operands hold their heads side by side, 4-dimensional ones in an axis. */
const attention: Rule = ctx => {
  const [q, k, v] = [ctx.shape(0), ctx.shape(1), ctx.shape(2)]
  const dtype = ctx.dtype(0)
  if (!q || !k || !v) return [tensorOrUnknown(dtype, undefined)]
  const flat = q.length === 3
  const queryHeads = flat ? ctx.int('q_num_heads') : q[1]!
  const heads = flat ? ctx.int('kv_num_heads') : k[1]!
  const each = (dim: SymbolicDimension): SymbolicDimension =>
    isSize(dim) && isSize(heads) ? (exactDivide(dim, heads) ?? null) : null
  const [keySize, valueSize] = flat ? [each(k[2]!), each(v[2]!)] : [k[3]!, v[3]!]
  const past = ctx.has(4) ? (ctx.shape(4)?.[2] ?? null) : 0
  const length = k[k.length - 2]!
  const total = past === 0 ? length : isSize(past) && isSize(length) ? add(past, length) : null
  const queries = q[q.length - 2]!
  const output = flat
    ? [q[0]!, queries, product([queryHeads, valueSize])]
    : [q[0]!, queryHeads, queries, valueSize]
  return [
    tensorOrUnknown(dtype, output),
    tensorOrUnknown(ctx.dtype(1), [k[0]!, heads, total, keySize]),
    tensorOrUnknown(ctx.dtype(2), [v[0]!, heads, total, valueSize]),
    tensorOrUnknown(dtype, [q[0]!, queryHeads, queries, total]),
  ]
}

/** Linear attention: a state of keys by values in the place of a past. */
const linearAttention: Rule = ctx => {
  const [q, k, v] = [ctx.shape(0), ctx.shape(1), ctx.shape(2)]
  const heads = ctx.int('kv_num_heads')
  const each = (dim: SymbolicDimension | undefined): SymbolicDimension =>
    isSize(dim) ? (exactDivide(dim, heads) ?? null) : null
  const values = each(v?.[2])
  const width = isSize(values) ? multiply(values, ctx.int('q_num_heads')) : null
  return [
    tensorOrUnknown(ctx.dtype(0), q && [q[0]!, q[1]!, width]),
    ctx.has(3) ? ctx.type(3) : tensorOrUnknown(ctx.dtype(0), [q?.[0] ?? null, heads, each(k?.[2]), values]),
  ]
}

/** Heads, rows and the length of a row of input `i` of an attention. */
function headsOf(ctx: ShapeContext, i: number, attribute: string): Shape | undefined {
  const shape = ctx.shape(i)
  if (!shape || shape.length === 4) return shape
  const heads = givenInt(ctx.node, attribute) ?? 0
  const width = shape[2]
  if (shape.length !== 3 || heads < 1) {
    throw ctx.fail(`input ${i} is ${showShape(shape)}; it needs 4 dimensions, or 3 and ${attribute}`)
  }
  const depth = isSize(width) ? exactDivide(width, heads) : null
  if (depth === undefined)
    throw ctx.fail(`${attribute} ${heads} does not divide the last size of ${showShape(shape)}`)
  return [shape[0]!, heads, shape[1]!, depth]
}

/** Queries, keys and values, the inputs from `first` on, must have heads that fit together. */
export function expectHeads(
  ctx: ShapeContext,
  first: number,
): readonly [q: Shape, k: Shape, v: Shape] | undefined {
  const q = headsOf(ctx, first, 'q_num_heads')
  const k = headsOf(ctx, first + 1, 'kv_num_heads')
  const v = headsOf(ctx, first + 2, 'kv_num_heads')
  if (!q || !k || !v) return undefined
  const fits =
    compatible(q[0]!, k[0]!) &&
    compatible(q[3]!, k[3]!) &&
    [0, 1, 2].every(axis => compatible(k[axis]!, v[axis]!))
  if (!fits)
    throw ctx.fail(`${[q, k, v].map(showShape).join(', ')} are no queries, keys and values of one attention`)
  const [heads, shared] = [q[1], k[1]]
  if (isSize(heads) && isSize(shared) && exactDivide(heads, shared) === undefined)
    throw ctx.fail(`${heads} heads of queries cannot share ${shared} of keys`)
  return [q, k, v]
}

const expectAttention: Check = ctx => {
  const operands = expectHeads(ctx, 0)
  if (!operands) return
  const [q, k, v] = operands
  for (const [i, own] of [k, v].entries())
    expectShape(ctx, 4 + i, `past ${i === 0 ? 'keys' : 'values'}`, [own[0]!, own[1]!, null, own[3]!])
  const past = ctx.has(4) ? (ctx.shape(4)?.[2] ?? null) : 0
  const keys = isSize(k[2]) && isSize(past) ? add(k[2], past) : null
  expectMask(ctx, [q[0]!, q[1]!, q[2]!, keys])
}

/** A mask may be shorter than the keys, which are then not seen. */
function expectMask(ctx: ShapeContext, scores: Shape): void {
  const own = ctx.shape(3)
  const [width, keys] = [own?.at(-1), scores[3]]
  const shorter = isSize(width) && isSize(keys) && lessThan(width, keys)
  expectBroadcast(ctx, 3, 'the mask', shorter ? [...scores.slice(0, 3), width] : scores)
}

const expectLinearAttention: Check = ctx => {
  const x = ctx.shape(0)
  if (x && x.length !== 3) throw ctx.fail(`its input is ${showShape(x)}; it must have 3 dimensions`)
  expectHeads(ctx, 0)
}

/** Heads have an even number of elements that are rotated, and cos and sin an angle for each two of them. */
const expectRotary: Check = ctx => {
  const x = ctx.shape(0)
  if (!x) return
  const heads = ctx.int('num_heads')
  const isFlat = x.length === 3
  if (!isFlat && x.length !== 4)
    throw ctx.fail(`its input is ${showShape(x)}; it must have 3 or 4 dimensions`)
  const width = x.at(-1)!
  const depth = isFlat && isSize(width) ? (heads < 1 ? undefined : exactDivide(width, heads)) : width
  if (depth === undefined)
    throw ctx.fail(`num_heads ${heads} does not divide the last size of ${showShape(x)}`)
  const rotated = ctx.int('rotary_embedding_dim') || depth
  const isKnown = typeof rotated === 'number'
  if (isKnown && (rotated % 2 !== 0 || (typeof depth === 'number' && rotated > depth)))
    throw ctx.fail(`it cannot rotate ${rotated} elements of heads of ${depth}: an even number, at most all`)
  const angles = isKnown ? rotated / 2 : null
  const rows = [x[0]!, x[isFlat ? 1 : 2]!]
  for (const [i, name] of ['cos_cache', 'sin_cache'].entries())
    expectShape(ctx, 1 + i, name, ctx.has(3) ? [null, angles] : [...rows, angles])
  if (ctx.has(3)) expectShape(ctx, 3, 'position_ids', rows)
}

const attentionGrad: Rule = ctx => {
  expectHeads(ctx, 1)
  return sameAs(1, 2, 3)(ctx)
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
    RotaryEmbedding: { shape: sameAsFirst, check: expectRotary, integers: [3] },
  },
  [sparkDomain]: {
    AttentionGrad: { shape: attentionGrad },
  },
}
