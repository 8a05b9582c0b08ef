// contrib-attention.ts: contributed attention operators as the standard Attention and RotaryEmbedding.

import { float, floatOf, int, intOf, ints } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { onnxNumbers } from '../../element-types.js'
import { type Attributes, makeNode, type Node } from '../../graph.js'
import type { Upgrade, UpgradeContext } from './context.js'

/** Collects the nodes that replace one. */
class Builder {
  readonly nodes: Node[] = []
  readonly #node: Node
  readonly #context: UpgradeContext

  constructor(node: Node, context: UpgradeContext) {
    this.#node = node
    this.#context = context
  }

  /** Appends a node and names its output. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}): string {
    const output = this.#context.fresh(`${this.#node.outputs[0]}_${op}`)
    this.nodes.push(makeNode(op, inputs, [output], { attributes }))
    return output
  }

  /** Appends a Split along the last axis, or along the only one. */
  split(value: string, sizes: readonly number[]): string[] {
    const outputs = sizes.map((_, i) => this.#context.fresh(`${value}_part${i}`))
    this.nodes.push(
      makeNode('Split', [value, this.integers(sizes)], outputs, { attributes: { axis: int(-1) } }),
    )
    return outputs
  }

  integers(values: number | readonly number[]): string {
    return this.#context.constant(`${this.#node.outputs[0]}_sizes`, Constant.i64(values))
  }

  /** Size of one dimension, as a scalar. */
  size(value: string, axis: number): string {
    return this.add('Gather', [this.add('Shape', [value]), this.integers(axis)])
  }
}

/** Refuses inputs and attributes that have no standard counterpart. */
function refuse(
  node: Node,
  context: UpgradeContext,
  inputs: Record<number, string>,
  attributes: Record<string, number>,
): void {
  for (const [i, name] of Object.entries(inputs)) {
    if ((node.inputs[Number(i)] ?? '') !== '')
      throw context.unsupported(node, `its input ${name} has no standard form`)
  }
  for (const [name, usual] of Object.entries(attributes)) {
    const value = intOf(node, name, usual)
    if (value !== usual) throw context.unsupported(node, `${name} ${value} has no standard form`)
  }
}

function lastSize(node: Node, context: UpgradeContext, name: string): number {
  const size = context.shape(name)?.at(-1)
  if (typeof size !== 'number') throw context.unsupported(node, `the last size of '${name}' must be known`)
  return size
}

function attentionAttributes(node: Node, queryHeads: number, heads: number): Attributes {
  const scale = floatOf(node, 'scale', 0)
  const softcap = floatOf(node, 'softcap', 0)
  return {
    q_num_heads: int(queryHeads),
    kv_num_heads: int(heads),
    ...(scale !== 0 && { scale: float(scale) }),
    ...(softcap !== 0 && { softcap: float(softcap) }),
  }
}

/** What masks and lengths add to the scores of an attention. */
interface Masking {
  readonly build: Builder
  readonly node: Node
  readonly context: UpgradeContext
  /** What a hidden key gets. */
  readonly filter: number
}

/**
 * A mask of integers as numbers to be added to scores: [B] how many keys are seen, [B, L] which ones (1), [B, S, L] which
 * ones by each query.
 */
function maskOfIntegers({ build, node, context, filter }: Masking, name: string, keys: string): string {
  const queries = node.inputs[0]!
  const rank = context.shape(name)?.length
  const axes = { 1: [1, 2, 3], 2: [1, 2], 3: [1] }[rank ?? 0]
  const counted = rank === 1 && typeof context.shape(name)?.[0] === 'number'
  if (!axes || (rank === 1 && !counted)) {
    throw context.unsupported(node, `a mask of the form ${context.shape(name)} is not supported`)
  }
  const wide = build.add('Unsqueeze', [name, build.integers(axes)])
  const columns = (): string =>
    build.add('Range', [build.integers(0), build.size(keys, 1), build.integers(1)])
  const seen =
    rank === 1
      ? build.add('Less', [columns(), build.add('Cast', [wide], { to: int(onnxNumbers.i64) })])
      : build.add('Cast', [wide], { to: int(onnxNumbers.bool) })
  const like = node.inputs[0]!
  const [zero, hidden] = [0, filter].map(value => context.scalar(`${node.outputs[0]}_mask`, value, like))
  const mask = build.add('Where', [seen, zero!, hidden!])
  if (rank === 3) return mask
  const rows = build.add('Shape', [queries], { start: int(1), end: int(2) })
  const one = build.integers([1])
  return build.add('Expand', [mask, build.add('Concat', [one, one, rows, one], { axis: int(0) })])
}

/** Attention: one product makes queries, keys and values. */
const attention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 4: 'past', 6: 'past_sequence_length' },
    { do_rotary: 0, past_present_share_buffer: 0 },
  )
  const [x = '', weight = '', bias = '', index = '', , added = ''] = node.inputs
  const build = new Builder(node, context)
  const product = build.add('MatMul', [x, weight])
  const biased = bias === '' ? product : build.add('Add', [product, bias])
  const width = lastSize(node, context, weight) / 3
  const sizes = node.attributes.qkv_hidden_sizes
  const parts = build.split(biased, sizes?.type === 'ints' ? sizes.value.map(Number) : [width, width, width])
  const heads = intOf(node, 'num_heads', 1)
  const attributes = {
    ...attentionAttributes(node, heads, heads),
    is_causal: int(intOf(node, 'unidirectional', 0)),
  }
  const mask = masksOf(build, node, context, [index, added], parts[1]!)
  const inputs = mask === '' ? parts : [...parts, mask]
  return [
    ...build.nodes,
    makeNode('Attention', inputs, node.outputs.slice(0, 1), { name: node.name, attributes }),
  ]
}

