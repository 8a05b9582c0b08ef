// gemm.js: the gate of the CPU's products: f32, and bf16 formed of bf16 operands, beside ONNX Runtime's f32 MatMul with
// a constant weight; squares, a tall and a flat one. And many tokens through a large weight in bf16.
import { encode } from 'dgx-spark'
import { holdWeight } from 'dgx-spark/kernels'
import { nearProduct } from '../checks.js'
import { held } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** Tokens, rows and columns of the weight. @type {[number, number, number][]} */
const shapes = [
  [256, 256, 256],
  [1024, 1024, 1024],
  [2048, 2048, 2048],
  [4096, 4096, 4096],
  [8192, 256, 256],
  [32, 4096, 4096],
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* gemm(kernels, peer) {
  if (kernels.backend !== 'cpu') return
  for (const [tokens, rows, cols] of shapes) {
    const w = uniform(rows * cols, 2)
    const x = uniform(tokens * cols, 3)
    const b = { shape: [cols, rows], data: transpose(w, rows, cols) }
    const inputs = { a: [tokens, cols] }
    const matmul = await peer?.operator({
      type: 'MatMul',
      inputs,
      constants: { b },
      outputs: { y: [tokens, rows] },
    })
    const beside = matmul && peer && { peer: { name: `${peer.name} f32`, spins: true, run: () => matmul(x) } }
    yield { ...(await product(kernels, 'gemm', { format: 'f32', rows, cols, data: w }, x)), ...beside }
    const bf16 = /** @type {const} */ ({ format: 'bf16', rows, cols, data: encode(w, 'bf16') })
    yield { ...(await product(kernels, 'gemm', bf16, x)), ...beside }
  }
  const data = encode(uniform(4096 * 4096, 2), 'bf16')
  yield product(
    kernels,
    'gemm T512',
    { format: 'bf16', rows: 4096, cols: 4096, data },
    uniform(512 * 4096, 3),
  )
}

/** @param {Kernels} kernels @param {string} name @param {Weight} stored @param {Float32Array} x @returns {Promise<Case>} */
async function product(kernels, name, stored, x) {
  const { format: dtype, rows, cols } = stored
  const tokens = x.length / cols
  await held(kernels, x)
  const y = await held(kernels, new Float32Array(tokens * rows))
  const weight = await holdWeight(kernels, stored)
  const compute = dtype === 'bf16' ? 'bf16' : 'f32'
  return {
    name,
    shape: `T${tokens} ${rows}x${cols}`,
    dtype,
    sizes: { tokens, rows, cols },
    flops: 2 * tokens * rows * cols,
    run: () => kernels.run('linear', { weight, tokens, x, y, compute }),
    check: () => nearProduct(stored, x, y, compute === 'bf16' ? 2e-2 : 1e-5),
  }
}

/** @param {Float32Array} w @param {number} rows @param {number} cols */
export function transpose(w, rows, cols) {
  const result = new Float32Array(w.length)
  for (let r = 0; r < rows; ++r) for (let c = 0; c < cols; ++c) result[c * rows + r] = w[r * cols + c] ?? 0
  return result
}
