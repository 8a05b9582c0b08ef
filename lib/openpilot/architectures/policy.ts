// policy.ts: from features of some seconds to a plan: a transformer of one layer over them, then the heads.
import { dense, layerNorm, linear, residual, tokenLinear } from './layers.js'
import type { Network } from './network.js'
import { featureWidth as width } from './vision.js'

/** Frames of the past whose features are tokens: every third one. */
const pastFrames = [0, 3, 6, 9, 12, 15, 18, 21] as const
/** Frames there are; the last one is the present. */
const frames = 25
/** The past, the present, and the settings. */
const tokens = pastFrames.length + 2
const attentionHeads = 8

/** A head: pairs of a layer and a residual block that narrows, then residual blocks. */
interface PolicyHead {
  readonly name: string
  readonly out: number
  /** Widths of each pair: of its layer, and of its block. */
  readonly pairs: readonly (readonly [number, number])[]
  readonly blocks: number
}

const heads: readonly PolicyHead[] = [
  {
    name: 'plan',
    out: 990,
    pairs: [
      [512, 256],
      [512, 256],
      [512, 256],
    ],
    blocks: 2,
  },
  {
    name: 'desire_state',
    out: 8,
    pairs: [
      [256, 128],
      [256, 128],
      [128, 64],
      [128, 64],
    ],
    blocks: 1,
  },
]

/** Numbers at the end of an output row that mean nothing. */
const padding = 2

/** Sizes of the outputs of the policy by their names, in their order. */
export const policySizes: readonly (readonly [string, number])[] = [
  ...heads.map(({ name, out }) => [name, out] as const),
  ['pad', padding],
]

/** What the policy reads. */
export interface PolicyInputs {
  /** Features of all 25 frames, [1, 25, 512]. */
  readonly features: string
  /** [1, 25, 8]. */
  readonly desire: string
  /** [1, n] each, and n. */
  readonly settings: readonly (readonly [string, number])[]
}

/** Adds the policy. @returns its outputs and the padding, in their order */
export function policy(net: Network, inputs: PolicyInputs): readonly string[] {
  const summary = summarise(net, inputs)
  let common = summary
  for (let i = 0; i < 4; i++) common = residual(net, common, `temporal_hydra.resblocks.${i}`, width, width)
  const outputs = heads.map(head => policyHead(net, common, head))
  return [...outputs, net.weight('pad', [1, padding], 0.01)]
}

/** [1, 512] -> [1, out]. */
function policyHead(net: Network, common: string, { name, out, pairs, blocks }: PolicyHead): string {
  const scope = `temporal_hydra.${name}`
  let inner = pairs[0]![0]
  let x = dense(net, common, `${scope}.in_layer`, width, inner)
  for (const [i, [opened, closed]] of pairs.entries()) {
    const wide = dense(net, x, `${scope}.layers.${i}`, inner, opened)
    x = residual(net, wide, `${scope}.layers.${i}.resblock`, opened, closed)
    inner = closed
  }
  for (let i = 0; i < blocks; i++) x = residual(net, x, `${scope}.resblocks.${i}`, inner, inner)
  return linear(net, x, `${scope}.final_layer`, inner, out, 1)
}

/** What the tokens say together, [1, 512]. */
function summarise(net: Network, { features, desire, settings }: PolicyInputs): string {
  const scope = 'temporal_summarizer'
  const past = net.add(scope, 'Gather', [features, net.integers(scope, ...pastFrames)], { axis: 1 })
  const ends = [frames - 1, frames, 1, 1].map(value => net.integers(scope, value))
  const present = net.add(scope, 'Slice', [features, ...ends])
  const seen = net.add(scope, 'Concat', [past, present], { axis: 1 })
  const encoded = net.add(scope, 'Relu', [tokenLinear(net, seen, `${scope}.encode.0`, width, width)])
  const extra = settingsToken(net, desire, settings)
  const all = net.add(scope, 'Concat', [encoded, extra], { axis: 1 })
  const positions = net.weight(`${scope}.position`, [1, tokens, width], 0.1)
  const placed = net.add(scope, 'Add', [all, positions])
  const related = transformer(net, placed, `${scope}.transformer`)
  const weights = net.weight(`${scope}.weights`, [1, tokens, 1], 1 / Math.sqrt(tokens))
  const weighted = net.add(scope, 'Mul', [related, weights])
  return net.add(scope, 'ReduceSum', [weighted, net.integers(scope, 1)], { keepdims: 0 })
}

/** Desires and settings as a token, [1, 1, 512]. */
function settingsToken(net: Network, desire: string, settings: PolicyInputs['settings']): string {
  const scope = 'temporal_summarizer.extra_in'
  const desires = frames * 8
  const flat = net.add(scope, 'Reshape', [desire, net.integers(scope, 1, desires)])
  const joined = net.add(scope, 'Concat', [...settings.map(([name]) => name), flat], { axis: 1 })
  const inputs = settings.reduce((sum, [, size]) => sum + size, desires)
  const made = dense(net, joined, scope, inputs, width)
  return net.add(scope, 'Unsqueeze', [made, net.integers(scope, 1)])
}

/** A layer of a transformer that normalises first: [1, tokens, 512] -> the same. */
function transformer(net: Network, x: string, scope: string): string {
  const attended = attention(net, layerNorm(net, x, `${scope}.ln_1`, width), `${scope}.attn`)
  const sum = net.add(scope, 'Add', [x, attended])
  const normal = layerNorm(net, sum, `${scope}.ln_2`, width)
  const opened = tokenLinear(net, normal, `${scope}.mlp.c_fc`, width, 4 * width)
  const active = net.add(`${scope}.mlp`, 'Elu', [opened])
  return net.add(scope, 'Add', [sum, tokenLinear(net, active, `${scope}.mlp.c_proj`, 4 * width, width)])
}

/** Attention of all tokens to each other by 8 heads of 64: [1, tokens, 512] -> the same. */
function attention(net: Network, x: string, scope: string): string {
  const joined = tokenLinear(net, x, `${scope}.c_attn`, width, 3 * width)
  const size = width / attentionHeads
  const parts = net.addAll(scope, 'Split', [joined, net.integers(scope, width, width, width)], 3, { axis: 2 })
  const orders = [
    [0, 2, 1, 3],
    [0, 2, 3, 1],
    [0, 2, 1, 3],
  ]
  const [query, key, value] = parts.map((part, i) => {
    const shape = net.integers(scope, 1, tokens, attentionHeads, size)
    return net.add(scope, 'Transpose', [net.add(scope, 'Reshape', [part, shape])], { perm: orders[i]! })
  })
  const scale = net.number(scope, size ** -0.25)
  const [scaledQuery, scaledKey] = [query!, key!].map(each => net.add(scope, 'Mul', [each, scale]))
  const scores = net.add(scope, 'MatMul', [scaledQuery!, scaledKey!])
  const shares = net.add(scope, 'Softmax', [scores], { axis: -1 })
  const seen = net.add(scope, 'Transpose', [net.add(scope, 'MatMul', [shares, value!])], {
    perm: [0, 2, 1, 3],
  })
  const flat = net.add(scope, 'Reshape', [seen, net.integers(scope, 1, tokens, width)])
  return tokenLinear(net, flat, `${scope}.c_proj`, width, width)
}
