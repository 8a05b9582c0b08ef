// contrib-paged.ts: PagedAttention of com.microsoft as that of our own domain, whose angles are those of rows.
import { float, floatOf, givenFloat, givenString, int, intOf } from '../../attributes.js'
import { onnxNumbers } from '../../element-types.js'
import { makeNode, type Node, sparkDomain } from '../../graph.js'
import { AttentionBuilder, lastSize, refuse } from './attention-builder.js'
import type { Upgrade, UpgradeContext } from './context.js'

/** Attributes of other forms of keys and values, by the value that says there are none. */
const usualTexts = {
  k_quant_type: 'NONE',
  v_quant_type: 'NONE',
  k_cache_dtype: '',
  v_cache_dtype: '',
  kv_cache_layout: 'SEPARATE',
} as const

/** The position of each row in its sequence, within a table of `length` positions; that of padding is any. */
function positionsOf(build: AttentionBuilder, node: Node, length: string): string {
  const wide = (value: string): string => build.add('Cast', [value], { to: int(onnxNumbers.i64) })
  const [zero, one] = [build.integers(0), build.integers(1)]
  const [starts, past] = [wide(node.inputs[5]!), wide(node.inputs[6]!)]
  const rows = build.add('Range', [zero, build.size(node.inputs[0]!, 0), one])
  const last = build.add('Sub', [build.size(past, 0), one])
  const ends = build.add('Slice', [starts, ...[[1], [2 ** 31 - 1], [0]].map(list => build.integers(list))])
  const columns = [
    build.add('Unsqueeze', [rows, build.integers([1])]),
    build.add('Unsqueeze', [ends, build.integers([0])]),
  ]
  const passed = wide(build.add('GreaterOrEqual', columns))
  const count = build.add('ReduceSum', [passed, build.integers([1])], { keepdims: int(0) })
  const sequence = build.add('Min', [count, last])
  const first = build.add('Gather', [starts, sequence])
  const offset = build.add('Sub', [rows, first])
  const position = build.add('Add', [build.add('Gather', [past, sequence]), offset])
  return build.add('Max', [build.add('Min', [position, build.add('Sub', [length, one])]), zero])
}

/** Cosines and sines of the rows; '' where nothing is rotated. */
function anglesOf(build: AttentionBuilder, node: Node): string[] {
  if (intOf(node, 'do_rotary') === 0) return ['', '']
  const tables = node.inputs.slice(8, 10)
  const positions = positionsOf(build, node, build.size(tables[0]!, 0))
  return tables.map(table => build.add('Gather', [table, positions]))
}

/** Queries, keys and values, which may lie side by side in the first input. */
function operandsOf(build: AttentionBuilder, node: Node, context: UpgradeContext): string[] {
  const [query = '', key = '', value = ''] = node.inputs
  if (key !== '') return [query, key, value]
  const [heads, kvHeads] = [intOf(node, 'num_heads'), intOf(node, 'kv_num_heads')]
  const size = lastSize(node, context, query) / (heads + 2 * kvHeads)
  return build.split(query, [heads * size, kvHeads * size, kvHeads * size])
}

const pagedAttention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 10: 'slot_mapping', 14: 'k_scale', 15: 'v_scale' },
    { smooth_softmax: 0, causal: 1, rotary_offset: 0, v_head_size: 0 },
  )
  for (const [name, usual] of Object.entries(usualTexts)) {
    const value = givenString(node, name) ?? usual
    if (value !== usual) throw context.unsupported(node, `${name} '${value}' has no standard form`)
  }
  const build = new AttentionBuilder(node, context)
  const operands = operandsOf(build, node, context)
  const [keys = '', values = '', starts = '', past = '', table = ''] = node.inputs.slice(3)
  const [sinks = '', queryNorm = '', keyNorm = ''] = node.inputs.slice(11)
  const inputs = [
    ...operands,
    keys,
    values,
    starts,
    past,
    table,
    ...anglesOf(build, node),
    '',
    sinks,
    queryNorm,
    keyNorm,
  ]
  const outputs = [0, 1, 2].map(i => node.outputs[i] || context.fresh(`${node.outputs[0]}_cache`))
  const scale = givenFloat(node, 'scale') ?? 0
  const attributes = {
    ...Object.fromEntries(
      ['num_heads', 'kv_num_heads', 'local_window_size', 'rotary_interleaved'].map(name => [
        name,
        int(intOf(node, name)),
      ]),
    ),
    softcap: float(floatOf(node, 'softcap')),
    norm_epsilon: float(floatOf(node, 'qk_norm_epsilon')),
    ...(scale !== 0 && { scale: float(scale) }),
  }
  const attention = makeNode('PagedAttention', inputs, outputs, {
    domain: sparkDomain,
    name: node.name,
    attributes,
  })
  return [...build.nodes, attention]
}

/** Upgrades by operator. */
export const contribPaged: Readonly<Record<string, Upgrade>> = { PagedAttention: pagedAttention }
