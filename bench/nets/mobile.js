// mobile.js: nets for phones: MobileNet v2 and v3, EfficientNet-lite, ShuffleNet v2, and an SSD on the first.
import { Convolutions } from './convolutions.js'
import { int64 } from './layers.js'

/** @import { Activation, NormForm } from './convolutions.js' */

/** @typedef {[expansion: number, kernel: number, channels: number, count: number, stride: number]} Stage */

class Mobile extends Convolutions {
  /**
   * An inverted residual: wide in its middle, where each channel has a filter of its own.
   * @param {string} x @param {number} from @param {number} wide @param {number} to
   * @param {{ kernel: number, stride: number, activation?: Activation, squeezed?: number }} options
   */
  inverted(x, from, wide, to, { kernel, stride, activation = this.activation, squeezed }) {
    const expanded = wide === from ? x : this.unit(x, from, wide, { kernel: 1, activation })
    const filtered = this.unit(expanded, wide, wide, { kernel, stride, group: wide, activation })
    const weighed = squeezed ? this.excite(filtered, wide, squeezed, 'HardSigmoid') : filtered
    const y = this.unit(weighed, wide, to, { kernel: 1, activation: 'none' })
    return stride === 1 && from === to ? this.add('Add', [x, y]) : y
  }

  /** Stages of inverted residuals; the results of each. @param {string} x @param {number} from @param {readonly Stage[]} stages */
  stages(x, from, stages) {
    const results = []
    let [y, channels] = [x, from]
    for (const [expansion, kernel, to, count, stride] of stages)
      for (let i = 0; i < count; i++) {
        y = this.inverted(y, channels, channels * expansion, to, { kernel, stride: i === 0 ? stride : 1 })
        channels = to
        results.push({ y, channels })
      }
    return results
  }
}

/**
 * `image` [n, 3, h, w] to `scores` [n, classes]: a stem of 32 channels, the stages, a last layer of 1,280.
 * @param {number} seed @param {{ stages: Stage[], classes: number, norm: NormForm }} sizes
 */
export function mobileNetV2(seed, { stages, classes, norm }) {
  const net = new Mobile('mobilenet-v2', seed, { norm, activation: 'relu6' })
  const stem = net.unit(net.input('image', ['n', 3, 'h', 'w']), 3, 32, { stride: 2 })
  const { y = stem, channels = 32 } = net.stages(stem, 32, stages).at(-1) ?? {}
  const last = net.unit(y, channels, 1280, { kernel: 1 })
  return net.build({ scores: net.classify(last, 1280, classes) })
}

/** Kernel, width in the middle, channels, whether channels are weighed, whether activations are hard swishes, stride. */
const largeV3 = /** @type {const} */ ([
  [3, 16, 16, 0, 0, 1],
  [3, 64, 24, 0, 0, 2],
  [3, 72, 24, 0, 0, 1],
  [5, 72, 40, 1, 0, 2],
  [5, 120, 40, 1, 0, 1],
  [5, 120, 40, 1, 0, 1],
  [3, 240, 80, 0, 1, 2],
  [3, 200, 80, 0, 1, 1],
  [3, 184, 80, 0, 1, 1],
  [3, 184, 80, 0, 1, 1],
  [3, 480, 112, 1, 1, 1],
  [3, 672, 112, 1, 1, 1],
  [5, 672, 160, 1, 1, 2],
  [5, 960, 160, 1, 1, 1],
  [5, 960, 160, 1, 1, 1],
])

/**
 * `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ classes: number, hardSwish: Activation }} sizes
 */
export function mobileNetV3(seed, { classes, hardSwish }) {
  const net = new Mobile('mobilenet-v3', seed)
  const image = net.input('image', ['n', 3, 'h', 'w'])
  let x = net.unit(image, 3, 16, { stride: 2, activation: hardSwish })
  let from = 16
  for (const [kernel, wide, to, isWeighed, isSwish, stride] of largeV3) {
    const squeezed = isWeighed ? Math.ceil(wide / 32) * 8 : 0
    x = net.inverted(x, from, wide, to, {
      kernel,
      stride,
      squeezed,
      activation: isSwish ? hardSwish : 'relu',
    })
    from = to
  }
  const last = net.unit(x, 160, 960, { kernel: 1, activation: hardSwish })
  const means = net.add('Flatten', [net.add('GlobalAveragePool', [last])])
  const hidden = net.activate(net.dense(means, 960, 1280), hardSwish)
  return net.build({ scores: net.dense(hidden, 1280, classes) })
}

