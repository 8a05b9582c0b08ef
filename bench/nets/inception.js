// inception.js: nets whose layers are branches side by side: Inception v2 and v4.
import { Convolutions } from './convolutions.js'

/** @import { NormForm, Unit } from './convolutions.js' */

/** Channels and shape of a unit in a row of them. @typedef {[to: number, options?: Unit]} Link */

class Inception extends Convolutions {
  /** Units one behind the other. @param {string} x @param {number} from @param {readonly Link[]} links */
  chain(x, from, links) {
    let [y, channels] = [x, from]
    for (const [to, options] of links) {
      y = this.unit(y, channels, to, options)
      channels = to
    }
    return y
  }

  /** Chains side by side. @param {string} x @param {number} from @param {readonly (readonly Link[])[]} chains */
  side(x, from, chains) {
    return chains.map(links => this.chain(x, from, links))
  }

  /** Means around each cell, mixed. @param {string} x @param {number} from @param {number} to */
  means(x, from, to) {
    return this.unit(this.pool(x, 'AveragePool', 3, 1, 1), from, to, { kernel: 1 })
  }
}

const one = { kernel: 1 }

/** Channels of the branches: 1 x 1; 3 x 3 behind fewer; two of 3 x 3 behind fewer; behind a pool. */
const blocksV2 = /** @type {const} */ ([
  { one: 64, three: [64, 64], double: [64, 96], pool: 'AveragePool', mixed: 32 },
  { one: 64, three: [64, 96], double: [64, 96], pool: 'AveragePool', mixed: 64 },
  { one: 0, three: [128, 160], double: [64, 96], pool: 'MaxPool', mixed: 0 },
  { one: 224, three: [64, 96], double: [96, 128], pool: 'AveragePool', mixed: 128 },
  { one: 192, three: [96, 128], double: [96, 128], pool: 'AveragePool', mixed: 128 },
  { one: 160, three: [128, 160], double: [128, 160], pool: 'AveragePool', mixed: 96 },
  { one: 96, three: [128, 192], double: [160, 192], pool: 'AveragePool', mixed: 96 },
  { one: 0, three: [128, 192], double: [192, 256], pool: 'MaxPool', mixed: 0 },
  { one: 352, three: [192, 320], double: [160, 224], pool: 'AveragePool', mixed: 128 },
  { one: 352, three: [192, 320], double: [192, 224], pool: 'MaxPool', mixed: 128 },
])

/**
 * `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ classes: number, norm: NormForm }} sizes
 */
export function inceptionV2(seed, { classes, norm }) {
  const net = new Inception('inception-v2', seed, { norm })
  const image = net.input('image', ['n', 3, 'h', 'w'])
  const first = net.pool(net.unit(image, 3, 64, { kernel: 7, stride: 2 }), 'MaxPool', 3, 2, 1)
  let [x, from] = [net.pool(net.chain(first, 64, [[64, one], [192]]), 'MaxPool', 3, 2, 1), 192]
  for (const { one: alone, three, double, pool, mixed } of blocksV2) {
    const stride = alone === 0 ? 2 : 1
    const parts = net.side(x, from, [
      ...(alone === 0 ? [] : [[/** @type {Link} */ ([alone, one])]]),
      [
        [three[0], one],
        [three[1], { stride }],
      ],
      [[double[0], one], [double[1]], [double[1], { stride }]],
    ])
    const pooled = net.pool(x, pool, 3, stride, 1)
    parts.push(mixed === 0 ? pooled : net.unit(pooled, from, mixed, one))
    x = net.together(parts)
    from = alone + three[1] + double[1] + (mixed || from)
  }
  return net.build({ scores: net.classify(x, from, classes) })
}

const row = { kernel: /** @type {[number, number]} */ ([1, 7]) }
const column = { kernel: /** @type {[number, number]} */ ([7, 1]) }
const shortRow = { kernel: /** @type {[number, number]} */ ([1, 3]) }
const shortColumn = { kernel: /** @type {[number, number]} */ ([3, 1]) }
const halving = { stride: 2, valid: true }

class InceptionV4 extends Inception {
  /** 384 channels. @param {string} image */
  stem(image) {
    const x = this.chain(image, 3, [[32, halving], [32, { valid: true }], [64]])
    const y = this.together([this.pool(x, 'MaxPool', 3, 2), this.unit(x, 64, 96, halving)])
    const z = this.together(
      this.side(y, 160, [
        [
          [64, one],
          [96, { valid: true }],
        ],
        [
          [64, one],
          [64, column],
          [64, row],
          [96, { valid: true }],
        ],
      ]),
    )
    return this.together([this.unit(z, 192, 192, halving), this.pool(z, 'MaxPool', 3, 2)])
  }

  /** @param {string} x */
  a(x) {
    const chains = /** @type {Link[][]} */ ([[[96, one]], [[64, one], [96]], [[64, one], [96], [96]]])
    return this.together([this.means(x, 384, 96), ...this.side(x, 384, chains)])
  }

  /** 1,024 channels of half the size. @param {string} x */
  reduceA(x) {
    const chains = /** @type {Link[][]} */ ([[[384, halving]], [[192, one], [224], [256, halving]]])
    return this.together([this.pool(x, 'MaxPool', 3, 2), ...this.side(x, 384, chains)])
  }

  /** @param {string} x */
  b(x) {
    const chains = /** @type {Link[][]} */ ([
      [[384, one]],
      [
        [192, one],
        [224, row],
        [256, column],
      ],
      [
        [192, one],
        [192, row],
        [224, column],
        [224, row],
        [256, column],
      ],
    ])
    return this.together([this.means(x, 1024, 128), ...this.side(x, 1024, chains)])
  }

  /** 1,536 channels of half the size. @param {string} x */
  reduceB(x) {
    const chains = /** @type {Link[][]} */ ([
      [
        [192, one],
        [192, halving],
      ],
      [
        [256, one],
        [256, row],
        [320, column],
        [320, halving],
      ],
    ])
    return this.together([this.pool(x, 'MaxPool', 3, 2), ...this.side(x, 1024, chains)])
  }

  /** @param {string} x */
  c(x) {
    const inner = this.unit(x, 1536, 384, one)
    const deep = this.chain(x, 1536, [
      [384, one],
      [448, shortRow],
      [512, shortColumn],
    ])
    return this.together([
      this.means(x, 1536, 256),
      this.unit(x, 1536, 256, one),
      ...this.side(inner, 384, [[[256, shortRow]], [[256, shortColumn]]]),
      ...this.side(deep, 512, [[[256, shortColumn]], [[256, shortRow]]]),
    ])
  }
}

/**
 * `image` [n, 3, h, w] to `scores` [n, classes].
 * @param {number} seed @param {{ counts: [number, number, number], classes: number }} sizes how often each layer comes
 */
export function inceptionV4(seed, { counts: [a, b, c], classes }) {
  const net = new InceptionV4('inception-v4', seed)
  let x = net.stem(net.input('image', ['n', 3, 'h', 'w']))
  for (let i = 0; i < a; i++) x = net.a(x)
  x = net.reduceA(x)
  for (let i = 0; i < b; i++) x = net.b(x)
  x = net.reduceB(x)
  for (let i = 0; i < c; i++) x = net.c(x)
  return net.build({ scores: net.classify(x, 1536, classes) })
}