/** The sum of a mask of integers and of numbers, either of which may be missing. */
function masksOf(
  build: Builder,
  node: Node,
  context: UpgradeContext,
  [index, added]: readonly [string, string],
  keys: string,
): string {
  if (index === '') return added
  const filter = floatOf(node, 'mask_filter_value', -1e4)
  const mask = maskOfIntegers({ build, node, context, filter }, index, keys)
  return added === '' ? mask : build.add('Add', [mask, added])
}

/** Queries, keys and values [B, T, N, M, H], packed side by side along axis 3, as M values [B, T, N · H]. */
function unpacked(build: Builder, packed: string, count: number): string[] {
  const turned = build.add('Transpose', [packed], { perm: ints([3, 0, 1, 2, 4]) })
  return Array.from({ length: count }, (_, i) => {
    const part = build.add('Gather', [turned, build.integers(i)])
    return build.add('Reshape', [part, build.integers([0, 0, -1])])
  })
}

/** [B, T, N · H] as [B, N, T, H]. */
function apart(build: Builder, value: string, heads: number): string {
  const split = build.add('Reshape', [value, build.integers([0, 0, heads, -1])])
  return build.add('Transpose', [split], { perm: ints([0, 2, 1, 3]) })
}

/** [B, N, T, H], the first output of `node`, as [B, T, N · H]. */
function joined(build: Builder, y: string, node: Node): Node {
  const turned = build.add('Transpose', [y], { perm: ints([0, 2, 1, 3]) })
  const inputs = [turned, build.integers([0, 0, -1])]
  return makeNode('Reshape', inputs, node.outputs.slice(0, 1), { name: node.name })
}

/** The operands of a MultiHeadAttention: packed or not, keys and values of a cross attention with their heads apart. */
function headOperands(node: Node, context: UpgradeContext, build: Builder): string[] {
  const [query = '', key = '', value = ''] = node.inputs
  const ranks = [query, key, value].map(name => context.shape(name)?.length)
  if (ranks[0] === 5) return unpacked(build, query, 3)
  if (ranks[0] === 3 && ranks[1] === 5) return [query, ...unpacked(build, key, 2)]
  if (ranks[0] === 3 && [3, 4].includes(ranks[1]!) && ranks[2] === ranks[1]) return [query, key, value]
  throw context.unsupported(node, `query, key and value of ${ranks} dimensions are not supported`)
}

