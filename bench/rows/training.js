// training.js: the loss with its gradient, and the optimizer's step. Rates count the bytes read and written.
import { near } from '../checks.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { AdamwTensor, Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* training(kernels) {
  yield* crossEntropy(kernels, 512, 4096)
  yield* crossEntropy(kernels, 64, 32768)
  yield* adamw(kernels, 1, 2 ** 24)
  yield* adamw(kernels, 64, 2 ** 16)
}

/** @param {Kernels} kernels @param {number} tokens @param {number} classes @returns {AsyncGenerator<Case>} */
async function* crossEntropy(kernels, tokens, classes) {
  const operands = new Operands(kernels)
  const logits = await operands.put(uniform(tokens * classes, 9))
  const labels = Int32Array.from({ length: tokens }, (_, t) => (t * 7919) % classes)
  const loss = await operands.put(new Float32Array(1))
  const dlogits = await operands.put(new Float32Array(tokens * classes))
  yield {
    name: 'softmax xent',
    shape: `T${tokens} ${classes}`,
    dtype: 'f32',
    sizes: { tokens, rows: classes, cols: 1 },
    bytes: logits.byteLength + dlogits.byteLength,
    run: () => kernels.run('softmaxCrossEntropy', { tokens, classes, logits, labels, loss, dlogits }),
    check() {
      let sum = 0
      for (let c = 0; c < classes; ++c) sum += Math.exp(logits[c] ?? Number.NaN)
      near(dlogits[1], (Math.exp(logits[1] ?? 0) / sum - (labels[0] === 1 ? 1 : 0)) / tokens, 1e-6)
    },
  }
  operands.dispose()
}

/** @param {Kernels} kernels @param {number} many @param {number} count @returns {AsyncGenerator<Case>} */
async function* adamw(kernels, many, count) {
  const operands = new Operands(kernels)
  /** @type {AdamwTensor[]} */
  const tensors = []
  for (let i = 0; i < many; ++i) {
    const [grad, param] = [await operands.put(uniform(count, 10)), await operands.put(uniform(count, 11))]
    const [m, v] = [await operands.put(new Float32Array(count)), await operands.put(new Float32Array(count))]
    tensors.push({ count, grad, param, m, v })
  }
  const { grad = new Float32Array(), param = grad } = tensors.at(-1) ?? {}
  const before = param[5] ?? Number.NaN
  const settings = { step: 1, lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.01 }
  yield {
    name: 'adamw',
    shape: many === 1 ? `${count}` : `${many}x${count}`,
    dtype: 'f32',
    sizes: { rows: many, cols: count },
    bytes: 7 * many * grad.byteLength,
    run: () => kernels.run('adamw', { ...settings, tensors }),
    check: () => near(param[5], before - 1e-3 * (Math.sign(grad[5] ?? 0) + 0.01 * before), 1e-6),
  }
  operands.dispose()
}
