// network.js: a two-layer classifier 784 -> hidden -> 10 over the kernels, and the loop that trains its weights.
import { random } from './data.js'

/** @import { Kernels, StoredWeight } from 'dgx-spark' */
/** @import { Digits } from './data.js' */

/**
 * A frozen or trainable layer as the loops below see it.
 * @typedef {object} Layer
 * @property {number} inputs
 * @property {number} outputs
 * @property {(x: Float32Array, tokens: number) => Promise<Float32Array>} forward  y [tokens, outputs]
 */

export const hidden = 512
export const classes = 10

/** A weight of f32 values as the kernels take it. @param {Float32Array} data @param {number} rows @param {number} cols */
export const dense = (data, rows, cols) => /** @type {StoredWeight} */ ({ dtype: 'f32', rows, cols, data })

/** relu in place; returns x. @param {Float32Array} x */
export function relu(x) {
  for (let i = 0; i < x.length; ++i) if (x[i] < 0) x[i] = 0
  return x
}

/** dx where relu(x) let the value through, else 0, in place. @param {Float32Array} dx @param {Float32Array} y */
export function reluBackward(dx, y) {
  for (let i = 0; i < dx.length; ++i) if (y[i] === 0) dx[i] = 0
  return dx
}

/** A fully connected layer with trainable weight and bias. */
export class Linear {
  /**
   * @param {Kernels} kernels
   * @param {number} inputs
   * @param {number} outputs
   * @param {number} seed
   */
  constructor(kernels, inputs, outputs, seed) {
    this.kernels = kernels
    this.inputs = inputs
    this.outputs = outputs
    const next = random(seed)
    const bound = Math.sqrt(6 / inputs) // He et al. 2015, uniform
    this.weight = Float32Array.from({ length: outputs * inputs }, () => (2 * next() - 1) * bound)
    this.bias = new Float32Array(outputs)
  }

  /** @param {Float32Array} x @param {number} tokens */
  async forward(x, tokens) {
    const y = new Float32Array(tokens * this.outputs)
    const weight = dense(this.weight, this.outputs, this.inputs)
    await this.kernels.run('linear', { weight, tokens, x, bias: this.bias, y })
    return y
  }

  /**
   * Gradients of the weight and the bias, and of x when `wantDx`.
   * @param {Float32Array} x
   * @param {Float32Array} dy
   * @param {number} tokens
   * @param {boolean} wantDx
   */
  async backward(x, dy, tokens, wantDx) {
    const dx = wantDx ? new Float32Array(tokens * this.inputs) : undefined
    const dweight = new Float32Array(this.weight.length)
    const dbias = new Float32Array(this.outputs)
    const weight = dense(this.weight, this.outputs, this.inputs)
    await this.kernels.run('linearBackward', { weight, tokens, x, dy, dx, dweight, dbias })
    return { dx, dweight, dbias }
  }
}

/** AdamW over a list of parameters. */
export class AdamW {
  /** @param {Kernels} kernels @param {Float32Array[]} params @param {number} lr */
  constructor(kernels, params, lr) {
    this.kernels = kernels
    this.lr = lr
    this.step = 0
    this.slots = params.map(param => ({
      param,
      m: new Float32Array(param.length),
      v: new Float32Array(param.length),
    }))
  }

  /** One step. @param {Float32Array[]} grads in the order of the parameters */
  async update(grads) {
    this.step += 1
    for (const [i, { param, m, v }] of this.slots.entries()) {
      const args = { count: param.length, step: this.step, lr: this.lr, grad: grads[i], param, m, v }
      await this.kernels.run('adamw', { ...args, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0 })
    }
  }
}

/**
 * Mean cross-entropy of the logits and its gradient.
 * @param {Kernels} kernels
 * @param {Float32Array} logits
 * @param {Int32Array} labels
 */
export async function crossEntropy(kernels, logits, labels) {
  const loss = new Float32Array(1)
  const dlogits = new Float32Array(logits.length)
  const args = { tokens: labels.length, classes, logits, labels, loss, dlogits }
  await kernels.run('softmaxCrossEntropy', args)
  return { loss: loss[0], dlogits }
}

/**
 * Share of `digits` that the layers classify correctly.
 * @param {readonly [Layer, Layer]} layers
 * @param {Digits} digits
 */
export async function accuracy(layers, digits) {
  const logits = await infer(layers, digits.pixels, digits.count)
  let correct = 0
  for (let row = 0; row < digits.count; ++row) {
    const scores = logits.subarray(row * classes, (row + 1) * classes)
    if (scores.indexOf(Math.max(...scores)) === digits.labels[row]) correct += 1
  }
  return correct / digits.count
}

/** Logits [tokens, 10]. @param {readonly [Layer, Layer]} layers @param {Float32Array} x @param {number} tokens */
export async function infer([first, second], x, tokens) {
  return second.forward(relu(await first.forward(x, tokens)), tokens)
}
