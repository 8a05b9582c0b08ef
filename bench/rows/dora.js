// dora.js: the DoRA kernels beside the plain linear layer they wrap (the ratio is what the adapter costs).
import assert from 'node:assert'
import { decodeWeight } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { computeName, storedWeights, variants } from './linear.js'

/** @import { Kernels, LowRank, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** @typedef {{ size: number, rank: number, tokens: number[], formats: Weight['format'][] }} Plan */

/**
 * @typedef {object} Layer
 * @property {Weight} weight
 * @property {Float32Array} w the weight in f32, for checks
 * @property {() => Weight} next the weight to use in the next call
 * @property {LowRank} adapter
 * @property {Record<'weightNorm2' | 'magnitude' | 'norm' | 'gain', Float32Array>} state
 * @property {Operands} operands
 */

/** @type {Record<string, Plan[]>} */
const plans = {
  cpu: [{ size: 1024, rank: 16, tokens: [1, 128], formats: ['f32'] }],
  cuda: [
    { size: 4096, rank: 16, tokens: [1, 16, 8192], formats: ['f32', 'bf16', 'nvfp4'] },
    { size: 4096, rank: 64, tokens: [], formats: ['bf16'] },
    { size: 8192, rank: 64, tokens: [], formats: ['bf16'] },
  ],
}
const scale = 1

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* dora(kernels) {
  for (const { size, rank, tokens, formats } of plans[kernels.backend] ?? []) {
    const stored = storedWeights(uniform(size * size, 4), size, size)
    for (const weight of stored.filter(({ format }) => formats.includes(format))) {
      const layer = await makeLayer(kernels, weight, rank)
      yield* whole(kernels, layer)
      for (const count of tokens) {
        for (const [, compute] of variants(kernels, [weight])) yield* passes(kernels, layer, count, compute)
      }
      layer.operands.dispose()
    }
  }
}

/** @param {Kernels} kernels @param {Weight} weight @param {number} rank @returns {Promise<Layer>} */
async function makeLayer(kernels, weight, rank) {
  const { rows: size } = weight
  const operands = new Operands(kernels)
  const next = await operands.rotate(weight)
  const a = await operands.put(uniform(rank * size, 5))
  const b = await operands.put(uniform(size * rank, 6))
  const adapter = { rank, scale, a, b }
  const vector = () => operands.put(new Float32Array(size))
  const [weightNorm2, magnitude, norm, gain] = [
    await vector(),
    await vector(),
    await vector(),
    await vector(),
  ]
  await kernels.run('weightNorm2', { weight: next(), out: weightNorm2 })
  magnitude.set(weightNorm2.map(Math.sqrt))
  await kernels.run('doraNorm', { weight: next(), ...adapter, weightNorm2, magnitude, norm, gain })
  const w = decodeWeight(weight)
  return { weight, w, next, adapter, state: { weightNorm2, magnitude, norm, gain }, operands }
}

/** Operations on the whole weight. @param {Kernels} kernels @param {Layer} layer @returns {AsyncGenerator<Case>} */
async function* whole(kernels, layer) {
  const { weight, next, adapter, state } = layer
  const { rows: size, format: dtype } = weight
  const { rank } = adapter
  const operands = new Operands(kernels)
  const merged = await operands.put(new Float32Array(size * size))
  const about = { shape: `${size}x${size} r${rank}`, dtype, sizes: { rows: size, cols: size, rank } }
  yield {
    name: 'dora norm',
    ...about,
    flops: 2 * size * size * rank,
    run: () => kernels.run('doraNorm', { weight: next(), ...adapter, ...state }),
    check: () => near(state.norm[3], Math.hypot(...row(layer, 3)), 1e-5),
  }
  yield {
    name: 'dora merge',
    ...about,
    bytes: weight.data.byteLength + merged.byteLength,
    run: () => kernels.run('doraMerge', { weight: next(), ...adapter, gain: state.gain, merged }),
    check: () => near(merged[3 * size + 5], (state.gain[3] ?? 0) * (row(layer, 3)[5] ?? 0), 1e-5),
  }
  operands.dispose()
}

