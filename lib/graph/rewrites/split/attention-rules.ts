// attention-rules.ts: parts of attention: heads.
import { int, intOf } from '../../attributes.js'
import { pagedInputs } from '../../shapes/paged-attention.js'
import { type Layout, plain } from './layout.js'
import type { SplitRule, SplitRules } from './part.js'

/** ONNX's Attention with heads in the last dimension, or as a dimension of their own. */
const attention: SplitRule = (node, o, layout, facts) => {
  const [query, key, value, mask, pastKey] = node.inputs
  const shape = facts.shape(query!)
  if (o !== 0 || !shape || node.outputs[3] || layout.segments.length > 1) return undefined
  const isFlat = shape.length === 3
  const axis = isFlat ? 2 : 1
  const heads = isFlat ? intOf(node, 'q_num_heads') : facts.size(query!, 1)
  const kvHeads = isFlat ? intOf(node, 'kv_num_heads') : facts.size(key!, 1)
  if (layout.axis !== axis || !facts.divides(heads) || !facts.divides(kvHeads)) return undefined
  const sizes = [query, key, value].map(name => facts.size(name!, axis))
  if (!sizes.every(size => facts.divides(size))) return undefined
  const masks = mask ? facts.shape(mask) : []
  if (!masks) return undefined
  const maskAxis = masks.length - 3
  const ofHeads = maskAxis >= 0 && masks[maskAxis] === heads && heads > 1
  const past = pastKey ? plain(1, kvHeads) : undefined
  const present = (i: number): Layout | undefined => (node.outputs[i] ? plain(1, kvHeads) : undefined)
  const counts = { q_num_heads: int(heads / facts.world), kv_num_heads: int(kvHeads / facts.world) }
  return {
    inputs: [
      ...sizes.map(size => plain(axis, size!)),
      ofHeads ? plain(maskAxis, heads) : undefined,
      past,
      past,
    ],
    outputs: [layout, present(1), present(2)],
    isGain: true,
    ...(isFlat && { attributes: { ...node.attributes, ...counts } }),
  }
}

/** Attention over blocks: caches by heads of keys. */
const paged: SplitRule = (node, o, layout, facts) => {
  const at = pagedInputs
  const [heads, kvHeads] = [intOf(node, 'num_heads'), intOf(node, 'kv_num_heads')]
  const width = facts.size(node.inputs[at.key] ?? '', 1)
  if (o !== 0 || layout.axis !== 1 || layout.segments.length > 1 || !facts.divides(width)) return undefined
  if (!facts.divides(heads) || !facts.divides(kvHeads)) return undefined
  const cache = plain(2, kvHeads)
  const inputs: (Layout | undefined)[] = node.inputs.map(() => undefined)
  const give = (i: number, part: Layout): void => {
    if (node.inputs[i]) inputs[i] = part
  }
  give(at.query, layout)
  for (const i of [at.key, at.value]) give(i, plain(1, width))
  for (const i of [at.keyCache, at.valueCache, at.keyScales, at.valueScales]) give(i, cache)
  give(at.sinks, plain(0, heads))
  const counts = { num_heads: int(heads / facts.world), kv_num_heads: int(kvHeads / facts.world) }
  return {
    inputs,
    outputs: node.outputs.map((_, i) => (i === 0 ? layout : cache)),
    attributes: { ...node.attributes, ...counts },
    isGain: true,
  }
}

/** Rules of attention. */
export const attentionRules: SplitRules = { Attention: attention, PagedAttention: paged }