/** MultiHeadAttention: queries, keys and values with their heads side by side. */
const multiHeadAttention: Upgrade = (node, context) => {
  refuse(node, context, { 8: 'past_sequence_length', 9: 'cache_indirection' }, {})
  const [, key = '', , bias = '', padding = '', added = '', pastKey = '', pastValue = ''] = node.inputs
  const build = new Builder(node, context)
  const heads = intOf(node, 'num_heads', 1)
  const cross = context.shape(key)?.length === 4
  let parts = headOperands(node, context, build)
  if (bias !== '') {
    const width = lastSize(node, context, bias)
    const own = (name: string): number => Number(context.shape(name)?.at(-1) ?? Number.NaN)
    const [first, last] = cross ? [own(parts[0]!), heads * own(parts[2]!)] : [own(parts[0]!), own(parts[2]!)]
    const sizes = Number.isNaN(first! + last!)
      ? [width / 3, width / 3, width / 3]
      : [first!, width - first! - last!, last!]
    const biases = build.split(bias, sizes)
    parts = parts.map((name, i) => (cross && i > 0 ? name : build.add('Add', [name, biases[i]!])))
  }
  const attributes = {
    ...attentionAttributes(node, heads, heads),
    ...(intOf(node, 'unidirectional', 0) !== 0 && { is_causal: int(1) }),
  }
  const keys = pastKey === '' ? parts[1]! : ''
  if (padding !== '' && (cross || keys === '') && context.shape(padding)?.length === 1)
    throw context.unsupported(node, 'lengths of keys of another form have no standard form')
  const mask = masksOf(build, node, context, [padding, added], keys)
  const operands = cross ? [apart(build, parts[0]!, heads), ...parts.slice(1)] : parts
  const inputs = [...operands, mask, pastKey, pastValue]
  if (cross) {
    const y = build.add('Attention', inputs, attributes)
    const last = joined(build, y, node)
    return [...build.nodes, last]
  }
  const outputs = node.outputs.slice(0, 3)
  return [...build.nodes, makeNode('Attention', inputs, outputs, { name: node.name, attributes })]
}

/** What is between the inputs of a GroupQueryAttention and its attention. */
interface GroupedQueries {
  readonly build: Builder
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
  const build = new Builder(node, context)
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

/** Queries and keys, rotated by their places or by `position_ids`. */
function rotated({ build, node, context, positions }: GroupedQueries, parts: readonly string[]): string[] {
  if (intOf(node, 'do_rotary', 0) === 0) return [...parts]
  const [cos = '', sin = '', given = ''] = node.inputs.slice(7)
  const width = 2 * lastSize(node, context, cos)
  const turned = ['num_heads', 'kv_num_heads'].map((count, i) =>
    build.add('RotaryEmbedding', [parts[i]!, cos, sin, given === '' ? positions : given], {
      num_heads: int(intOf(node, count, 1)),
      interleaved: int(intOf(node, 'rotary_interleaved', 0)),
      rotary_embedding_dim: int(width),
    }),
  )
  return [...turned, parts[2]!]
}

/** Keys or values of the past with the new ones of each row at their places: as long as the longer of past and total. */
function present(queries: GroupedQueries, past: string, added: string, output: string): Node[] {
  const { build, total, starts } = queries
  if (past === '') return [makeNode('Identity', [added], [output])]
  return [makeNode('TensorScatter', [lengthened(build, past, 2, total), added, starts], [output])]
}

/** `value`, which has four dimensions, with zeros behind it along an axis up to `size`, if it is shorter. */
function lengthened(build: Builder, value: string, axis: number, size: string): string {
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
function sight({ build, node, context, positions }: GroupedQueries, keys: string): string {
  const size = build.size(keys, 2)
  const columns = build.add('Range', [build.integers(0), size, build.integers(1)])
  const rows = build.add('Unsqueeze', [positions, build.integers([1, 3])])
  const window = intOf(node, 'local_window_size', -1)
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
const groupQueryAttention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 12: 'k_scale', 13: 'v_scale', 14: 'q_norm_weight', 15: 'k_norm_weight' },
    { qk_output: 0, causal: 1, sliding_window_cache: 0 },
  )
  const [query = '', key = '', value = '', pastKey = '', pastValue = ''] = node.inputs
  const [queryHeads, heads] = [intOf(node, 'num_heads', 1), intOf(node, 'kv_num_heads', 1)]
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
  const y = build.add('Attention', [q, ...withSink(queries, [k, v, sight(queries, k)])], attributes)
  const last = joined(build, y, node)
  return [...build.nodes, last]
}

/**
 * Keys, values and mask with one key more, which is a vector of zeros like its value: every query gives it the score that
 * `head_sink` has for its head, or 0 with `smooth_softmax`.
 */
function withSink({ build, node, context }: GroupedQueries, [k = '', v = '', mask = '']: string[]): string[] {
  const given = node.inputs[11] ?? ''
  if (given === '' && intOf(node, 'smooth_softmax', 0) <= 0) return [k, v, mask]
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

/** Upgrades by operator. */
export const contribAttention: Readonly<Record<string, Upgrade>> = {
  Attention: attention,
  MultiHeadAttention: multiHeadAttention,
  GroupQueryAttention: groupQueryAttention,
}
