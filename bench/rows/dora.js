// dora.js: the DoRA kernels beside the plain linear layer they wrap (the ratio is what the adapter costs).
import assert from 'node:assert'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */

const size = 1024
const rank = 16
const scale = 1
const dtype = 'f32'

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* dora(kernels) {
  const weight = {
    dtype: /** @type {const} */ ('f32'),
    rows: size,
    cols: size,
    data: uniform(size * size, 4),
  }
  const adapter = { rank, scale, a: uniform(rank * size, 5), b: uniform(size * rank, 6) }
  const weightNorm2 = new Float32Array(size)
  await kernels.run('weightNorm2', { weight, out: weightNorm2 })
  const magnitude = weightNorm2.map(Math.sqrt)
  const norm = new Float32Array(size)
  const gain = new Float32Array(size)
  const merged = new Float32Array(size * size)
  const layer = { weight, ...adapter }

  yield {
    name: 'dora norm',
    shape: `${size}x${size} r${rank}`,
    dtype,
    flops: 2 * size * size * rank,
    run: () => kernels.run('doraNorm', { ...layer, weightNorm2, magnitude, norm, gain }),
    check: () => near(norm[3], rowNorm(weight.data, adapter, 3), 1e-5),
  }
  yield {
    name: 'dora merge',
    shape: `${size}x${size} r${rank}`,
    dtype,
    bytes: 2 * merged.byteLength,
    run: () => kernels.run('doraMerge', { ...layer, gain, merged }),
    check: () => near(Math.hypot(...merged.subarray(3 * size, 4 * size)), magnitude[3], 1e-4),
  }
  for (const tokens of [1, 128]) yield* passes(kernels, layer, { norm, gain, magnitude, merged }, tokens)
}

/**
 * @param {Kernels} kernels
 * @param {import('dgx-spark').LowRank & { weight: import('dgx-spark').StoredWeight }} layer
 * @param {Record<'norm' | 'gain' | 'magnitude' | 'merged', Float32Array>} state
 * @param {number} tokens
 * @returns {Generator<Case>}
 */
function* passes(kernels, layer, { norm, gain, magnitude, merged }, tokens) {
  const x = uniform(tokens * size, 7)
  const dy = uniform(tokens * size, 8)
  const [y, z, dx, base] = [0, 0, 0, 0].map(() => new Float32Array(tokens * size))
  const xa = new Float32Array(tokens * rank)
  const gradients = {
    dx,
    da: new Float32Array(rank * size),
    db: new Float32Array(size * rank),
    dmagnitude: new Float32Array(size),
  }
  const shape = `T${tokens} ${size}x${size} r${rank}`
  const flops = 2 * tokens * size * size
  const peer = {
    name: 'plain linear',
    run: () => kernels.run('linear', { weight: layer.weight, tokens, x, y: base }),
  }
  const forward = () => kernels.run('doraForward', { ...layer, tokens, x, gain, xa, z, y })

  yield {
    name: 'dora forward',
    shape,
    dtype,
    flops,
    run: forward,
    check: () => near(y[5], dot(x, merged, 5), 1e-3),
    peer,
  }
  yield {
    name: 'dora backward',
    shape,
    dtype,
    flops,
    run: () =>
      kernels.run('doraBackward', {
        ...layer,
        tokens,
        exactNorm: false,
        x,
        dy,
        xa,
        z,
        norm,
        gain,
        magnitude,
        ...gradients,
      }),
    check: () => near(gradients.dx[7], column(dy, merged, 7), 1e-3),
    peer,
  }
}

/** @param {number | undefined} actual @param {number | undefined} expected @param {number} relative */
function near(actual = Number.NaN, expected = Number.NaN, relative) {
  assert.ok(
    Math.abs(actual - expected) <= relative * Math.max(1, Math.abs(expected)),
    `${actual} should be ${expected}`,
  )
}

/** Norm of row `o` of W + scale · B·A. @param {Float32Array} w @param {{ a: Float32Array, b: Float32Array }} adapter @param {number} o */
function rowNorm(w, { a, b }, o) {
  let sum = 0
  for (let i = 0; i < size; ++i) {
    let value = w[o * size + i] ?? 0
    for (let r = 0; r < rank; ++r) value += scale * (b[o * rank + r] ?? 0) * (a[r * size + i] ?? 0)
    sum += value ** 2
  }
  return Math.sqrt(sum)
}

/** Σ_i x[0, i] m[o, i]. @param {Float32Array} x @param {Float32Array} m @param {number} o */
const dot = (x, m, o) =>
  x.subarray(0, size).reduce((sum, value, i) => sum + value * (m[o * size + i] ?? 0), 0)

/** Σ_o dy[0, o] m[o, i]. @param {Float32Array} dy @param {Float32Array} m @param {number} i */
const column = (dy, m, i) =>
  dy.subarray(0, size).reduce((sum, value, o) => sum + value * (m[o * size + i] ?? 0), 0)
