// supercombo.ts: supercombo of openpilot 0.8.10 (2021), layer by layer.
import { convolution, dense, linear } from './layers.js'
import type { Network } from './network.js'

/** Layers [width, out, kernel, stride, expansion] of EfficientNet-B2 (Tan and Le 2019), without squeeze and excitation. */
const blocks: readonly (readonly [number, number, number, number, number])[] = [
  [32, 16, 3, 1, 1],
  [16, 16, 3, 1, 1],
  ...repeated(16, 24, 3, 2, 3),
  ...repeated(24, 48, 5, 2, 3),
  ...repeated(48, 88, 3, 2, 4),
  ...repeated(88, 120, 5, 1, 4),
  ...repeated(120, 208, 5, 2, 5),
  ...repeated(208, 352, 3, 1, 2),
]

/** `count` blocks, of which the first one changes width and size. */
function repeated(
  width: number,
  out: number,
  kernel: number,
  stride: number,
  count: number,
): [number, number, number, number, number][] {
  return Array.from({ length: count }, (_, i) => [
    i === 0 ? width : out,
    out,
    kernel,
    i === 0 ? stride : 1,
    6,
  ])
}

/** Its outputs in their order, with the width of the head and what it reads; lanes and edges are of several heads. */
const heads: readonly { name: string; hidden: number; out: number; count?: number; ofFrame?: boolean }[] = [
  { name: 'plan', hidden: 256, out: 4955 },
  { name: 'lane_lines', hidden: 32, out: 132, count: 4 },
  { name: 'lane_lines_prob', hidden: 16, out: 8 },
  { name: 'road_edges', hidden: 16, out: 132, count: 2 },
  { name: 'lead', hidden: 64, out: 255 },
  { name: 'lead_prob', hidden: 16, out: 3 },
  { name: 'desire_state', hidden: 32, out: 8 },
  { name: 'meta', hidden: 64, out: 32, ofFrame: true },
  { name: 'desire_pred', hidden: 32, out: 32, ofFrame: true },
  { name: 'pose', hidden: 32, out: 12, ofFrame: true },
]

const featureWidth = 1024
const stateWidth = 512

/** Sizes of the outputs by their names, in their order. */
export const supercomboSizes: readonly (readonly [string, number])[] = [
  ...heads.map(({ name, out, count = 1 }) => [name, out * count] as const),
  ['hidden_state', stateWidth],
]

/** Adds the network and returns its output, f32 [1, 6609]. */
export function supercombo(net: Network): string {
  const images = net.input('input_imgs', 'f32', [1, 12, 128, 256])
  const desire = net.input('desire', 'f32', [1, 8])
  const traffic = net.input('traffic_convention', 'f32', [1, 2])
  const state = net.input('initial_state', 'f32', [1, stateWidth])
  const features = vision(net, images)
  const frame = dense(
    net,
    net.add('frame_policy', 'Elu', [features]),
    'frame_policy.fc',
    featureWidth,
    featureWidth,
  )
  const { temporal, next } = remember(net, [features, desire, traffic], state)
  const outputs = heads.map(({ name, hidden, out, count, ofFrame }) => {
    const source = ofFrame ? frame : temporal
    if (count === undefined) return head(net, source, name, hidden, out)
    const parts = Array.from({ length: count }, (_, i) => head(net, source, `${name}.${i}`, hidden, out))
    return meansFirst(net, name, parts, out)
  })
  return net.add('outputs', 'Concat', [...outputs, next], { axis: 1 })
}

/** Pictures [1, 12, 128, 256] to features [1, 1024]. */
function vision(net: Network, images: string): string {
  const stem = { width: 12, out: 32, kernel: 3, stride: 2 }
  let x = normalised(net, images, 'vision.stem', stem)
  for (const [i, [width, out, kernel, stride, expansion]] of blocks.entries()) {
    const scope = `vision.blocks.${i}`
    const inner = width * expansion
    const opened =
      expansion === 1 ? x : normalised(net, x, `${scope}.expand`, { width, out: inner, kernel: 1 })
    const shape = { width: inner, out: inner, kernel, stride, groups: inner }
    const depthwise = normalised(net, opened, `${scope}.depthwise`, shape)
    const isResidual = stride === 1 && width === out
    const project = { width: inner, out, kernel: 1, gain: isResidual ? 0.5 : 1.2 }
    const projected = normalised(net, depthwise, `${scope}.project`, project, false)
    x = isResidual ? net.add(scope, 'Add', [projected, x]) : projected
  }
  const scaled = normalised(net, x, 'vision.head.depthwise', { width: 352, out: 352, kernel: 1, groups: 352 })
  const small = normalised(net, scaled, 'vision.head.project', { width: 352, out: 32, kernel: 1 }, false)
  return net.add('vision.head', 'Flatten', [small], { axis: 1 })
}