/**
 * @param {Kernels} kernels @param {Layer} layer @param {number} tokens @param {'f32' | 'bf16'} compute
 * @returns {AsyncGenerator<Case>}
 */
async function* passes(kernels, layer, tokens, compute) {
  const { weight, next, adapter, state } = layer
  const { rows: size } = weight
  const tolerance = compute === 'f32' ? 1e-3 : 5e-2
  const { rank } = adapter
  const operands = new Operands(kernels)
  const put = (/** @type {number} */ count) => operands.put(new Float32Array(count))
  const x = await operands.put(uniform(tokens * size, 7))
  const dy = await operands.put(uniform(tokens * size, 8))
  const [y, z, dx, base] = [0, 0, 0, 0].map(() => tokens * size).map(put)
  const outputs = { y: await y, z: await z, xa: await put(tokens * rank) }
  const gradients = {
    dx: await dx,
    da: await put(rank * size),
    db: await put(size * rank),
    dmagnitude: await put(size),
  }
  const plain = await base
  const forward = () =>
    kernels.run('doraForward', {
      weight: next(),
      ...adapter,
      tokens,
      x,
      gain: state.gain,
      ...outputs,
      compute,
    })
  const about = {
    shape: `T${tokens} ${size}x${size} r${rank}`,
    dtype: computeName(weight, compute),
    sizes: { tokens, rows: size, cols: size, rank },
    flops: 2 * tokens * size * size,
    peer: {
      name: 'plain linear',
      run: () => kernels.run('linear', { weight: next(), tokens, x, y: plain, compute }),
    },
  }
  yield {
    name: 'dora forward',
    ...about,
    run: forward,
    check: () => near(outputs.y[5], output(layer, x, 5), tolerance),
  }

  const { xa, z: product } = outputs
  const saved = { x, dy, xa, z: product, ...state, ...gradients }
  await forward()
  yield {
    name: 'dora backward',
    ...about,
    run: () =>
      kernels.run('doraBackward', {
        weight: next(),
        ...adapter,
        tokens,
        exactNorm: false,
        ...saved,
        compute,
      }),
    check: () => near(gradients.dx[7], inputGradient(layer, dy, 7), tolerance),
  }
  operands.dispose()
}

/** @param {number | undefined} actual @param {number | undefined} expected @param {number} relative */
function near(actual = Number.NaN, expected = Number.NaN, relative) {
  assert.ok(
    Math.abs(actual - expected) <= relative * Math.max(1, Math.abs(expected)),
    `${actual} should be ${expected}`,
  )
}

/** W + scale · B·A at [o, i]. @param {Layer} layer @param {number} o @param {number} i */
function element({ weight, w, adapter: { rank, a, b } }, o, i) {
  let value = w[o * weight.cols + i] ?? 0
  for (let r = 0; r < rank; ++r) value += scale * (b[o * rank + r] ?? 0) * (a[r * weight.cols + i] ?? 0)
  return value
}

/** Row `o` of W + scale · B·A. @param {Layer} layer @param {number} o */
const row = (layer, o) => Float64Array.from({ length: layer.weight.cols }, (_, i) => element(layer, o, i))

/** y[0, o]. @param {Layer} layer @param {Float32Array} x @param {number} o */
const output = (layer, x, o) =>
  (layer.state.gain[o] ?? 0) * row(layer, o).reduce((sum, value, i) => sum + value * (x[i] ?? 0), 0)

/** dx[0, i]. @param {Layer} layer @param {Float32Array} dy @param {number} i */
function inputGradient(layer, dy, i) {
  let sum = 0
  for (let o = 0; o < layer.weight.rows; ++o) {
    sum += (dy[o] ?? 0) * (layer.state.gain[o] ?? 0) * element(layer, o, i)
  }
  return sum
}
