// fastvit.ts: a trunk like FastViT (Vasu et al. 2023) as it is exported: its branches are folded into single convolutions.
import { convolution, gelu } from './layers.js'
import type { Network } from './network.js'

/** What a trunk is like. */
export interface TrunkShape {
  /** Channels of the stages; each has half the rows and columns of the one before. */
  readonly widths: readonly number[]
  /** Blocks of the stages. */
  readonly depths: readonly number[]
}

/** Channels inside of a block, by its width. */
const expansion = 4
/** Channels of both cameras' pictures. */
const pictureWidth = 24
/** Share of the channels between the two layers of squeeze and excitation. */
const squeeze = 1 / 16

/** Factor of the deviation of weights behind GELU, whose mean square is 0.43 of a normal distribution's. */
const activated = 1.5

/**
 * Pictures u8 [1, 12, 128, 256] of both cameras to features [1, 2 w], w the width of the last stage.
 * @returns the features
 */
export function trunk(net: Network, cameras: readonly string[], { widths, depths }: TrunkShape): string {
  let x = stem(net, normalise(net, cameras), widths[0]!)
  for (const [i, width] of widths.entries()) {
    const scope = `vision.stages.${i}`
    if (i > 0) x = downsample(net, x, `${scope}.downsample`, widths[i - 1]!, width)
    for (let j = 0; j < depths[i]!; j++) x = block(net, x, `${scope}.blocks.${j}`, width)
  }
  const width = widths.at(-1)!
  const final = squeezed(net, expand(net, x, 'vision.final_conv', width), 'vision.final_conv.se', 2 * width)
  const pooled = net.add('vision.head.global_pool', 'GlobalAveragePool', [
    gelu(net, final, 'vision.final_conv.act'),
  ])
  return net.add('vision.head.flatten', 'Flatten', [pooled], { axis: 1 })
}

/** Bytes to numbers in [-1, 1). */
function normalise(net: Network, cameras: readonly string[]): string {
  const scope = 'vision.normalise'
  const bytes = net.add(scope, 'Concat', cameras, { axis: 1 })
  const numbers = net.add(scope, 'Cast', [bytes], { to: net.dtype === 'f16' ? 10 : 1 })
  const centred = net.add(scope, 'Sub', [numbers, net.number(scope, 128)])
  return net.add(scope, 'Mul', [centred, net.number(scope, 1 / 128)])
}

/** A quarter of the rows and columns. */
function stem(net: Network, x: string, width: number): string {
  const layers = [
    { width: pictureWidth, out: width, kernel: 3, stride: 2, gain: 2 },
    { width, out: width, kernel: 3, stride: 2, groups: width, gain: activated },
    { width, out: width, kernel: 1, gain: activated },
  ]
  return layers.reduce((value, shape, i) => {
    const scope = `vision.stem.${i}`
    return gelu(net, convolution(net, value, scope, shape), `${scope}.act`)
  }, x)
}

function downsample(net: Network, x: string, scope: string, width: number, out: number): string {
  const large = { width, out, kernel: 7, stride: 2, groups: width }
  const small = convolution(net, x, `${scope}.proj.0`, large)
  const mixed = convolution(net, small, `${scope}.proj.1`, { width: out, out, kernel: 1 })
  return gelu(net, mixed, `${scope}.act`)
}

/** Mixing within channels, then across them beside a shortcut. */
function block(net: Network, x: string, scope: string, width: number): string {
  const within = { width, out: width, groups: width }
  const mixed = convolution(net, x, `${scope}.token_mixer`, { ...within, kernel: 3 })
  const wide = convolution(net, mixed, `${scope}.mlp.conv`, { ...within, kernel: 7 })
  const inner = width * expansion
  const opened = convolution(net, wide, `${scope}.mlp.fc1`, { width, out: inner, kernel: 1 })
  const active = gelu(net, opened, `${scope}.mlp.act`)
  const shape = { width: inner, out: width, kernel: 1, gain: activated }
  const closed = convolution(net, active, `${scope}.mlp.fc2`, shape)
  const scale = net.weight(`${scope}.layer_scale.gamma`, [width, 1, 1], 0.05, 0.5)
  return net.add(scope, 'Add', [mixed, net.add(`${scope}.layer_scale`, 'Mul', [closed, scale])])
}

/** Twice the channels. */
const expand = (net: Network, x: string, scope: string, width: number): string =>
  convolution(net, x, `${scope}.conv`, { width, out: 2 * width, kernel: 3, groups: width })

/** Squeeze and excitation (Hu et al. 2018): channels scaled by what all of them hold on average. */
function squeezed(net: Network, x: string, scope: string, width: number): string {
  const inner = Math.round(width * squeeze)
  const mean = net.add(scope, 'ReduceMean', [x], { axes: [2, 3], keepdims: 1 })
  const small = convolution(net, mean, `${scope}.fc1`, { width, out: inner, kernel: 1 })
  const shape = { width: inner, out: width, kernel: 1, gain: activated }
  const scores = convolution(net, net.add(scope, 'Relu', [small]), `${scope}.fc2`, shape)
  return net.add(scope, 'Mul', [x, net.add(scope, 'Sigmoid', [scores])])
}
