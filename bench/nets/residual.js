// residual.js: nets of residuals and dense connections: RegNet, DenseNet, ConvNeXt, U-Net.
import { Convolutions } from './convolutions.js'

/** @import { NormForm } from './convolutions.js' */

/**
 * RegNet Y: filters over groups of channels, which are weighed. `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ depths: number[], widths: number[], groupWidth: number, classes: number }} sizes
 */
export function regNet(seed, { depths, widths, groupWidth, classes }) {
  const net = new Convolutions('regnet', seed)
  let [x, from] = [net.unit(net.input('image', ['n', 3, 'h', 'w']), 3, 32, { stride: 2 }), 32]
  for (const [stage, to] of widths.entries())
    for (let i = 0; i < (depths[stage] ?? 0); i++) {
      const stride = i === 0 ? 2 : 1
      const wide = net.unit(x, from, to, { kernel: 1 })
      const filtered = net.unit(wide, to, to, { stride, group: to / groupWidth })
      const weighed = net.excite(filtered, to, Math.round(from / 4), 'Sigmoid')
      const y = net.unit(weighed, to, to, { kernel: 1, activation: 'none' })
      const passed = i === 0 ? net.unit(x, from, to, { kernel: 1, stride, activation: 'none' }) : x
      x = net.add('Relu', [net.add('Add', [passed, y])])
      from = to
    }
  return net.build({ scores: net.classify(x, from, classes) })
}

/**
 * DenseNet: each layer sees all before it, through a batch norm of its own. `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ depths: number[], growth: number, classes: number, norm: NormForm }} sizes
 */
export function denseNet(seed, { depths, growth, classes, norm }) {
  const net = new Convolutions('densenet', seed, { norm })
  const bare = { bias: false }
  /** @param {string} x @param {number} channels */
  const before = (x, channels) => net.add('Relu', [net.normalized(x, channels)])
  const stem = net.unit(net.input('image', ['n', 3, 'h', 'w']), 3, 2 * growth, { kernel: 7, stride: 2 })
  let [x, channels] = [net.pool(stem, 'MaxPool', 3, 2, 1), 2 * growth]
  for (const [stage, depth] of depths.entries()) {
    if (stage > 0) {
      x = net.conv(before(x, channels), channels, channels / 2, { kernel: [1, 1], ...bare })
      x = net.pool(x, 'AveragePool', 2, 2)
      channels /= 2
    }
    for (let layer = 0; layer < depth; layer++) {
      const inner = net.conv(before(x, channels), channels, 4 * growth, { kernel: [1, 1], ...bare })
      x = net.together([x, net.conv(before(inner, 4 * growth), 4 * growth, growth, bare)])
      channels += growth
    }
  }
  return net.build({ scores: net.classify(before(x, channels), channels, classes) })
}

/**
 * ConvNeXt: filters of 7 x 7 for each channel, then two layers over channels in last place. `image` [n, 3, h, w] to
 * `scores` [n, classes].
 * @param {number} seed @param {{ depths: number[], widths: number[], classes: number }} sizes
 */
export function convNext(seed, { depths, widths, classes }) {
  const net = new Convolutions('convnext', seed)
  /** @param {string} x @param {(rows: string) => string} change what is done with channels in last place */
  const last = (x, change) => {
    const y = change(net.add('Transpose', [x], { perm: [0, 2, 3, 1] }))
    return net.add('Transpose', [y], { perm: [0, 3, 1, 2] })
  }
  let [x, from] = [net.input('image', ['n', 3, 'h', 'w']), 3]
  for (const [stage, width] of widths.entries()) {
    const size = stage === 0 ? 4 : 2
    const options = { kernel: [size, size], strides: [size, size], pads: [0, 0, 0, 0] }
    if (stage === 0) x = last(net.conv(x, from, width, options), rows => net.norm(rows, width))
    else
      x = net.conv(
        last(x, rows => net.norm(rows, widths[stage - 1] ?? 0)),
        from,
        width,
        options,
      )
    for (let i = 0; i < (depths[stage] ?? 0); i++) {
      const filtered = net.conv(x, width, width, { kernel: [7, 7], group: width })
      const changed = last(filtered, rows => {
        const hidden = net.add('Gelu', [net.linear(net.norm(rows, width), width, 4 * width)])
        return net.add('Mul', [net.linear(hidden, 4 * width, width), net.near(0.5, [width])])
      })
      x = net.add('Add', [x, changed])
    }
    from = width
  }
  const means = net.add('Flatten', [net.add('GlobalAveragePool', [x])])
  return net.build({ scores: net.dense(net.norm(means, from), from, classes) })
}

/**
 * U-Net: down by pools, up by transposed convolutions, with what was there at each size. `image` [n, 3, h, w] to `mask`
 * [n, classes, h, w].
 * @param {number} seed @param {{ width: number, depth: number, classes: number }} sizes
 */
export function uNet(seed, { width, depth, classes }) {
  const net = new Convolutions('u-net', seed)
  /** @param {string} x @param {number} from @param {number} to */
  const pair = (x, from, to) => net.unit(net.unit(x, from, to), to, to)
  let [x, channels] = [pair(net.input('image', ['n', 3, 'h', 'w']), 3, width), width]
  const kept = []
  for (let level = 0; level < depth; level++) {
    kept.push(x)
    x = pair(net.pool(x, 'MaxPool', 2, 2), channels, 2 * channels)
    channels *= 2
  }
  for (const passed of kept.reverse()) {
    const half = channels / 2
    const weights = [net.weight([channels, half, 2, 2], channels), net.weight([half], 8)]
    const raised = net.add('ConvTranspose', [x, ...weights], { kernel_shape: [2, 2], strides: [2, 2] })
    x = pair(net.together([passed, raised]), channels, half)
    channels = half
  }
  return net.build({ mask: net.add('Sigmoid', [net.conv(x, channels, classes, { kernel: [1, 1] })]) })
}
