// linear.js: y = x · Wᵀ for every weight format, beside ONNX Runtime's f32 MatMul.
import assert from 'node:assert'
import { encode, quantizeFP8, quantizeNVFP4, storeWeight } from 'dgx-spark'
import { uniform } from '../random.js'

/** @import { Kernels, StoredWeight } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** The five formats of one weight [rows, cols]. @param {Float32Array} data @param {number} rows @param {number} cols */
export function storedWeights(data, rows, cols) {
  /** @type {StoredWeight[]} */
  const weights = [
    { dtype: 'f32', rows, cols, data },
    { dtype: 'bf16', rows, cols, data: encode(data, 'bf16') },
    { dtype: 'f16', rows, cols, data: encode(data, 'f16') },
    storeWeight(quantizeFP8(data, [rows, cols])),
    storeWeight(quantizeNVFP4(data, [rows, cols])),
  ]
  return weights
}

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* linear(kernels, peer) {
  for (const [tokens, size] of [
    [1, 2048],
    [128, 1024],
  ]) {
    const w = uniform(size * size, 2)
    const x = uniform(tokens * size, 3)
    const matmul = await peer?.matmul(tokens, size, size)
    const transposed = transpose(w, size)
    for (const weight of storedWeights(w, size, size)) {
      const y = new Float32Array(tokens * size)
      yield {
        name: 'linear',
        shape: `T${tokens} ${size}x${size}`,
        dtype: weight.dtype,
        flops: 2 * tokens * size * size,
        run: () => kernels.run('linear', { weight, tokens, x, y }),
        check: () => checkFirst(weight, w, x, y, size),
        ...(matmul && peer && { peer: { name: `${peer.name} f32`, run: () => matmul(x, transposed) } }),
      }
    }
  }
}

/** y[0] against a plain sum; quantized weights may be off by their rounding. */
/** @param {StoredWeight} weight @param {Float32Array} w @param {Float32Array} x @param {Float32Array} y @param {number} size */
function checkFirst(weight, w, x, y, size) {
  const relative = { f32: 1e-5, f16: 1e-3, bf16: 1e-2, f8_e4m3: 0.05, nvfp4: 0.2 }[weight.dtype]
  let sum = 0
  let square = 0
  for (let i = 0; i < size; ++i) {
    sum += (x[i] ?? 0) * (w[i] ?? 0)
    square += ((x[i] ?? 0) * (w[i] ?? 0)) ** 2
  }
  assert.ok(Math.abs(sum - (y[0] ?? 0)) <= relative * Math.sqrt(square) * 4, `${y[0]} should be ${sum}`)
}

/** @param {Float32Array} w @param {number} size */
function transpose(w, size) {
  const result = new Float32Array(w.length)
  for (let r = 0; r < size; ++r) for (let c = 0; c < size; ++c) result[c * size + r] = w[r * size + c] ?? 0
  return result
}
