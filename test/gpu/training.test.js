// Training on the GPU does what it does on the CPU: the losses, gradient norms and parameters of twelve steps, most of them
// replayed, through batches of two sizes; a training that goes on from a checkpoint gives the same bits.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { ArrayDataset, createAdapter, Trainer } from 'dgx-spark'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { gpuTests, uniform } from '../fixtures/gpu-suite/gpu.js'

/** @import { TrainerOptions } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const samples = 37
const tolerance = 1e-3
const halfTolerance = 5e-2 // the adapter is rounded to bf16 or f16 in front of tensor cores, on the GPU alone
const weights = { conv: [6, 3, 3, 3], 'fc.weight': [5, 6 * 4 * 4] }

/** A convolution, a pool, a gather of its channels and a linear layer: scores of five classes for 3 x 9 x 9. */
function network() {
  const initializers = new Map(
    Object.entries(weights).map(([name, shape], i) => {
      const count = shape.reduce((product, size) => product * size)
      return [name, Constant.from('f32', shape, uniform(count, i + 1))]
    }),
  )
  initializers.set('order', Constant.i64([5, 0, 0, 3, 2, 1]))
  initializers.set('flat', Constant.i64([0, -1]))
  return makeGraph({
    inputs: [{ name: 'image', type: tensorType('f32', ['n', 3, 9, 9]) }],
    outputs: [{ name: 'scores' }],
    nodes: [
      makeNode('Conv', ['image', 'conv'], ['c'], { attributes: { pads: ints([1, 1, 0, 0]) } }),
      makeNode('Tanh', ['c'], ['t']),
      makeNode('MaxPool', ['t'], ['p'], {
        attributes: { kernel_shape: ints([2, 2]), strides: ints([2, 2]) },
      }),
      makeNode('Gather', ['p', 'order'], ['g'], { attributes: { axis: int(1) } }),
      makeNode('Reshape', ['g', 'flat'], ['f']),
      makeNode('Gemm', ['f', 'fc.weight'], ['scores'], { attributes: { transB: int(1) } }),
    ],
    initializers,
  })
}

const data = new ArrayDataset({
  image: { shape: [samples, 3, 9, 9], data: uniform(samples * 243, 7) },
  target: { shape: [samples], data: Int32Array.from({ length: samples }, (_, i) => (3 * i) % 5) },
})

/** @param {'cuda' | 'cpu'} backend @param {Partial<TrainerOptions>} more */
async function train(backend, more = {}) {
  const adapter = await createAdapter(network(), { targetModules: '.*', rank: 2, seed: 3, backend: 'cpu' })
  const settings = { loss: 'cross-entropy', epochs: 3, batchSize: 10, maxNorm: 1, backend, ...more }
  const trainer = new Trainer(adapter, adapter, /** @type {TrainerOptions} */ (settings))
  const [losses, norms] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])]
  for await (const { loss, gradientNorm } of trainer.steps(data)) {
    losses.push(loss)
    norms.push(gradientNorm)
  }
  return { losses, norms, parameters: adapter.parameters.flatMap(name => [...adapter.read(name)]) }
}

/** @type {Partial<TrainerOptions>} */
const descent = { optimizer: { type: 'sgd', learningRate: 0.1, momentum: 0.9 } }

await gpuTests({
  'adamw agrees with the CPU': t => agrees(t, { optimizer: { type: 'adamw', learningRate: 0.01 } }),
  'sgd, accumulated, agrees with the CPU': t =>
    agrees(t, { optimizer: { type: 'sgd', learningRate: 0.1, momentum: 0.9 }, accumulate: 2 }),
  'in bf16, agrees with the CPU': t => agrees(t, { ...descent, precision: 'bf16' }, halfTolerance),
  'in fp16, agrees with the CPU': t => agrees(t, { ...descent, precision: 'fp16' }, halfTolerance),
  'in bf16 again, the same bits': async (/** @type {Claims} */ t) => {
    const [once, again] = [
      await train('cuda', { precision: 'bf16' }),
      await train('cuda', { precision: 'bf16' }),
    ]
    t.same(again.losses, once.losses, 'losses')
    t.same(again.parameters, once.parameters, 'parameters')
  },
  'resumed, the same bits': async (/** @type {Claims} */ t) => {
    const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-training-'))
    const straight = await train('cuda')
    const checkpoint = { folder, every: 5, keep: 9 }
    await train('cuda', { checkpoint })
    const resumed = await train('cuda', { resume: path.join(folder, 'step-00000005.safetensors') })
    rmSync(folder, { recursive: true })
    t.same(resumed.losses, straight.losses.slice(5), 'losses')
    t.same(resumed.parameters, straight.parameters, 'parameters')
    t.ok(straight.parameters.every(Number.isFinite), 'that are finite')
    t.ok(new Set(straight.losses).size === straight.losses.length, 'losses change')
  },
})

/** @param {Claims} t @param {Partial<TrainerOptions>} options @param {number} [within] */
async function agrees(t, options, within = tolerance) {
  const [gpu, cpu] = [await train('cuda', options), await train('cpu', options)]
  t.close(gpu.losses, cpu.losses, within, 'losses')
  t.close(gpu.norms, cpu.norms, within, 'gradient norms')
  t.close(gpu.parameters, cpu.parameters, within, 'parameters')
}
