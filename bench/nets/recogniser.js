// recogniser.js: a text-line recogniser (CRNN): convolutions, two bidirectional LSTMs, classes for CTC.
import { int64, Layers } from './layers.js'

const height = 32

/**
 * `image` [n, 1, 32, w] to `logits` [w / 4 + 1, n, classes].
 * @param {number} seed @param {{ width: number, hidden: number, classes: number }} sizes width: channels of the first layer
 */
export function recogniser(seed, { width, hidden, classes }) {
  const layers = new Layers('recogniser', seed)
  let x = layers.input('image', ['n', 1, height, 'w'])
  /** @param {number} from @param {number} to */
  const conv = (from, to) => {
    x = layers.add('Relu', [layers.conv(x, from, to)])
  }
  const halve = () => {
    x = layers.add('MaxPool', [x], { kernel_shape: [2, 2], strides: [2, 2] })
  }
  const halveHeight = () => {
    x = layers.add('MaxPool', [x], { kernel_shape: [2, 2], strides: [2, 1], pads: [0, 1, 0, 1] })
  }
  conv(1, width)
  halve()
  conv(width, 2 * width)
  halve()
  conv(2 * width, 4 * width)
  conv(4 * width, 4 * width)
  halveHeight()
  conv(4 * width, 8 * width)
  conv(8 * width, 8 * width)
  halveHeight()
  const last = { kernel: [2, 2], pads: [0, 0, 0, 0] }
  x = layers.add('Relu', [layers.conv(x, 8 * width, 8 * width, last)])
  const columns = layers.add('Transpose', [layers.add('Squeeze', [x, int64([2])])], { perm: [2, 0, 1] })
  const context = lstm(layers, lstm(layers, columns, 8 * width, hidden), 2 * hidden, hidden)
  const logits = layers.add('LogSoftmax', [layers.linear(context, 2 * hidden, classes)], { axis: -1 })
  return layers.build({ logits })
}

/** [t, n, from] to [t, n, 2 · hidden]. @param {Layers} layers @param {string} x @param {number} from @param {number} hidden */
function lstm(layers, x, from, hidden) {
  const weights = [
    layers.weight([2, 4 * hidden, from], 2 * from),
    layers.weight([2, 4 * hidden, hidden], 2 * hidden),
    layers.filled([2, 8 * hidden], 0),
  ]
  const both = layers.add('LSTM', [x, ...weights], { hidden_size: hidden, direction: 'bidirectional' })
  const perm = [0, 2, 1, 3]
  return layers.add('Reshape', [layers.add('Transpose', [both], { perm }), int64([0, 0, -1])])
}
