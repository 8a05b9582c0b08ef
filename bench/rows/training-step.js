// training-step.js: one step of training the DoRA adapter of a convolutional network on a batch of 64: forward pass,
// backward pass, AdamW. The rows end one phase later each; a phase costs what its row takes more than the one before.
// On a GPU also with products of bf16, as `precision: 'bf16'` trains.
import assert from 'node:assert'
import { createAdapter } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { roundProducts } from '#lib/graph/rewrites/half-precision.js'
import { addLoss } from '#lib/graph/rewrites/losses.js'
import { adamwInputs, addAdamW } from '#lib/graph/rewrites/optimizer.js'
import { Plan } from '#lib/plan/plan.js'
import { ms } from '../harness.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const batch = 64
const rank = 4

/** Shape of the row of a step with all its phases: the one that has a target. */
const whole = 'whole step'

/** The network of the shared adapter `dora_conv_mnist`, with weights of its own: times do not depend on them. */
const shapes = {
  conv1: [8, 1, 3, 3],
  conv2: [16, 8, 3, 3],
  conv3: [24, 16, 3, 3],
  fc1: [32, 24 * 22 * 22],
  fc2: [10, 32],
}

/** Convolutions and linear layers with frozen normalization in front of fc1 and behind fc2. */
function network() {
  const initializers = new Map()
  const vector = (/** @type {string} */ name, /** @type {Float32Array} */ values) =>
    initializers.set(name, Constant.from('f32', [values.length], values))
  for (const [i, [layer, shape]] of Object.entries(shapes).entries()) {
    const [rows = 0, ...rest] = shape
    const fanIn = rest.reduce((product, size) => product * size)
    const values = uniform(rows * fanIn, i + 1).map(value => value / Math.sqrt(fanIn))
    initializers.set(`${layer}.weight`, Constant.from('f32', shape, values))
    vector(`${layer}.bias`, new Float32Array(rows))
  }
  for (const [layer, channels] of Object.entries({ norm1: 24, norm2: 10 })) {
    for (const name of ['gain', 'variance']) vector(`${layer}.${name}`, new Float32Array(channels).fill(1))
    for (const name of ['shift', 'mean']) vector(`${layer}.${name}`, new Float32Array(channels))
  }
  const own = (/** @type {string} */ layer) => [`${layer}.weight`, `${layer}.bias`]
  const norm = (/** @type {string} */ layer) =>
    ['gain', 'shift', 'mean', 'variance'].map(name => `${layer}.${name}`)
  const rows = { attributes: { transB: int(1) } }
  return makeGraph({
    inputs: [{ name: 'image', type: tensorType('f32', ['n', 1, 28, 28]) }],
    outputs: [{ name: 'scores' }],
    nodes: [
      makeNode('Conv', ['image', ...own('conv1')], ['c1']),
      makeNode('Relu', ['c1'], ['r1']),
      makeNode('Conv', ['r1', ...own('conv2')], ['c2']),
      makeNode('Relu', ['c2'], ['r2']),
      makeNode('Conv', ['r2', ...own('conv3')], ['c3']),
      makeNode('Relu', ['c3'], ['r3']),
      makeNode('BatchNormalization', ['r3', ...norm('norm1')], ['n1']),
      makeNode('Flatten', ['n1'], ['flat']),
      makeNode('Gemm', ['flat', ...own('fc1')], ['h'], rows),
      makeNode('Relu', ['h'], ['r4']),
      makeNode('Gemm', ['r4', ...own('fc2')], ['logits'], rows),
      makeNode('BatchNormalization', ['logits', ...norm('norm2')], ['scores']),
    ],
    initializers,
  })
}

