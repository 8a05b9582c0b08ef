// A DoRA layer on the GPU computes, learns and merges as it does on the CPU, from a weight in every format.
import { DoRALinear, Tensor } from 'dgx-spark'
import { gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'

/** @import { NormGradient, Precision } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const tolerance = 1e-4 // f32 sums in another order, through three steps of descent
const halfTolerance = 2e-2 // factors of the adapter are rounded to 16 bits, on the GPU alone
const sizes = /** @type {const} */ ([
  { tokens: 5, rows: 33, cols: 48, rank: 3 },
  { tokens: 131, rows: 515, cols: 1040, rank: 16 },
])

/**
 * What a layer gives: outputs and gradients of three steps of gradient descent, then merged and unmerged.
 * @param {'cuda' | 'cpu'} backend
 * @param {(typeof sizes)[number]} size
 * @param {Precision} precision
 * @param {NormGradient} normGradient
 */
async function course(backend, { tokens, rows, cols, rank }, precision, normGradient) {
  const weight = Tensor.from(uniform(rows * cols, 1), { shape: [rows, cols] })
  const bias = Tensor.from(uniform(rows, 2))
  const initial = {
    a: Tensor.from(uniform(rank * cols, 3), { shape: [rank, cols] }),
    b: Tensor.from(uniform(rows * rank, 4), { shape: [rows, rank] }),
  }
  const options = { backend, rank, alpha: rank, precision, normGradient, initial }
  const layer = await DoRALinear.fromLinear({ weight, bias }, options)
  const x = Tensor.from(uniform(tokens * cols, 5), { shape: [tokens, cols] })
  const dy = Tensor.from(uniform(tokens * rows, 6), { shape: [tokens, rows] })
  /** @type {Record<string, Float32Array>} */
  const results = {}
  for (const step of [1, 2, 3]) {
    results[`output of step ${step}`] = (await layer.forward(x, { training: true })).toFloat32()
    results[`dx of step ${step}`] = (await layer.backward(dy)).x?.toFloat32() ?? new Float32Array(0)
    for (const { name, data, grad } of layer.parameters()) {
      if (!grad) throw new Error(`${name} has no gradient`)
      results[`gradient of ${name} in step ${step}`] = grad.slice()
      for (let i = 0; i < data.length; ++i) data[i] = (data[i] ?? 0) - 1e-3 * (grad[i] ?? 0)
    }
  }
  results['merged weight'] = (await layer.mergedWeight()).toFloat32()
  await layer.merge({ precision: 'fp32' })
  results['merged output'] = (await layer.forward(x)).toFloat32()
  await layer.unmerge()
  results['unmerged output'] = (await layer.forward(x)).toFloat32()
  layer.dispose()
  return results
}

/**
 * Output and gradients of one pass whose activations are of 16 bits.
 * @param {'cuda' | 'cpu'} backend
 * @param {'bf16' | 'f16'} dtype
 * @param {Precision} precision
 */
async function pass(backend, dtype, precision) {
  const { tokens, rows, cols, rank } = sizes[1]
  const values = (/** @type {number[]} */ shape, /** @type {number} */ seed) =>
    Tensor.from(uniform(shape[0] * shape[1], seed), { shape })
  const initial = { a: values([rank, cols], 3), b: values([rows, rank], 4) }
  const options = { backend, rank, alpha: rank, precision, initial, dropout: 0.25, seed: 7 }
  const layer = await DoRALinear.fromLinear({ weight: values([rows, cols], 1) }, options)
  const y = await layer.forward(values([tokens, cols], 5).to(dtype), { training: true })
  const { x, a, b, magnitude } = await layer.backward(values([tokens, rows], 6).to(dtype))
  layer.dispose()
  const results = { y, dx: x ?? Tensor.from([]), da: a, db: b, dmagnitude: magnitude }
  return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, tensor.toFloat32()]))
}

/** @type {Record<string, (t: Claims) => unknown>} */
const tests = {}
for (const precision of /** @type {const} */ (['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4'])) {
  for (const normGradient of /** @type {const} */ (['detached', 'exact'])) {
    for (const size of sizes) {
      const shape = `T${size.tokens} ${size.rows}x${size.cols} r${size.rank}`
      tests[`${shape} ${precision} ${normGradient}`] = async t => {
        const expected = await course('cpu', size, precision, normGradient)
        const actual = await course('cuda', size, precision, normGradient)
        for (const [name, values] of Object.entries(expected))
          t.close(actual[name] ?? [], values, tolerance, name)
      }
    }
  }
}
for (const [dtype, precision] of /** @type {const} */ ([
  ['bf16', 'bf16'],
  ['bf16', 'nvfp4'],
  ['f16', 'fp16'],
])) {
  tests[`${dtype} through a weight in ${precision}, on tensor cores`] = async t => {
    const [expected, actual] = [await pass('cpu', dtype, precision), await pass('cuda', dtype, precision)]
    for (const [name, values] of Object.entries(expected))
      t.close(actual[name] ?? [], values, halfTolerance, name)
  }
}
await gpuTests(tests)
