// Whole models of the shared data (DGX_SPARK_TEST_DATA) on the GPU agree with the CPU: enqueued, captured and replayed.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import { gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'

/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const folder = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'models')
/** Sizes that models leave open. @type {Record<string, number>} */
const sizes = { batch: 1, sequence: 576, length: 7, b: 2 }
/** Products of f16 are rounded in another order. @type {Record<string, number>} */
const tolerances = { 'mnist_float16.onnx': 1e-2 }

/** Random inputs; silero has a branch for 16 kHz only. @param {Model} model */
function feedsFor(model) {
  return Object.fromEntries(
    model.inputs.map(({ name, dtype, shape }, i) => {
      const fixed = (shape ?? []).map(size => (typeof size === 'number' ? size : (sizes[size ?? ''] ?? 1)))
      const count = fixed.reduce((product, size) => product * size, 1)
      const random = uniform(count, i + 1)
      if (/^(f|bf)/.test(dtype ?? '')) return [name, Tensor.from(random, { shape: fixed }).to(dtype ?? 'f32')]
      const integers = Array.from(random, value => (name === 'sr' ? 16000 : Math.floor(50 * (value + 1))))
      return [name, Tensor.from(integers, { dtype: dtype ?? 'i64', shape: fixed })]
    }),
  )
}

/** @param {Claims} t @param {string} file */
async function agrees(t, file) {
  const [gpu, cpu] = [await Model.load(file, { backend: 'cuda' }), await Model.load(file, { backend: 'cpu' })]
  const feeds = feedsFor(cpu)
  const expected = await cpu.run(feeds)
  for (const run of ['first', 'second', 'third']) {
    const actual = await gpu.run(feeds)
    for (const [name, output] of Object.entries(expected)) {
      const tolerance = tolerances[path.basename(file)] ?? 1e-4
      const values = actual[name]?.toFloat32() ?? []
      t.close(values, output.toFloat32(), tolerance, `${name} of the ${run} run`)
    }
  }
  for (const model of [gpu, cpu]) model.dispose()
}

const files = existsSync(folder)
  ? readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(file => file.endsWith('.onnx'))
  : []
await gpuTests(
  Object.fromEntries(
    files.map(file => [file, (/** @type {Claims} */ t) => agrees(t, path.join(folder, file))]),
  ),
)
