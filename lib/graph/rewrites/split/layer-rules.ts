// layer-rules.ts: parts of products, convolutions and normalizations of channels: weights are cut by out features.
import { int, intOf } from '../../attributes.js'
import type { Node } from '../../graph.js'
import type { SplitFacts } from './facts.js'
import { type Layout, plain, sizeOf } from './layout.js'
import { broadcastPart, type SplitRule, type SplitRules } from './part.js'

const at = (axis: number, { segments }: Layout): Layout => ({ axis, segments })

const matmul: SplitRule = (node, _, layout, facts) => {
  const shapes = [node.inputs[0]!, node.inputs[1]!, node.outputs[0]!].map(name => facts.shape(name))
  const [a, b, y] = shapes
  if (!a || !b || !y || a.length < 2 || b.length < 2) return undefined
  if (layout.axis === y.length - 1) {
    const isGain = facts.isFixed(node.inputs[1])
    return { inputs: [undefined, at(b.length - 1, layout)], outputs: [layout], isGain }
  }
  if (layout.axis === y.length - 2)
    return { inputs: [at(a.length - 2, layout), undefined], outputs: [layout] }
  const inputs = [a, b].map(shape => broadcastPart(shape, y.length, layout, sizeOf(layout)))
  return inputs.includes(null) ? undefined : { inputs: inputs as (Layout | undefined)[], outputs: [layout] }
}

const gemm: SplitRule = (node, _, layout, facts) => {
  const [transA, transB] = [intOf(node, 'transA'), intOf(node, 'transB')]
  const bias = node.inputs[2]
    ? broadcastPart(facts.shape(node.inputs[2]), 2, layout, sizeOf(layout))
    : undefined
  if (bias === null) return undefined
  if (layout.axis === 0) return { inputs: [at(transA ? 1 : 0, layout), undefined, bias], outputs: [layout] }
  const isGain = facts.isFixed(node.inputs[1])
  return { inputs: [undefined, at(transB ? 0 : 1, layout), bias], outputs: [layout], isGain }
}

/** Channels of a convolution; a convolution of groups cuts between them. */
const conv: SplitRule = (node, _, layout, facts) => {
  if (layout.axis !== 1 || !facts.isFixed(node.inputs[1])) return undefined
  const group = intOf(node, 'group')
  const filters = at(0, layout)
  if (group === 1) return { inputs: [undefined, filters, filters], outputs: [layout], isGain: true }
  const channels = facts.size(node.inputs[0]!, 1)
  if (!facts.divides(group) || channels === undefined || layout.segments.length > 1) return undefined
  const attributes = { ...node.attributes, group: int(group / facts.world) }
  return { inputs: [plain(1, channels), filters, filters], outputs: [layout], attributes }
}

/** Channels with a factor and a summand each, and other vectors of channels. */
const channels: SplitRule = (node, o, layout) => {
  if (o !== 0 || layout.axis !== 1) return undefined
  return { inputs: node.inputs.map((_, i) => (i === 0 ? layout : at(0, layout))), outputs: [layout] }
}

const groups: SplitRule = (node, o, layout, facts) => {
  const count = intOf(node, 'num_groups')
  const part = facts.divides(count) && layout.segments.length === 1 && channels(node, o, layout, facts)
  return part
    ? { ...part, attributes: { ...node.attributes, num_groups: int(count / facts.world) } }
    : undefined
}

/** Channels that have nothing to do with each other. */
const pool: SplitRule = (node, o, layout) =>
  o === 0 && layout.axis === 1 && node.outputs.slice(1).every(name => name === '')
    ? { inputs: [layout], outputs: [layout] }
    : undefined

/** Scales and zero points: one, one for each element of an axis, or one for each block along it. */
const scaled: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  const scale = facts.shape(node.inputs[1]!)
  if (rank === undefined || !scale) return undefined
  const own = scalesPart(
    node,
    layout,
    rank,
    scale.length === 0 || scale.every(size => size === 1),
    scale.length,
    facts,
  )
  return own === null
    ? undefined
    : { inputs: [layout, own, node.inputs[2] ? own : undefined], outputs: [layout] }
}

function scalesPart(
  node: Node,
  layout: Layout,
  rank: number,
  isOne: boolean,
  scaleRank: number,
  { world }: SplitFacts,
): Layout | undefined | null {
  if (isOne) return undefined
  const [axis, block] = [(intOf(node, 'axis') + rank) % rank, intOf(node, 'block_size')]
  if (block === 0 || scaleRank === 1) return axis === layout.axis ? at(0, layout) : undefined
  if (axis !== layout.axis) return layout
  const fits = layout.segments.every(size => size % (block * world) === 0)
  return fits ? { axis, segments: layout.segments.map(size => size / block) } : null
}

/** Experts: all of them on every rank, each with a part of its rows. */
const expertLinear: SplitRule = (_node, _, layout) =>
  layout.axis === 2
    ? { inputs: [undefined, at(1, layout), undefined, at(1, layout)], outputs: [layout], isGain: true }
    : undefined

/** Rules of layers. */
export const layerRules: SplitRules = {
  ...{ MatMul: matmul, Gemm: gemm, Conv: conv, ExpertLinear: expertLinear },
  ...{ BatchNormalization: channels, InstanceNormalization: channels, GroupNormalization: groups },
  ...{ MaxPool: pool, AveragePool: pool, GlobalAveragePool: pool, GlobalMaxPool: pool },
  ...{ DequantizeLinear: scaled, QuantizeLinear: scaled },
}
