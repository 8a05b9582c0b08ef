// paged-attention.ts: shapes of attention over blocks of keys and values.
import { add, exactDivide, isSize, multiply } from '../../core/size.js'
import { givenInt } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { showShape, tensorOrUnknown } from './context.js'
import type { Shape } from './dimensions.js'
import { expectShape } from './operands.js'
import type { Check, OperatorTable } from './row.js'

/** Inputs of PagedAttention by their index. */
export const pagedInputs = {
  query: 0,
  key: 1,
  value: 2,
  keyCache: 3,
  valueCache: 4,
  starts: 5,
  past: 6,
  block: 7,
  cos: 8,
  sin: 9,
  slots: 10,
  sinks: 11,
  queryNorm: 12,
  keyNorm: 13,
  keyScales: 14,
  valueScales: 15,
} as const

const times = (a: SymbolicDimension, b: SymbolicDimension): SymbolicDimension =>
  isSize(a) && isSize(b) ? multiply(a, b) : null

const expectPaged: Check = ctx => {
  const attribute = (name: string): number => {
    const value = givenInt(ctx.node, name) ?? 0
    if (value < 1) throw ctx.fail(`${name} is ${value}; it must be at least 1`)
    return value
  }
  const outputs = ctx.has(pagedInputs.keyScales) ? 5 : 3
  if (ctx.node.outputs.length !== outputs || ctx.node.outputs.includes(''))
    throw ctx.fail(
      `it has ${ctx.node.outputs.length} outputs; it needs y and all of the ${outputs - 1} next states`,
    )
  const [heads, kvHeads] = [attribute('num_heads'), attribute('kv_num_heads')]
  if (exactDivide(heads, kvHeads) === undefined)
    throw ctx.fail(`${heads} heads of queries cannot share ${kvHeads} of keys`)
  const cache = ctx.shape(pagedInputs.keyCache)
  if (cache && cache.length !== 4) throw ctx.fail(`the keys are ${showShape(cache)}; they need 4 dimensions`)
  const depth = cache?.[3] ?? null
  const tokens = ctx.shape(pagedInputs.query)?.[0] ?? null
  const sequences = ctx.shape(pagedInputs.past)?.[0] ?? null
  const expected: Record<keyof typeof pagedInputs, Shape> = {
    query: [tokens, times(heads, depth)],
    key: [tokens, times(kvHeads, depth)],
    value: [tokens, times(kvHeads, depth)],
    keyCache: [null, null, kvHeads, null],
    valueCache: cache ?? [null, null, kvHeads, null],
    starts: [isSize(sequences) ? add(sequences, 1) : null],
    past: [sequences],
    block: [sequences, null],
    cos: [tokens, null],
    sin: ctx.shape(pagedInputs.cos) ?? [tokens, null],
    slots: [tokens],
    sinks: [heads],
    queryNorm: [depth],
    keyNorm: [depth],
    keyScales: cache?.slice(0, 3) ?? [null, null, kvHeads],
    valueScales: cache?.slice(0, 3) ?? [null, null, kvHeads],
  }
  for (const [name, i] of Object.entries(pagedInputs))
    expectShape(ctx, i, `input ${i}, ${name},`, expected[name as keyof typeof pagedInputs])
  if (ctx.has(pagedInputs.cos) !== ctx.has(pagedInputs.sin))
    throw ctx.fail('it has one of cosines and sines; it needs both, or none')
  const hasScales = [pagedInputs.keyScales, pagedInputs.valueScales].map(i => ctx.has(i))
  const isInt8 = ctx.dtype(pagedInputs.keyCache) === 'i8'
  if (hasScales.some(has => has !== isInt8))
    throw ctx.fail('keys and values of i8 need their scales, inputs 14 and 15, and no others have them')
}

/** Rows of attention over blocks. */
export const pagedAttentions: OperatorTable = {
  [sparkDomain]: {
    PagedAttention: {
      shape: ctx => [
        tensorOrUnknown(ctx.dtype(pagedInputs.query), ctx.shape(pagedInputs.query)),
        ctx.type(pagedInputs.keyCache),
        ctx.type(pagedInputs.valueCache),
        ctx.type(pagedInputs.keyScales),
        ctx.type(pagedInputs.valueScales),
      ],
      check: expectPaged,
      integers: [pagedInputs.starts, pagedInputs.past, pagedInputs.block, pagedInputs.slots],
    },
  },
}
