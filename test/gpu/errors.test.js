// What the documentation forbids ruins nothing: labels that change behind the check of their call give NaN, and the device goes on.

import { UnifiedBuffer } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

/** @param {Claims} t */
async function labels(t) {
  const kernels = await openKernels({ backend: 'cuda' })
  const size = 2048
  const data = await UnifiedBuffer.allocate(8 * size * size)
  const [x, y] = [data.view(Float32Array, 0, size * size), data.view(Float32Array, 4 * size * size)]
  const weight = /** @type {const} */ ({ format: 'f32', rows: size, cols: size, data: x })
  const buffer = await UnifiedBuffer.allocate(4)
  const label = buffer.view(Int32Array)
  const logits = new Float32Array(3)
  const entropy = async (/** @type {Int32Array} */ labels) => {
    const loss = new Float32Array(1)
    await kernels.run('softmaxCrossEntropy', { tokens: 1, classes: 3, logits, labels, loss })
    return loss
  }
  // The products are in front of the kernel that reads the label.
  const before = Array.from({ length: 50 }, () => kernels.run('linear', { weight, tokens: size, x, y }))
  const wrong = entropy(label)
  label[0] = 2 ** 31 - 1
  t.same(Array.from(await wrong), [Number.NaN], 'the loss of a label that is no class')
  await Promise.all(before)
  t.close(await entropy(new Int32Array(1)), [Math.log(3)], 1e-6, 'and the next one is right')
  for (const memory of [data, buffer]) memory.dispose()
}

await gpuTests({ labels })
