// products.js: the batched products of attention (on a GPU in bf16, too), and what an activation costs.
import assert from 'node:assert'
import { holdWeight } from 'dgx-spark/kernels'
import { held, Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** @typedef {{ heads: number, tokens: number, width: number }} Scores */

const size = 1024

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* products(kernels) {
  if (kernels.backend === 'cuda') yield* attentionScores(kernels, 'bf16')
  if (kernels.supports('matmul')) yield* attentionScores(kernels, 'f32')
  if (kernels.backend !== 'cpu') return
  const data = uniform(size * size, 2)
  const weight = await holdWeight(kernels, { format: 'f32', rows: size, cols: size, data })
  for (const tokens of [1, 128]) {
    const x = await held(kernels, uniform(tokens * size, 3))
    const y = await held(kernels, new Float32Array(tokens * size))
    const plain = { name: 'linear f32', run: () => kernels.run('linear', { weight, tokens, x, y }) }
    const activated = await held(kernels, new Float32Array(tokens * size))
    yield {
      name: 'linear gelu',
      dtype: 'f32',
      shape: `T${tokens} ${size}x${size}`,
      sizes: { tokens, rows: size, cols: size },
      flops: 2 * tokens * size * size,
      run: () => kernels.run('linear', { weight, tokens, x, y: activated, activation: 'gelu' }),
      check: async () => {
        await plain.run()
        for (const [i, value] of y.entries()) {
          const inner = Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3)
          const expected = 0.5 * value * (1 + Math.tanh(inner)) // within 5e-4 of the form with erf
          assert.ok(Math.abs((activated[i] ?? Number.NaN) - expected) < 1e-3, `gelu of ${value}`)
        }
      },
      peer: plain,
    }
  }
}

/** @param {Kernels} kernels @param {'f32' | 'bf16'} compute @returns {AsyncGenerator<Case>} */
async function* attentionScores(kernels, compute) {
  const [heads, tokens, width] = [16, 256, 64]
  const operands = new Operands(kernels)
  const q = await operands.put(uniform(heads * tokens * width, 4))
  const k = await operands.put(uniform(heads * tokens * width, 5))
  const y = await operands.put(new Float32Array(heads * tokens * tokens))
  const row = heads * width
  const args = {
    outer: 1,
    inner: heads,
    m: tokens,
    n: tokens,
    k: width,
    alpha: width ** -0.5,
    a: q,
    b: k,
    y,
    compute,
    aStrides: /** @type {const} */ ([0, width, row, 1]),
    bStrides: /** @type {const} */ ([0, width, 1, row]),
    yStrides: /** @type {const} */ ([0, tokens * tokens, tokens, 1]),
  }
  yield {
    name: 'matmul scores',
    shape: `${heads}x${tokens}x${tokens}x${width}`,
    dtype: compute === 'f32' ? 'f32' : `f32 in ${compute}`,
    sizes: { heads, tokens, width },
    flops: 2 * heads * tokens * tokens * width,
    run: () => kernels.run('matmul', args),
    check: () => {
      let sum = 0
      for (let i = 0; i < width; ++i) sum += (q[row + width + i] ?? 0) * (k[2 * row + width + i] ?? 0)
      const actual = y[tokens * tokens + tokens + 2] ?? Number.NaN
      const tolerance = compute === 'f32' ? 1e-4 : 2e-2
      assert.ok(
        Math.abs(actual - sum * width ** -0.5) < tolerance,
        `${actual} should be ${sum * width ** -0.5}`,
      )
    },
  }
  operands.dispose()
}
