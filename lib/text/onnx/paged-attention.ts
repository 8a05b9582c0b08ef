// paged-attention.ts: nodes of PagedAttention in the place of the attention of an exported decoder, which knows one
// sequence. Its batch is 1; its sequence is all rows.
import { float, int, ints } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { makeNode, sparkDomain, tensorType, type ValueInfo } from '../../graph/graph.js'
import type { NodeBuilder } from '../../graph/node-builder.js'
import { cacheName } from '../architectures/decoder.js'

/** Where the heads of queries, keys and values are: [1, tokens, heads · size] or [1, heads, tokens, size]. */
export type HeadLayout = 'beside' | 'apart'

/** Queries, keys, values or what attention gives. */
export interface Heads {
  readonly name: string
  readonly layout: HeadLayout
}

/** Attention of a layer. */
export interface AttentionParts {
  readonly layer: number
  readonly heads: number
  readonly kvHeads: number
  readonly headSize: number
  readonly query: Heads
  readonly key: Heads
  readonly value: Heads
  readonly output: Heads
  /** What q · k is multiplied with. */
  readonly scale: number
  /** c of c · tanh(score / c); 0 for none. */
  readonly softcap: number
  /** Keys that a query sees, itself included; Infinity for all. */
  readonly window: number
  /** Cosines and sines of the angles of each row, [tokens, rotated / 2]; '' for no rotation. */
  readonly cosines?: string
  readonly sines?: string
  readonly isInterleaved?: boolean
  /** Scores of a key that has no value, [heads]; weights of a normalization of each head, [head size]. */
  readonly sinks?: string
  readonly queryNorm?: string
  readonly keyNorm?: string
  readonly epsilon?: number
}

/** Inputs that all ragged decoders have but for the caches, all i32. */
export const raggedInputs: readonly ValueInfo[] = [
  { name: 'tokens', type: tensorType('i32', ['tokens']) },
  { name: 'positions', type: tensorType('i32', ['tokens']) },
  { name: 'long', type: tensorType('i32', ['tokens']) },
  { name: 'starts', type: tensorType('i32', ['starts']) },
  { name: 'past', type: tensorType('i32', ['sequences']) },
  { name: 'blocks', type: tensorType('i32', ['sequences', 'table']) },
  { name: 'rows', type: tensorType('i32', ['rows']) },
]

/** Appends the attention of a layer, in an order of dimensions that nodes of any opset can make. */
export function appendPagedAttention(build: NodeBuilder, parts: AttentionParts): void {
  const { layer, heads, kvHeads, headSize, output } = parts
  const width = heads * headSize
  const [query, key, value] = [
    rowsOf(build, parts.query, width),
    rowsOf(build, parts.key, kvHeads * headSize),
    rowsOf(build, parts.value, kvHeads * headSize),
  ]
  const attended = build.fresh(`${output.name}/rows`)
  const inputs = [
    ...[query!, key!, value!, cacheName('keys', layer), cacheName('values', layer)],
    ...['starts', 'past', 'blocks', parts.cosines ?? '', parts.sines ?? '', ''],
    ...[parts.sinks ?? '', parts.queryNorm ?? '', parts.keyNorm ?? ''],
  ]
  const outputs = [attended, cacheName('keys', layer, true), cacheName('values', layer, true)]
  const attributes = {
    num_heads: int(heads),
    kv_num_heads: int(kvHeads),
    scale: float(parts.scale),
    softcap: float(parts.softcap),
    local_window_size: int(parts.window === Number.POSITIVE_INFINITY ? -1 : parts.window),
    rotary_interleaved: int(parts.isInterleaved ? 1 : 0),
    norm_epsilon: float(parts.epsilon ?? 1e-6),
  }
  build.append(
    makeNode('PagedAttention', inputs, outputs, { name: output.name, domain: sparkDomain, attributes }),
  )
  appendOutput(build, attended, output, heads, headSize)
}

/** Rows [tokens, heads · size]. */
function rowsOf(build: NodeBuilder, { name, layout }: Heads, width: number): string {
  const beside = layout === 'beside' ? name : build.add('Transpose', [name], { perm: ints([0, 2, 1, 3]) })
  return build.add('Reshape', [beside, build.constant(Constant.i64([-1, width]))])
}

function appendOutput(
  build: NodeBuilder,
  rows: string,
  { name, layout }: Heads,
  heads: number,
  size: number,
): void {
  if (layout === 'beside') {
    const shape = build.constant(Constant.i64([1, -1, heads * size]))
    build.append(makeNode('Reshape', [rows, shape], [name]))
    return
  }
  const apart = build.add('Reshape', [rows, build.constant(Constant.i64([1, -1, heads, size]))])
  build.append(makeNode('Transpose', [apart], [name], { attributes: { perm: ints([0, 2, 1, 3]) } }))
}
