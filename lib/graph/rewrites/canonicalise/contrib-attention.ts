// contrib-attention.ts: contributed attention operators as the standard Attention and RotaryEmbedding.

import { float, floatOf, int, intOf } from '../../attributes.js'
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

/** Attention: one product makes queries, keys and values. */
const attention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 3: 'mask_index', 4: 'past', 6: 'past_sequence_length' },
    { do_rotary: 0, past_present_share_buffer: 0 },
  )
  const [x = '', weight = '', bias = '', , , mask = ''] = node.inputs
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
  const inputs = mask === '' ? parts : [...parts, mask]
  return [
    ...build.nodes,
    makeNode('Attention', inputs, node.outputs.slice(0, 1), { name: node.name, attributes }),
  ]
}

/** MultiHeadAttention: queries, keys and values with their heads side by side. */
const multiHeadAttention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 4: 'key_padding_mask', 8: 'past_sequence_length', 9: 'cache_indirection' },
    { unidirectional: 0 },
  )
  const [query = '', key = '', value = '', bias = '', , mask = '', pastKey = '', pastValue = ''] = node.inputs
  if ([query, key, value].some(name => context.shape(name)?.length !== 3)) {
    throw context.unsupported(node, 'query, key and value must have three dimensions')
  }
  const build = new Builder(node, context)
  let parts = [query, key, value]
  if (bias !== '') {
    const sizes = parts.map(name => lastSize(node, context, name))
    const biases = build.split(bias, sizes)
    parts = parts.map((name, i) => build.add('Add', [name, biases[i]!]))
  }
  const heads = intOf(node, 'num_heads', 1)
  const attributes = attentionAttributes(node, heads, heads)
  const inputs = [...parts, mask, pastKey, pastValue]
  return [
    ...build.nodes,
    makeNode('Attention', inputs, node.outputs.slice(0, 3), { name: node.name, attributes }),
  ]
}

/** How many keys each row has by `seqlens_k`, which counts one less; `total` where it is left out. */
function keysOf(build: Builder, lengths: string, total: string): string {
  if (lengths === '') return total
  const wide = build.add('Cast', [lengths], { to: int(onnxNumbers.i64) })
  return build.add('Add', [build.add('ReduceMin', [wide], { keepdims: int(0) }), build.integers(1)])
}

/**
 * GroupQueryAttention: causal attention to a past that every row of the batch has the same length of, which the
 * lengths in `seqlens_k` and `total_sequence_length` then only repeat. Other lengths (rows of a batch that differ, a
 * buffer that past and present share) make the Reshape of the mask fail in the run, before a wrong number is computed.
 */
const groupQueryAttention: Upgrade = (node, context) => {
  refuse(
    node,
    context,
    { 9: 'position_ids', 10: 'attention_bias', 11: 'head_sink' },
    { local_window_size: -1, smooth_softmax: 0 },
  )
  const [query = '', key = '', value = '', pastKey = '', pastValue = '', , , cos = '', sin = ''] = node.inputs
  const [queryHeads, heads] = [intOf(node, 'num_heads', 1), intOf(node, 'kv_num_heads', 1)]
  const build = new Builder(node, context)
  let parts = [query, key, value]
  if (key === '') {
    const size = lastSize(node, context, query) / (queryHeads + 2 * heads)
    parts = build.split(query, [queryHeads * size, heads * size, heads * size])
  }
  const past = pastKey === '' ? build.integers(0) : build.size(pastKey, 2)
  const length = build.size(query, 1)
  const total = build.add('Add', [past, length])
  const one = build.integers(1)
  const positions = build.add('Range', [past, total, one])
  if (intOf(node, 'do_rotary', 0)) {
    const batch = build.add('Unsqueeze', [build.size(query, 0), build.integers([0])])
    const shape = build.add('Concat', [batch, build.add('Unsqueeze', [length, build.integers([0])])], {
      axis: int(0),
    })
    const each = build.add('Expand', [positions, shape])
    const rotated = [queryHeads, heads].map((count, i) => {
      const attributes = { num_heads: int(count), interleaved: int(intOf(node, 'rotary_interleaved', 0)) }
      return build.add('RotaryEmbedding', [parts[i]!, cos, sin, each], attributes)
    })
    parts = [...rotated, parts[2]!]
  }
  const rows = build.add('Unsqueeze', [positions, build.integers([1])])
  const columns = build.add('Reshape', [
    build.add('Range', [build.integers(0), keysOf(build, node.inputs[5] ?? '', total), one]),
    build.add('Unsqueeze', [total, build.integers([0])]),
  ])
  const mask = build.add('LessOrEqual', [columns, rows])
  const inputs = [...parts, mask, pastKey, pastValue]
  const attributes = attentionAttributes(node, queryHeads, heads)
  return [
    ...build.nodes,
    makeNode('Attention', inputs, node.outputs.slice(0, 3), { name: node.name, attributes }),
  ]
}

/** Upgrades by operator. */
export const contribAttention: Readonly<Record<string, Upgrade>> = {
  Attention: attention,
  MultiHeadAttention: multiHeadAttention,
  GroupQueryAttention: groupQueryAttention,
}