/** A convolution without bias, batch normalization, and ELU unless the layer is linear. */
function normalised(
  net: Network,
  x: string,
  scope: string,
  shape: Parameters<typeof convolution>[3],
  hasElu = true,
): string {
  const made = convolution(net, x, `${scope}.conv`, { gain: 1.2, ...shape, bias: false })
  const { out } = shape
  const inputs = [
    net.weight(`${scope}.bn.weight`, [out], 0.1, 1),
    net.weight(`${scope}.bn.bias`, [out], 0.1),
    net.weight(`${scope}.bn.running_mean`, [out], 0.1),
    net.weight(`${scope}.bn.running_var`, [out], 0.1, 1),
  ]
  const scaled = net.add(`${scope}.bn`, 'BatchNormalization', [made, ...inputs], { epsilon: 1e-3 })
  return hasElu ? net.add(scope, 'Elu', [scaled]) : scaled
}

/** The memory: features and state [1, 512] to what the heads read [1, 1024] and the next state. */
function remember(
  net: Network,
  inputs: readonly string[],
  state: string,
): { temporal: string; next: string } {
  const scope = 'temporal'
  const reshape = (value: string, ...shape: readonly number[]): string =>
    net.add(scope, 'Reshape', [value, net.integers(scope, ...shape)])
  const joined = net.add(scope, 'Elu', [net.add(scope, 'Concat', inputs, { axis: 1 })])
  const x = dense(net, joined, 'temporal.in', featureWidth + 10, featureWidth)
  const gates = 3 * stateWidth
  const [, last] = net.addAll(
    `${scope}.gru`,
    'GRU',
    [
      reshape(x, 1, 1, featureWidth),
      net.weight('temporal.gru.weight_ih', [1, gates, featureWidth], 1 / Math.sqrt(featureWidth)),
      net.weight('temporal.gru.weight_hh', [1, gates, stateWidth], 1 / Math.sqrt(stateWidth)),
      net.weight('temporal.gru.bias', [1, 2 * gates], 0.1),
      '',
      reshape(state, 1, 1, stateWidth),
    ],
    2,
    { hidden_size: stateWidth, linear_before_reset: 1 },
  )
  const next = reshape(last!, 1, stateWidth)
  const both = net.add(scope, 'Concat', [next, x], { axis: 1 })
  return { temporal: dense(net, both, 'temporal.out', stateWidth + featureWidth, featureWidth), next }
}

/** [1, 1024] -> [1, out] by way of `hidden`. */
function head(net: Network, x: string, scope: string, hidden: number, out: number): string {
  const first = dense(net, x, `${scope}.in`, featureWidth, hidden)
  const inner = dense(net, first, `${scope}.block_a`, hidden, hidden)
  const second = linear(net, inner, `${scope}.block_b`, hidden, hidden, 0.5)
  const sum = net.add(scope, 'Relu', [net.add(scope, 'Add', [second, first])])
  return linear(net, sum, `${scope}.final`, hidden, out, 1)
}

/** Rows of means and deviations [1, out] each, to one row with all means first. */
function meansFirst(net: Network, scope: string, parts: readonly string[], out: number): string {
  const reshape = (value: string, ...shape: readonly number[]): string =>
    net.add(scope, 'Reshape', [value, net.integers(scope, ...shape)])
  const joined = net.add(
    scope,
    'Concat',
    parts.map(part => reshape(part, 1, 2, out / 2)),
    { axis: 2 },
  )
  return reshape(joined, 1, out * parts.length)
}