/** The graphs of a step that ends after each phase. @param {Kernels} kernels @param {'f32' | 'bf16'} dtype */
async function phases(kernels, dtype) {
  const targetModules = Object.keys(shapes)
  const adapter = await createAdapter(network(), { targetModules, rank, backend: kernels.backend })
  const layers = dtype === 'f32' ? adapter.graph : roundProducts(adapter.graph, dtype)
  const { graph, loss } = addLoss(layers, 'cross-entropy')
  const outputs = [{ name: loss }]
  const wrt = [...adapter.parameters]
  // Parameters that nothing updates are constants: their products would be made once, before the first run.
  const carried = new Map(wrt.map(name => [name, name]))
  const forward = { ...graph, outputs, updates: carried }
  const { graph: both, gradients } = differentiate({ ...graph, outputs }, { loss, wrt })
  const backward = {
    ...both,
    outputs: [...outputs, ...[...gradients.values()].map(name => ({ name }))],
    updates: carried,
  }
  const step = { ...addAdamW(both, { gradients }), outputs }
  return { loss, graphs: { forward, 'forward + backward': backward, [whole]: step } }
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* trainingStep(kernels) {
  yield* steps(kernels, 'f32')
  if (kernels.backend === 'cuda') yield* steps(kernels, 'bf16')
}

/** @param {Kernels} kernels @param {'f32' | 'bf16'} dtype @returns {AsyncGenerator<Case>} */
async function* steps(kernels, dtype) {
  const { loss, graphs } = await phases(kernels, dtype)
  const target = Int32Array.from({ length: batch }, (_, i) => (7 * i) % 10)
  const data = { image: uniform(batch * 28 * 28, 3), target }
  const shapesOf = { image: [batch, 1, 28, 28], target: [batch] }
  /** @type {number[]} */
  const best = []
  const plain = await openKernels({ backend: 'js' })
  for (const [name, graph] of Object.entries(graphs)) {
    const plan = await Plan.create(graph, kernels, { shapes: shapesOf })
    let [number, least] = [0, Number.POSITIVE_INFINITY]
    /** @type {Awaited<ReturnType<Plan['run']>>} */
    let first = {}
    const feedsOf = (/** @type {number} */ step) => {
      const rate = { [adamwInputs.rate]: Float64Array.of(1e-4), [adamwInputs.step]: Float64Array.of(step) }
      return name === whole ? { ...data, ...rate } : data
    }
    const step = async () => {
      number += 1
      const start = performance.now()
      const outputs = await plan.run(feedsOf(number))
      least = Math.min(least, performance.now() - start)
      if (number === 1) first = structuredClone(outputs)
    }
    let done = Promise.resolve()
    const run = () => {
      done = done.then(step) // a plan has one run at a time, and a batch of calls comes at once
      return done
    }
    yield {
      name: 'training step',
      shape: `B${batch} r${rank} ${name}`,
      dtype,
      flops: batch * flopsOf(name),
      ...(name === whole && dtype === 'f32' && { sizes: { tokens: batch, rows: 10, cols: 28 * 28, rank } }),
      run,
      check: async () => {
        const reference = await Plan.create(graph, plain, { shapes: shapesOf })
        const expected = await reference.run(feedsOf(1))
        for (const [output, values] of Object.entries(expected)) {
          expectClose(
            /** @type {Float32Array} */ (first[output]),
            /** @type {Float32Array} */ (values),
            dtype === 'f32' ? 1e-3 : 5e-2,
          )
        }
        // Ten classes and small scores: the loss of a guess is log 10.
        const guess = Number(first[loss]?.[0])
        assert.ok(Math.abs(guess - Math.log(10)) < 0.7, `the loss ${guess} should be near log 10`)
        reference.dispose()
      },
    }
    if (number > 0) best.push(least)
    if (best.length === 3) console.log(summary(best, plan.stats.arenaBytes))
    plan.dispose()
  }
}

/** Best times of the three rows as those of the phases. @param {number[]} best @param {number} arenaBytes */
function summary([forward = 0, both = 0, step = 0], arenaBytes) {
  const parts = [`forward ${ms(forward)}`, `backward ${ms(both - forward)}`, `update ${ms(step - both)} ms`]
  const peak = `${(arenaBytes / 2 ** 20).toFixed(1)} MiB of values in between`
  return `  at best ${(1000 / step).toFixed(1)} steps/s: ${parts.join(', ')}; ${peak}`
}

/** Multiplications and additions of the layers for an image; a backward pass does twice those of the forward pass. */
function flopsOf(/** @type {string} */ phase) {
  const positions = { conv1: 26 * 26, conv2: 24 * 24, conv3: 22 * 22, fc1: 1, fc2: 1 }
  const forward = Object.entries(shapes).reduce((sum, [layer, shape]) => {
    const weight = shape.reduce((product, size) => product * size)
    return sum + 2 * weight * positions[/** @type {keyof typeof positions} */ (layer)]
  }, 0)
  return phase === 'forward' ? forward : 3 * forward
}
