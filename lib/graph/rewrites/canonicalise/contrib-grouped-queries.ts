// contrib-grouped-queries.ts: GroupQueryAttention as the standard Attention over a past that is scattered into.
import { int, intOf } from '../../attributes.js'
import { onnxNumbers } from '../../element-types.js'
import { makeNode, type Node } from '../../graph.js'
import {
  AttentionBuilder,
  apart,
  attentionAttributes,
  joined,
  lastSize,
  refuse,
} from './attention-builder.js'
import type { Upgrade, UpgradeContext } from './context.js'

/** What is between the inputs of a GroupQueryAttention and its attention. */
interface GroupedQueries {
  readonly build: AttentionBuilder
  readonly node: Node
  readonly context: UpgradeContext
  /** Number of new tokens of each row. */
  readonly length: string
  /** `total_sequence_length`. */
  readonly total: string
  /** Where the new tokens of each row begin among its keys, [B]. */
  readonly starts: string
  /** Where each new token stands among the keys of its row, [B, S]. */
  readonly positions: string
}

/** A row's new tokens come behind its past: `seqlens_k` is the place of the last one. Those of a first prompt begin at 0. */
function groupedQueries(node: Node, context: UpgradeContext): GroupedQueries {
  const build = new AttentionBuilder(node, context)
  const wide = (value: string): string => build.add('Cast', [value], { to: int(onnxNumbers.i64) })
  const length = build.size(node.inputs[0]!, 1)
  const total = build.add('Reshape', [wide(node.inputs[6]!), build.integers([])])
  const last = build.add('Reshape', [wide(node.inputs[5]!), build.integers([-1])])
  const behind = build.add('Sub', [build.add('Add', [last, build.integers(1)]), length])
  const starts = build.add('Where', [build.add('Equal', [length, total]), build.integers(0), behind])
  const counted = build.add('Range', [build.integers(0), length, build.integers(1)])
  const positions = build.add('Add', [build.add('Unsqueeze', [starts, build.integers([1])]), counted])
  return { build, node, context, length, total, starts, positions }
}

/** Queries and keys, rotated by their positions or by `position_ids`. */
function rotated({ build, node, context, positions }: GroupedQueries, parts: readonly string[]): string[] {
  if (intOf(node, 'do_rotary') === 0) return [...parts]
  const [cos = '', sin = '', given = ''] = node.inputs.slice(7)
  const width = 2 * lastSize(node, context, cos)
  const queryAndKey = ['num_heads', 'kv_num_heads'].map((count, i) =>
    build.add('RotaryEmbedding', [parts[i]!, cos, sin, given === '' ? positions : given], {
      num_heads: int(intOf(node, count)),
      interleaved: int(intOf(node, 'rotary_interleaved')),
      rotary_embedding_dim: int(width),
    }),
  )
  return [...queryAndKey, parts[2]!]
}

/** Keys or values of the past with the new ones of each row at their places: as long as the longer of past and total. */
function present(queries: GroupedQueries, past: string, added: string, output: string): Node[] {
  const { build, total, starts } = queries
  if (past === '') return [makeNode('Identity', [added], [output])]
  return [makeNode('TensorScatter', [lengthened(build, past, 2, total), added, starts], [output])]
}

/** `value`, which has four dimensions, with zeros behind it along an axis up to `size`, if it is shorter. */
function lengthened(build: AttentionBuilder, value: string, axis: number, size: string): string {
  const own = build.size(value, axis)
  const missing = build.add('Sub', [build.add('Max', [own, size]), own])
  const pads = build.add(
    'Concat',
    [
      build.integers(Array(4 + axis).fill(0)),
      build.add('Unsqueeze', [missing, build.integers([0])]),
      build.integers(Array(3 - axis).fill(0)),
    ],
    { axis: int(0) },
  )
  return build.add('Pad', [value, pads])
}

