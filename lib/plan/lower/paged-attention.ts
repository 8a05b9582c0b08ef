// paged-attention.ts: attention over blocks of keys and values, which are written in place.
import { fixSize, multiply, type Size } from '../../core/size.js'
import { givenFloat } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import { pagedInputs } from '../../graph/shapes/paged-attention.js'
import { type PagedCacheType, pagedCacheTypes } from '../../kernels/paged-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import type { LowerTable } from './table.js'

/** The element type of both caches. */
function cacheTypeOf(ctx: Lowering): PagedCacheType {
  const [keys, values] = [ctx.input(pagedInputs.keyCache).dtype, ctx.input(pagedInputs.valueCache).dtype]
  const known = pagedCacheTypes.find(dtype => dtype === keys && dtype === values)
  if (known) return known
  throw ctx.unsupported(
    `keys are ${keys} and values ${values}; both must be one of ${pagedCacheTypes.join(', ')}`,
  )
}

function pagedAttention(ctx: Lowering): void {
  const at = pagedInputs
  const floats = (i: number): Operand => ctx.cast(ctx.input(i), 'f32').buffer.read()
  const floatsIfAny = (i: number): Operand | undefined => (ctx.has(i) ? floats(i) : undefined)
  const table = (i: number): Operand => ctx.cast(ctx.input(i), 'i32').buffer.read()
  const cacheDtype = cacheTypeOf(ctx)
  const isInt8 = cacheDtype === 'i8'
  const [blocks, blockSize, kvHeads, depth] = ctx.shape(at.keyCache) as [Size, Size, Size, Size]
  const window = ctx.integer('local_window_size')
  const y = ctx.scratch(ctx.read(at.query).count)
  ctx.step('pagedAttention', {
    tokens: ctx.shape(at.query)[0]!,
    sequences: ctx.shape(at.past)[0]!,
    heads: ctx.integer('num_heads'),
    kvHeads,
    depth,
    rotary: ctx.has(at.cos) ? multiply(ctx.shape(at.cos)[1]!, 2) : 0,
    blocks,
    blockSize,
    table: ctx.shape(at.block)[1]!,
    scale: givenFloat(ctx.node, 'scale') ?? 1 / Math.sqrt(fixSize(depth)),
    softcap: ctx.number('softcap'),
    epsilon: ctx.number('norm_epsilon'),
    window: window > 0 ? window : 0,
    interleaved: ctx.integer('rotary_interleaved') !== 0,
    query: floats(at.query),
    key: floats(at.key),
    value: floats(at.value),
    queryNorm: floatsIfAny(at.queryNorm),
    keyNorm: floatsIfAny(at.keyNorm),
    cos: floatsIfAny(at.cos),
    sin: floatsIfAny(at.sin),
    sinks: floatsIfAny(at.sinks),
    starts: table(at.starts),
    past: table(at.past),
    block: table(at.block),
    slots: ctx.has(at.slots) ? table(at.slots) : undefined,
    cacheDtype,
    keyCache: ctx.inPlace(at.keyCache, 1),
    valueCache: ctx.inPlace(at.valueCache, 2),
    keyScales: isInt8 ? ctx.inPlace(at.keyScales, 3) : undefined,
    valueScales: isInt8 ? ctx.inPlace(at.valueScales, 4) : undefined,
    y: y.write(),
    compute: ctx.computeOf({ kind: 'values', operands: [] }),
  })
  ctx.give({ dtype: 'f32', shape: ctx.output().shape, buffer: y })
}

/** Lowerings of attention over blocks. */
export const pagedAttentions: LowerTable = { [sparkDomain]: { PagedAttention: pagedAttention } }
