// encoders.js: transformers over patches of images (ViT) and over words (BERT).
import { Convolutions } from './convolutions.js'
import { int64, Layers, scalar } from './layers.js'

/**
 * `image` [n, 3, h, w] to `scores` [n, classes]; `tokens`: patches of the only size that the positions fit, and one.
 * @param {number} seed
 * @param {{ patch: number, tokens: number, width: number, heads: number, layers: number, classes: number }} sizes
 */
export function vit(seed, { patch, tokens, width, heads, layers, classes }) {
  const net = new Convolutions('vit', seed)
  const image = net.input('image', ['n', 3, 'h', 'w'])
  const sides = [patch, patch]
  const rows = net.rows(
    net.conv(image, 3, width, { kernel: sides, strides: sides, pads: [0, 0, 0, 0] }),
    width,
  )
  const first = net.add('Expand', [
    net.weight([1, 1, width], width),
    net.shape([net.size(image, 0), 1, width]),
  ])
  let x = net.add('Concat', [first, rows], { axis: 1 })
  x = net.add('Add', [x, net.weight([1, tokens, width], width)])
  for (let layer = 0; layer < layers; layer++) x = net.block(x, width, heads).y
  const seen = net.add('Gather', [net.norm(x, width), scalar(0)], { axis: 1 })
  return net.build({ scores: net.dense(seen, width, classes) })
}

/**
 * `ids` and `types` [n, t] to `states` [n, t, width]. Norms come behind the sums; there is no mask.
 * @param {number} seed
 * @param {{ vocabulary: number, positions: number, width: number, heads: number, layers: number }} sizes
 */
export function bert(seed, { vocabulary, positions, width, heads, layers }) {
  const net = new Layers('bert', seed)
  const [ids, types] = [net.input('ids', ['n', 't'], 'i64'), net.input('types', ['n', 't'], 'i64')]
  const words = net.add('Gather', [net.weight([vocabulary, width], width), ids])
  const kinds = net.add('Gather', [net.weight([100, width], width), types])
  const length = net.shape([net.size(ids, 1)])
  const places = net.add('Slice', [net.weight([positions, width], width), int64([0]), length, int64([0])])
  let x = net.norm(net.add('Add', [net.add('Add', [words, kinds]), places]), width)
  for (let layer = 0; layer < layers; layer++) {
    x = net.norm(net.add('Add', [x, net.attention(x, width, heads).mixed]), width)
    const hidden = net.add('Gelu', [net.linear(x, width, 4 * width)])
    x = net.norm(net.add('Add', [x, net.linear(hidden, 4 * width, width)]), width)
  }
  return net.build({ states: x })
}