/** Which keys a query sees, [B, 1, S, L]: its own and earlier ones, in a window if there is one; what is added to them. */
function visibility({ build, node, context, positions }: GroupedQueries, keys: string): string {
  const size = build.size(keys, 2)
  const columns = build.add('Range', [build.integers(0), size, build.integers(1)])
  const rows = build.add('Unsqueeze', [positions, build.integers([1, 3])])
  const window = intOf(node, 'local_window_size')
  let seen = build.add('LessOrEqual', [columns, rows])
  if (window > 0) {
    const near = build.add('Greater', [columns, build.add('Sub', [rows, build.integers(window)])])
    seen = build.add('And', [seen, near])
  }
  const bias = node.inputs[10] ?? ''
  if (bias === '') return seen
  const never = context.scalar(`${node.outputs[0]}_never`, Number.NEGATIVE_INFINITY, bias)
  return build.add('Where', [seen, lengthened(build, bias, 3, size), never])
}

/**
 * GroupQueryAttention: causal attention to a past whose length is each row's own. Past and present may be buffers of one
 * size, longer than what they hold; what they hold behind a row's last key stays as it is.
 */
export const groupQueryAttention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 12: 'k_scale', 13: 'v_scale', 14: 'q_norm_weight', 15: 'k_norm_weight' },
    { qk_output: 0, causal: 1, sliding_window_cache: 0 },
  )
  const [query = '', key = '', value = '', pastKey = '', pastValue = ''] = node.inputs
  const [queryHeads, heads] = [intOf(node, 'num_heads'), intOf(node, 'kv_num_heads')]
  const queries = groupedQueries(node, context)
  const { build } = queries
  let parts = [query, key, value]
  if (key === '') {
    const size = lastSize(node, context, query) / (queryHeads + 2 * heads)
    parts = build.split(query, [queryHeads * size, heads * size, heads * size])
  }
  const [q = '', ...added] = rotated(queries, parts).map((part, i) =>
    apart(build, part, i === 0 ? queryHeads : heads),
  )
  const [k = '', v = ''] = [1, 2].map(i => node.outputs[i] || context.fresh(`${node.outputs[0]}_present`))
  build.nodes.push(...present(queries, pastKey, added[0]!, k), ...present(queries, pastValue, added[1]!, v))
  const attributes = attentionAttributes(node, queryHeads, heads)
  const y = build.add('Attention', [q, ...withSink(queries, [k, v, visibility(queries, k)])], attributes)
  const last = joined(build, y, node)
  return [...build.nodes, last]
}

/**
 * Keys, values and mask with one key more, which is a vector of zeros like its value: every query gives it the score that
 * `head_sink` has for its head, or 0 with `smooth_softmax`.
 */
function withSink({ build, node, context }: GroupedQueries, [k = '', v = '', mask = '']: string[]): string[] {
  const given = node.inputs[11] ?? ''
  if (given === '' && intOf(node, 'smooth_softmax') <= 0) return [k, v, mask]
  const query = node.inputs[0]!
  const scalar = (value: number): string => context.scalar(`${node.outputs[0]}_sink`, value, query)
  const size = build.size(k, 2)
  const longer = build.add('Add', [size, build.integers(1)])
  const numbers =
    (node.inputs[10] ?? '') === ''
      ? build.add('Where', [mask, scalar(0), scalar(Number.NEGATIVE_INFINITY)])
      : mask
  const score = given === '' ? scalar(0) : build.add('CastLike', [given, query])
  const columns = build.add('Range', [build.integers(0), longer, build.integers(1)])
  const heads = build.add('Reshape', [score, build.integers([1, -1, 1, 1])])
  const sink = build.add('Where', [build.add('Equal', [columns, size]), heads, scalar(0)])
  return [
    lengthened(build, k, 2, longer),
    lengthened(build, v, 2, longer),
    build.add('Add', [lengthened(build, numbers, 3, longer), sink]),
  ]
}