/**
 * ShuffleNet v2, `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ widths: number[], counts: number[], last: number, classes: number }} sizes
 */
export function shuffleNet(seed, { widths, counts, last, classes }) {
  const net = new Shuffled('shufflenet', seed)
  const stem = net.unit(net.input('image', ['n', 3, 'h', 'w']), 3, 24, { stride: 2 })
  let [x, from] = [net.pool(stem, 'MaxPool', 3, 2, 1), 24]
  for (const [stage, width] of widths.entries()) {
    x = net.halved(x, from, width)
    for (let i = 1; i < (counts[stage] ?? 0); i++) x = net.kept(x, width)
    from = width
  }
  return net.build({ scores: net.classify(net.unit(x, from, last, { kernel: 1 }), last, classes) })
}

class Shuffled extends Convolutions {
  /** @param {string} x @param {number} from @param {number} to @param {number} stride */
  branch(x, from, to, stride) {
    const first = this.unit(x, from, to, { kernel: 1 })
    const filtered = this.unit(first, to, to, { stride, group: to, activation: 'none' })
    return this.unit(filtered, to, to, { kernel: 1 })
  }

  /** Half of the size. @param {string} x @param {number} from @param {number} to */
  halved(x, from, to) {
    const filtered = this.unit(x, from, from, { stride: 2, group: from, activation: 'none' })
    const other = this.unit(filtered, from, to / 2, { kernel: 1 })
    return this.shuffled(this.together([other, this.branch(x, from, to / 2, 2)]), to)
  }

  /** One half of the channels passes by. @param {string} x @param {number} width */
  kept(x, width) {
    const [passed = '', changed = ''] = this.graph.addAll('Split', [x], 2, { axis: 1, num_outputs: 2 })
    return this.shuffled(this.together([passed, this.branch(changed, width / 2, width / 2, 1)]), width)
  }

  /** Channels of both halves in turns. @param {string} x @param {number} width */
  shuffled(x, width) {
    const [n, h, w] = [0, 2, 3].map(axis => this.size(x, axis))
    const halves = this.reshape(x, [n ?? '', 2, width / 2, h ?? '', w ?? ''])
    const turned = this.add('Transpose', [halves], { perm: [0, 2, 1, 3, 4] })
    return this.reshape(turned, [n ?? '', width, h ?? '', w ?? ''])
  }
}

/**
 * SSD on MobileNet v2: `image` [n, 3, h, w] to `boxes` [n, a, 4] and `scores` [n, a, classes], of six maps.
 * @param {number} seed @param {{ stages: Stage[], classes: number, anchors: number }} sizes
 */
export function ssd(seed, { stages, classes, anchors }) {
  const net = new Mobile('ssd', seed, { activation: 'relu6' })
  const stem = net.unit(net.input('image', ['n', 3, 'h', 'w']), 3, 32, { stride: 2 })
  const results = net.stages(stem, 32, stages)
  const maps = [results.find(({ channels }) => channels === 96), results.at(-1)].flatMap(map => map ?? [])
  for (const to of [512, 256, 256, 128]) {
    const { y, channels } = /** @type {typeof maps[number]} */ (maps.at(-1))
    maps.push({ y: net.inverted(y, channels, to / 2, to, { kernel: 3, stride: 2 }), channels: to })
  }
  /** @param {number} size @returns {string} */
  const heads = size => {
    const parts = maps.map(({ y, channels }) => {
      const filtered = net.unit(y, channels, channels, { group: channels })
      const map = net.conv(filtered, channels, anchors * size, { kernel: [1, 1] })
      const last = net.add('Transpose', [map], { perm: [0, 2, 3, 1] })
      return net.add('Reshape', [last, int64([0, -1, size])])
    })
    return net.add('Concat', parts, { axis: 1 })
  }
  return net.build({ boxes: heads(4), scores: net.add('Softmax', [heads(classes)], { axis: 2 }) })
}
