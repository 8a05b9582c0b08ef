// Whole models on the GPU agree with the CPU: those of the shared data (DGX_SPARK_TEST_DATA) and generated ones, enqueued,
// captured and replayed, and bound to memory that stays.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import { gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'
import { drivingPolicy } from '../fixtures/models/driving-policy.js'
import { transformer } from '../fixtures/models/transformer.js'

/** @import { ElementType } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const folder = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'models')
/** Sizes that models leave open. @type {Record<string, number>} */
const sizes = { batch: 1, sequence: 576, length: 7, b: 2 }
/** Products of f16 are rounded in another order. @type {Record<string, number>} */
const tolerances = { 'mnist_float16.onnx': 1e-2, driving_policy: 1e-2 }

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

/** @param {Claims} t @param {string} name @param {(backend: 'cuda' | 'cpu') => Promise<Model>} load */
async function agrees(t, name, load) {
  const [gpu, cpu] = [await load('cuda'), await load('cpu')]
  const feeds = feedsFor(cpu)
  const expected = await cpu.run(feeds)
  /** @param {Record<string, Tensor<ElementType>>} outputs @param {string} run */
  const near = (outputs, run) => {
    for (const [output, values] of Object.entries(expected)) {
      const actual = outputs[output]?.toFloat32() ?? []
      t.close(actual, values.toFloat32(), tolerances[name] ?? 1e-4, `${output} of the ${run} run`)
    }
  }
  for (const run of ['first', 'second', 'third']) near(await gpu.run(feeds), run)
  if (gpu.stats.plans === 1) {
    const bound = await gpu.bind(feeds)
    for (const run of ['first', 'second', 'third']) {
      await bound.run()
      near(bound.outputs, `${run} bound`)
    }
    bound.dispose()
  }
  for (const model of [gpu, cpu]) model.dispose()
}

const files = existsSync(folder)
  ? readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(file => file.endsWith('.onnx'))
  : []
const generated = {
  driving_policy: drivingPolicy,
  transformer: () => transformer({ layers: 2, width: 192, heads: 3, tokens: 37 }),
}
await gpuTests(
  Object.fromEntries([
    ...files.map(file => [
      file,
      (/** @type {Claims} */ t) =>
        agrees(t, path.basename(file), backend =>
          Model.load(path.join(folder, file), { backend, precision: 'fp32' }),
        ),
    ]),
    ...Object.entries(generated).map(([name, graph]) => [
      name,
      (/** @type {Claims} */ t) =>
        agrees(t, name, async backend => Model.fromGraph(graph(), { backend, precision: 'fp32' })),
    ]),
  ]),
)
