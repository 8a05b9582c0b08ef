// convolutions.js: what classifiers of images are made of, in the forms in which exporters write it.
import { Tensor } from 'dgx-spark'
import { int64, Layers } from './layers.js'

/** @typedef {'none' | 'relu' | 'relu6' | 'silu' | 'hardSwish' | 'hardSwish in parts'} Activation */

/**
 * How the batch norm behind a convolution is written. `folded`: into its weights and bias; `node`: BatchNormalization;
 * `in parts`: Mul and Add of a constant for each channel.
 * @typedef {'folded' | 'node' | 'in parts'} NormForm
 */

/**
 * @typedef {object} Unit
 * @property {number | [number, number]} [kernel] default 3
 * @property {number} [stride] default 1
 * @property {boolean} [valid] no padding; default: the size stays where the stride is 1
 * @property {number} [group] default 1
 * @property {Activation} [activation] default: that of the net
 */

/** A net whose convolutions have one form of batch norm, and usually one activation. */
export class Convolutions extends Layers {
  /** @param {string} name @param {number} seed @param {{ norm?: NormForm, activation?: Activation }} [forms] */
  constructor(name, seed, { norm = 'folded', activation = 'relu' } = {}) {
    super(name, seed)
    this.form = norm
    this.activation = activation
  }

  /** A convolution, its batch norm and its activation. @param {string} x @param {number} from @param {number} to @param {Unit} [options] */
  unit(x, from, to, { kernel = 3, stride = 1, valid = false, group = 1, activation = this.activation } = {}) {
    const sides = typeof kernel === 'number' ? [kernel, kernel] : kernel
    const bias = this.form === 'folded'
    const pads = valid ? [0, 0, 0, 0] : undefined
    const y = this.conv(x, from, to, {
      kernel: sides,
      strides: [stride, stride],
      group,
      bias,
      ...(pads && { pads }),
    })
    return this.activate(bias ? y : this.normalized(y, to), activation)
  }

  /** @param {string} x @param {number} channels */
  normalized(x, channels) {
    if (this.form !== 'in parts') return this.batchNorm(x, channels)
    const scaled = this.add('Mul', [x, this.near(1, [channels, 1, 1])])
    return this.add('Add', [scaled, this.near(0, [channels, 1, 1])])
  }

  /** @param {string} x @param {number} channels */
  batchNorm(x, channels) {
    const vectors = [1, 0, 0, 2].map(value => this.near(value, [channels]))
    return this.add('BatchNormalization', [x, ...vectors], { epsilon: 1e-5 })
  }

  /** A weight of values within a few tenths of one. @param {number} value @param {readonly number[]} shape */
  near(value, shape) {
    const values = this.weights(
      shape.reduce((a, b) => a * b, 1),
      200,
    ).map(each => value + each)
    return this.graph.initializer(`near.${this.count++}`, Tensor.from(values, { shape }))
  }

  /** @param {string} x @param {Activation} activation */
  activate(x, activation) {
    if (activation === 'relu') return this.add('Relu', [x])
    if (activation === 'relu6') return this.add('Clip', [x, 0, 6])
    if (activation === 'silu') return this.silu(x)
    if (activation === 'hardSwish') return this.add('HardSwish', [x])
    if (activation === 'none') return x
    const gate = this.add('Div', [this.add('Clip', [this.add('Add', [x, 3]), 0, 6]), 6])
    return this.add('Mul', [x, gate])
  }

  /** Squeeze and excitation: channels weighed by their means. @param {string} x @param {number} channels @param {number} squeezed @param {'Sigmoid' | 'HardSigmoid'} gate */
  excite(x, channels, squeezed, gate) {
    const means = this.add('GlobalAveragePool', [x])
    const kernel = [1, 1]
    const inner = this.add('Relu', [this.conv(means, channels, squeezed, { kernel })])
    const outer = this.conv(inner, squeezed, channels, { kernel })
    const attributes = gate === 'HardSigmoid' ? { alpha: 1 / 6, beta: 0.5 } : {}
    return this.add('Mul', [x, this.add(gate, [outer], attributes)])
  }

  /** @param {string} x @param {'MaxPool' | 'AveragePool'} op @param {number} size @param {number} stride @param {number} [pad] */
  pool(x, op, size, stride, pad = 0) {
    const attributes = { kernel_shape: [size, size], strides: [stride, stride], pads: [pad, pad, pad, pad] }
    return this.add(op, [x], attributes)
  }

  /** @param {readonly string[]} parts */
  together(parts) {
    return this.add('Concat', parts, { axis: 1 })
  }

  /** Classes from the means of channels. @param {string} x @param {number} from @param {number} classes */
  classify(x, from, classes) {
    return this.dense(this.add('Flatten', [this.add('GlobalAveragePool', [x])]), from, classes)
  }

  /** A layer as PyTorch exports it. @param {string} x @param {number} from @param {number} to */
  dense(x, from, to) {
    return this.add('Gemm', [x, this.weight([to, from], from), this.filled([to], 0)], { transB: 1 })
  }

  /** Cells of a map as rows, [n, h · w, channels]. @param {string} x @param {number} channels */
  rows(x, channels) {
    const flat = this.add('Reshape', [x, int64([0, channels, -1])])
    return this.add('Transpose', [flat], { perm: [0, 2, 1] })
  }
}
