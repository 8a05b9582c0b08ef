// Plans on the GPU, enqueued, captured and replayed, agree with the CPU at every run.
import { openKernels } from 'dgx-spark/kernels'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */
/** @import { Kernels } from '#lib/kernels/kernels.js' */

const [tokens, rows, cols] = [37, 65, 129]
const ramp = (/** @type {number} */ count, /** @type {number} */ step) =>
  Float32Array.from({ length: count }, (_, i) => ((i * step) % 2) - 1)

/** y = the row sums of gelu(x · Wᵀ), in three steps. @param {Kernels} kernels */
function layer(kernels) {
  const [x, data] = [new Float32Array(tokens * cols), ramp(rows * cols, 0.37)]
  const arena = new Float32Array(2 * tokens * rows)
  const [z, activated] = [arena.subarray(0, tokens * rows), arena.subarray(tokens * rows)]
  const y = new Float32Array(tokens)
  const weight = { format: 'f32', rows, cols, data }
  const sum = {
    fn: 'sum',
    dtype: 'f32',
    shape: [tokens],
    reduced: [rows],
    strides: [rows],
    reducedStrides: [1],
  }
  const steps = kernels.prepare(
    [
      { op: 'linear', args: { weight, tokens, x, y: z } },
      { op: 'unary', args: { fn: 'gelu', dtype: 'f32', count: z.length, x: z, y: activated } },
      { op: 'reduce', args: { ...sum, x: activated, y } },
    ],
    { scratch: [arena.buffer], constant: [data.buffer] },
  )
  return { x, y, steps }
}

await gpuTests({
  'a plan agrees with the CPU at each of five runs': async (/** @type {Claims} */ t) => {
    const [gpu, cpu] = [
      layer(await openKernels({ backend: 'cuda' })),
      layer(await openKernels({ backend: 'cpu' })),
    ]
    for (let run = 1; run <= 5; ++run) {
      const x = ramp(tokens * cols, 0.11 * run)
      for (const { x: area } of [gpu, cpu]) area.set(x)
      await Promise.all([gpu.steps.run(), cpu.steps.run()])
      const largest = cpu.y.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
      const error = cpu.y.reduce((most, value, i) => Math.max(most, Math.abs(value - (gpu.y[i] ?? NaN))), 0)
      t.ok(error <= 1e-5 * largest, `run ${run}`, `differs by ${error}, the largest is ${largest}`)
    }
    for (const { steps } of [gpu, cpu]) steps.dispose()
  },
})
