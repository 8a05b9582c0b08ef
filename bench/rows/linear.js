// linear.js: y = x · Wᵀ for every weight format, beside ONNX Runtime's f32 MatMul.
import assert from 'node:assert'
import { dequantizeNVFP4, encode, quantizeFP8, quantizeNVFP4 } from 'dgx-spark'
import { decodeWeight, storeWeight } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Compute, Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** The five formats of one weight [rows, cols]. @param {Float32Array} data @param {number} rows @param {number} cols */
export function storedWeights(data, rows, cols) {
  /** @type {Weight[]} */
  const weights = [
    { format: 'f32', rows, cols, data },
    { format: 'bf16', rows, cols, data: encode(data, 'bf16') },
    { format: 'f16', rows, cols, data: encode(data, 'f16') },
    storeWeight(quantizeFP8(data, [rows, cols])),
    storeWeight(quantizeNVFP4(data, [rows, cols])),
  ]
  return weights
}

/** Tokens and size of the square weight. @type {Record<string, [number, number][]>} */
const shapes = {
  cpu: [
    [1, 2048],
    [128, 1024],
  ],
  cuda: [
    [1, 4096],
    [16, 4096],
    [32, 4096],
    [64, 4096],
    [8192, 4096],
  ],
}

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* linear(kernels, peer) {
  for (const [tokens, size] of shapes[kernels.backend] ?? []) {
    const w = uniform(size * size, 2)
    const matmul = await peer?.matmul(tokens, size, size)
    const transposed = matmul ? transpose(w, size) : w
    const weights = storedWeights(w, size, size)
    for (const [weight, compute] of [...variants(kernels, weights), ...ownVariants(kernels, weights)]) {
      const operands = new Operands(kernels)
      const next = await operands.rotate(weight)
      const x = await operands.put(uniform(tokens * size, 3))
      const y = await operands.put(new Float32Array(tokens * size))
      const about = {
        shape: `T${tokens} ${size}x${size}`,
        dtype: computeName(weight, compute),
        sizes: { tokens, rows: size, cols: size },
        flops: 2 * tokens * size * size,
      }
      yield {
        ...about,
        name: 'linear',
        run: () => kernels.run('linear', { weight: next(), tokens, x, y, compute }),
        check: () => check(weight, x, y, size, compute),
        ...(matmul &&
          peer && { peer: { name: `${peer.name} f32`, spins: true, run: () => matmul(x, transposed) } }),
      }
      if (compute === 'nvfp4' && tokens > 64) {
        const args = { x, compute, yScale: 1, yRounded: await operands.put(new Uint16Array(tokens * size)) }
        yield {
          ...about,
          name: 'linear with rounded results',
          run: () => kernels.run('linear', { ...args, weight: next(), tokens }),
          check: async () => {
            await kernels.run('linear', { ...args, weight: next(), tokens, y })
            check(weight, x, y, size, compute)
          },
        }
      }
      operands.dispose()
    }
  }
}

/**
 * Weights with what products, and their gradients, are formed of: on a GPU both f32 and bf16.
 * @param {Kernels} kernels @param {Weight[]} weights @returns {[Weight, 'f32' | 'bf16'][]}
 */
export function variants(kernels, weights) {
  /** @type {('f32' | 'bf16')[]} */
  const computes = kernels.backend === 'cuda' ? ['f32', 'bf16'] : ['f32']
  return weights.flatMap(weight =>
    computes.map(compute => /** @type {[Weight, 'f32' | 'bf16']} */ ([weight, compute])),
  )
}

/**
 * Products that only some weights have on a GPU: in f16, and of activations in NVFP4.
 * @param {Kernels} kernels @param {Weight[]} weights @returns {[Weight, Compute][]}
 */
const ownVariants = (kernels, weights) =>
  kernels.backend !== 'cuda'
    ? []
    : weights.flatMap(weight =>
        weight.format === 'f16' || weight.format === 'nvfp4' ? [[weight, weight.format]] : [],
      )

/** The dtype column of a row. @param {Weight} weight @param {Compute} compute */
export const computeName = ({ format }, compute) => (compute === 'f32' ? format : `${format} in ${compute}`)

/**
 * y[0] and y[size - 1] against plain sums over the weight as it is stored.
 * @param {Weight} weight @param {Float32Array} input @param {Float32Array} y @param {number} size
 * @param {Compute} compute
 */
function check(weight, input, y, size, compute) {
  const tolerance = compute === 'f32' ? 1e-5 : 2e-2
  const row = input.subarray(0, size)
  const x = compute === 'nvfp4' ? dequantizeNVFP4(quantizeNVFP4(row, [1, size])) : row
  const w = decodeWeight(weight)
  for (const o of [0, size - 1]) {
    let [sum, square] = [0, 0]
    for (let i = 0; i < size; ++i) {
      const product = (x[i] ?? 0) * (w[o * size + i] ?? 0)
      sum += product
      square += product ** 2
    }
    assert.ok(
      Math.abs(sum - (y[o] ?? Number.NaN)) <= tolerance * Math.sqrt(square),
      `${y[o]} should be ${sum}`,
    )
  }
}

/** @param {Float32Array} w @param {number} size */
function transpose(w, size) {
  const result = new Float32Array(w.length)
  for (let r = 0; r < size; ++r) for (let c = 0; c < size; ++c) result[c * size + r] = w[r * size + c] ?? 0
  return result
}
