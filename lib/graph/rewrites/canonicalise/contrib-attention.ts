// contrib-attention.ts: contributed attention operators as the standard Attention and RotaryEmbedding.

import { floatOf, int, intOf, ints } from '../../attributes.js'
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
import { groupQueryAttention } from './contrib-grouped-queries.js'

/** What masks and lengths add to the scores of an attention. */
interface Masking {
  readonly build: AttentionBuilder
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
  // The input of a QAttention is of bytes, its bias has the type of the scores.
  const like = node.inputs[node.op === 'QAttention' ? 2 : 0]!
  const [zero, hidden] = [0, filter].map(value => context.scalar(`${node.outputs[0]}_mask`, value, like))
  const mask = build.add('Where', [seen, zero!, hidden!])
  if (rank === 3) return mask
  const rows = build.add('Shape', [queries], { start: int(1), end: int(2) })
  const one = build.integers([1])
  return build.add('Expand', [mask, build.add('Concat', [one, one, rows, one], { axis: int(0) })])
}

/** What follows the product that makes queries, keys and values side by side. */
interface Projected {
  /** [B, T, all of queries, keys and values]. */
  readonly value: string
  /** Sizes of the three. */
  readonly sizes: readonly number[]
  /** A mask of integers; '' for none. */
  readonly index: string
  /** What is added to the scores; '' for nothing. */
  readonly added: string
  /** Keys and values of earlier tokens, [2, B, N, P, H]; '' for none. */
  readonly past: string
}

/** The attention of a product, and its keys and values with those of the past, [2, B, N, P + T, H], if wanted. */
function selfAttention(
  build: AttentionBuilder,
  node: Node,
  context: UpgradeContext,
  product: Projected,
): Node[] {
  const { value, sizes, index, added, past } = product
  const parts = build.split(value, sizes)
  const heads = intOf(node, 'num_heads')
  const attributes = {
    ...attentionAttributes(node, heads, heads),
    is_causal: int(intOf(node, 'unidirectional')),
  }
  if (past !== '' && context.shape(index)?.length === 1)
    throw context.unsupported(node, 'numbers of keys beside a past have no standard form')
  const mask = masksOf(build, node, context, [index, added], past === '' ? parts[1]! : '')
  const pasts = past === '' ? [] : [0, 1].map(i => build.add('Gather', [past, build.integers(i)]))
  const [y = '', present = ''] = node.outputs
  const presents = present === '' ? [] : ['keys', 'values'].map(part => context.fresh(`${present}_${part}`))
  const inputs = [...parts, mask, ...pasts]
  build.nodes.push(makeNode('Attention', inputs, [y, ...presents], { name: node.name, attributes }))
  if (present === '') return build.nodes
  const wide = presents.map(name => build.add('Unsqueeze', [name, build.integers([0])]))
  return [...build.nodes, makeNode('Concat', wide, [present], { attributes: { axis: int(0) } })]
}

/** Attention: one product makes queries, keys and values. */
const attention: Upgrade = (node, context) => {
  refuse(node, context, { 6: 'past_sequence_length' }, { do_rotary: 0, past_present_share_buffer: 0 })
  const [x = '', weight = '', bias = '', index = '', past = '', added = ''] = node.inputs
  const build = new AttentionBuilder(node, context)
  const product = build.add('MatMul', [x, weight])
  const value = bias === '' ? product : build.add('Add', [product, bias])
  const width = lastSize(node, context, weight) / 3
  const given = node.attributes.qkv_hidden_sizes
  const sizes = given?.type === 'ints' ? given.value.map(Number) : [width, width, width]
  return selfAttention(build, node, context, { value, sizes, index, added, past })
}

/** QAttention: the product is one of bytes. */
const quantizedAttention: Upgrade = (node, context) => {
  refuse(node, context, {}, { do_rotary: 0, past_present_share_buffer: 0 })
  const [x = '', weight = '', bias = '', scale = '', weightScale = ''] = node.inputs
  const [index = '', zero = '', weightZero = '', past = ''] = node.inputs.slice(5)
  const build = new AttentionBuilder(node, context)
  const integers = build.add('MatMulInteger', [x, weight, zero, weightZero])
  const floats = build.add('Cast', [integers], { to: int(onnxNumbers.f32) })
  const scaled = build.add('Mul', [floats, build.add('Mul', [scale, weightScale])])
  const value = build.add('Add', [scaled, bias])
  const width = lastSize(node, context, weight) / 3
  const sizes = [width, width, width]
  return selfAttention(build, node, context, { value, sizes, index, added: '', past })
}

/** The sum of a mask of integers and of numbers, either of which may be missing. */
function masksOf(
  build: AttentionBuilder,
  node: Node,
  context: UpgradeContext,
  [index, added]: readonly [string, string],
  keys: string,
): string {
  if (index === '') return added
  const filter = floatOf(node, 'mask_filter_value')
  const mask = maskOfIntegers({ build, node, context, filter }, index, keys)
  return added === '' ? mask : build.add('Add', [mask, added])
}

/** Queries, keys and values [B, T, N, M, H], packed side by side along axis 3, as M values [B, T, N · H]. */
function unpacked(build: AttentionBuilder, packed: string, count: number): string[] {
  const transposed = build.add('Transpose', [packed], { perm: ints([3, 0, 1, 2, 4]) })
  return Array.from({ length: count }, (_, i) => {
    const part = build.add('Gather', [transposed, build.integers(i)])
    return build.add('Reshape', [part, build.integers([0, 0, -1])])
  })
}

/** The operands of a MultiHeadAttention: packed or not, keys and values of a cross attention with their heads apart. */
function headOperands(node: Node, context: UpgradeContext, build: AttentionBuilder): string[] {
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
  const build = new AttentionBuilder(node, context)
  const heads = intOf(node, 'num_heads')
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
    ...(intOf(node, 'unidirectional') !== 0 && { is_causal: int(1) }),
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

/** Upgrades by operator. */
export const contribAttention: Readonly<Record<string, Upgrade>> = {
  Attention: attention,
  QAttention: quantizedAttention,
  MultiHeadAttention: multiHeadAttention,
  GroupQueryAttention: groupQueryAttention,
}
