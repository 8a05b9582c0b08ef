// classifiers.js: two small classifiers for batches of any size.
import { Layers } from './layers.js'

/** `x` [n, widths[0]] to `logits` [n, widths.at(-1)]. @param {number} seed @param {{ widths: number[] }} sizes */
export function mlp(seed, { widths }) {
  const layers = new Layers('mlp', seed)
  let x = layers.input('x', ['n', widths[0] ?? 1])
  for (const [i, to] of widths.slice(1).entries()) {
    const y = layers.linear(x, widths[i] ?? 1, to)
    x = i + 2 < widths.length ? layers.add('Relu', [y]) : y
  }
  return layers.build({ logits: x })
}

/**
 * `image` [n, 3, 32, 32] to `logits` [n, classes]: pairs of convolutions, each pair at half the size of the one before.
 * @param {number} seed @param {{ channels: number[], classes: number }} sizes
 */
export function cnn(seed, { channels, classes }) {
  const layers = new Layers('cnn', seed)
  let x = layers.input('image', ['n', 3, 32, 32])
  let from = 3
  for (const to of channels) {
    x = layers.add('Relu', [layers.conv(x, from, to)])
    x = layers.add('Relu', [layers.conv(x, to, to)])
    x = layers.add('MaxPool', [x], { kernel_shape: [2, 2], strides: [2, 2] })
    from = to
  }
  const means = layers.add('GlobalAveragePool', [x])
  const flat = layers.reshape(means, [layers.size(means, 0), -1])
  return layers.build({ logits: layers.linear(flat, from, classes) })
}
