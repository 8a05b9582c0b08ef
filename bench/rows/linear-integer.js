// linear-integer.js: products of bytes beside those of floats of the same sizes: f32, on a GPU bf16.
import assert from 'node:assert'
import { encode } from 'dgx-spark'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Tokens and size of the square weight. @type {Record<string, [number, number][]>} */
const shapes = {
  cpu: [
    [1, 1024],
    [128, 1024],
  ],
  cuda: [
    [16, 4096],
    [8192, 4096],
  ],
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* linearInteger(kernels) {
  for (const [tokens, size] of shapes[kernels.backend] ?? []) {
    const operands = new Operands(kernels)
    const data = Int8Array.from({ length: size * size }, (_, i) => i * 5)
    const rowScale = new Float32Array(size).fill(1)
    const next = await operands.rotate({ format: 'i8', rows: size, cols: size, data, rowScale })
    const x = await operands.put(Uint8Array.from({ length: tokens * size }, (_, i) => i * 7))
    const y = await operands.put(new Int32Array(tokens * size))
    const args = { tokens, rows: size, cols: size, xSigned: false, wSigned: true, x, y }
    yield {
      name: 'linear integer',
      shape: `T${tokens} ${size}x${size}`,
      dtype: 'u8 x i8',
      sizes: { tokens, rows: size, cols: size },
      flops: 2 * tokens * size * size,
      run: () => kernels.run('linearInteger', { ...args, w: /** @type {Int8Array} */ (next().data) }),
      check: () => {
        let sum = 0
        for (let i = 0; i < size; ++i) sum += (x[i] ?? 0) * (data[3 * size + i] ?? 0)
        assert.equal(y[3], sum)
      },
      peer: await floats(kernels, operands, tokens, size),
    }
    operands.dispose()
  }
}

/** @param {Kernels} kernels @param {Operands} operands @param {number} tokens @param {number} size */
async function floats(kernels, operands, tokens, size) {
  const compute = kernels.backend === 'cuda' ? /** @type {const} */ ('bf16') : /** @type {const} */ ('f32')
  const data = uniform(size * size, 2)
  const next = await operands.rotate(
    compute === 'bf16'
      ? { format: compute, rows: size, cols: size, data: encode(data, compute) }
      : { format: compute, rows: size, cols: size, data },
  )
  const x = await operands.put(uniform(tokens * size, 3))
  const y = await operands.put(new Float32Array(tokens * size))
  return {
    name: `linear ${compute}`,
    run: () => kernels.run('linear', { weight: next(), tokens, x, y, compute }),
  }
}
