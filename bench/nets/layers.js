// layers.js: layers of generated nets, as exporters write them for sizes that are open.
import { GraphBuilder, Tensor } from 'dgx-spark'
import { heNormal } from '../../test/fixtures/values/random.js'

/** @import { ElementType, Graph } from 'dgx-spark' */

/** @param {readonly number[]} values */
export const int64 = values => Tensor.from(BigInt64Array.from(values, BigInt), { shape: [values.length] })

/** @param {number} value */
export const scalar = value => Tensor.from(BigInt64Array.of(BigInt(value)), { shape: [] })

/** A graph that grows by layers. Weights are He-normal; biases of convolutions are random, others 0. */
export class Layers {
  /** @param {string} name @param {number} seed */
  constructor(name, seed) {
    this.graph = new GraphBuilder({ name })
    this.weights = heNormal(seed)
    this.count = 0
  }

  /** @param {string} name @param {readonly (number | string)[]} shape @param {ElementType} [dtype] */
  input(name, shape, dtype = 'f32') {
    return this.graph.input(name, dtype, shape)
  }

  /** @param {string} op @param {readonly (string | number | Tensor<ElementType>)[]} operands @param {Record<string, number | number[] | string>} [attributes] */
  add(op, operands, attributes) {
    return this.graph.add(op, operands, attributes)
  }

  /** A weight; `fanIn`: inputs of a neuron. @param {readonly number[]} shape @param {number} fanIn */
  weight(shape, fanIn) {
    const values = this.weights(
      shape.reduce((a, b) => a * b, 1),
      fanIn,
    )
    return this.graph.initializer(`weight.${this.count++}`, Tensor.from(values, { shape }))
  }

  /** @param {readonly number[]} shape @param {number} value */
  filled(shape, value) {
    const values = new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(value)
    return this.graph.initializer(`vector.${this.count++}`, Tensor.from(values, { shape }))
  }

  /**
   * A convolution, by default with bias; its padding keeps the size where the stride is 1.
   * @param {string} x @param {number} from @param {number} to channels
   * @param {{ kernel?: number[], strides?: number[], pads?: number[], group?: number, bias?: boolean }} [options]
   */
  conv(x, from, to, { kernel = [3, 3], strides = kernel.map(() => 1), pads, group = 1, bias = true } = {}) {
    const around = pads ?? [...kernel, ...kernel].map(size => Math.floor(size / 2))
    const fanIn = kernel.reduce((a, b) => a * b, from / group)
    const inputs = [x, this.weight([to, from / group, ...kernel], fanIn)]
    if (bias) inputs.push(this.weight([to], 8))
    return this.add('Conv', inputs, { kernel_shape: kernel, strides, pads: around, group })
  }

  /** @param {string} x @param {number} from @param {number} to */
  linear(x, from, to) {
    return this.add('Add', [this.add('MatMul', [x, this.weight([from, to], from)]), this.filled([to], 0)])
  }

  /** @param {string} x @param {number} width */
  norm(x, width) {
    const inputs = [x, this.filled([width], 1), this.filled([width], 0)]
    return this.add('LayerNormalization', inputs, { axis: -1, epsilon: 1e-5 })
  }

  /** @param {string} x */
  silu(x) {
    return this.add('Mul', [x, this.add('Sigmoid', [x])])
  }

  /** The size of an axis, without axes of its own. @param {string} x @param {number} axis */
  size(x, axis) {
    return this.add('Gather', [this.add('Shape', [x]), scalar(axis)], { axis: 0 })
  }

  /** @param {string} x @param {readonly (string | number)[]} sizes results of `size`, and numbers */
  reshape(x, sizes) {
    return this.add('Reshape', [x, this.shape(sizes)])
  }

  /** A list of sizes. @param {readonly (string | number)[]} sizes */
  shape(sizes) {
    const parts = sizes.map(size =>
      typeof size === 'number' ? int64([size]) : this.add('Unsqueeze', [size, int64([0])]),
    )
    return this.add('Concat', parts, { axis: 0 })
  }

  /**
   * Attention over [n, t, width]. With a past, [n, heads, p, depth], it comes in front of keys and values.
   * @param {string} x @param {number} width @param {number} heads @param {{ key: string, value: string }} [past]
   * @returns {{ mixed: string, key: string, value: string }} keys and values as the next run's past wants them
   */
  attention(x, width, heads, past) {
    const depth = width / heads
    const [n, t] = [this.size(x, 0), this.size(x, 1)]
    const head = () => {
      const rows = this.reshape(this.linear(x, width, width), [n, t, heads, depth])
      return this.add('Transpose', [rows], { perm: [0, 2, 1, 3] })
    }
    const [query, ownKey, ownValue] = [head(), head(), head()]
    const key = past ? this.add('Concat', [past.key, ownKey], { axis: 2 }) : ownKey
    const value = past ? this.add('Concat', [past.value, ownValue], { axis: 2 }) : ownValue
    const transposed = this.add('Transpose', [key], { perm: [0, 1, 3, 2] })
    const scores = this.add('Mul', [this.add('MatMul', [query, transposed]), 1 / Math.sqrt(depth)])
    const weighted = this.add('MatMul', [this.add('Softmax', [scores], { axis: -1 }), value])
    const rows = this.add('Transpose', [weighted], { perm: [0, 2, 1, 3] })
    return { mixed: this.linear(this.reshape(rows, [n, t, width]), width, width), key, value }
  }

  /**
   * A block of a transformer: attention, then a layer of 4 · width neurons with GELU, each behind a normalization.
   * @param {string} x @param {number} width @param {number} heads @param {{ key: string, value: string }} [past]
   */
  block(x, width, heads, past) {
    const { mixed, key, value } = this.attention(this.norm(x, width), width, heads, past)
    const attended = this.add('Add', [x, mixed])
    const hidden = this.add('Gelu', [this.linear(this.norm(attended, width), width, 4 * width)])
    return { y: this.add('Add', [attended, this.linear(hidden, 4 * width, width)]), key, value }
  }

  /** @param {Record<string, string>} outputs values by the names of outputs @returns {Graph} */
  build(outputs) {
    for (const [name, value] of Object.entries(outputs)) this.graph.output(value, name)
    return this.graph.build()
  }
}
