// training-step.js: one step of training the DoRA adapter of a convolutional network on a batch of 64: forward pass,
// backward pass, AdamW. The rows end one phase later each; a phase costs what its row takes more than the one before.
import assert from 'node:assert'
import { createAdapter } from 'dgx-spark'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { addLoss } from '#lib/graph/rewrites/losses.js'
import { adamwInputs, addAdamW } from '#lib/graph/rewrites/optimizer.js'
import { Plan } from '#lib/runtime/plan/plan.js'
import { uniform } from '../random.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */

const batch = 64
const rank = 8

/** The MNIST network of PyTorch's examples: two convolutions of 3x3, pooling, two linear layers. */
const shapes = { conv1: [32, 1, 3, 3], conv2: [64, 32, 3, 3], fc1: [128, 9216], fc2: [10, 128] }

function network() {
  const initializers = new Map()
  for (const [i, [layer, shape]] of Object.entries(shapes).entries()) {
    const fanIn = shape.slice(1).reduce((product, size) => product * size)
    const values = uniform((shape[0] ?? 0) * fanIn, i + 1).map(value => value / Math.sqrt(fanIn))
    initializers.set(`${layer}.weight`, Constant.from('f32', shape, values))
    initializers.set(
      `${layer}.bias`,
      Constant.from(
        'f32',
        shape.slice(0, 1),
        uniform(shape[0] ?? 0, i + 9).map(value => value / 10),
      ),
    )
  }
  const parameters = (/** @type {string} */ layer) => [`${layer}.weight`, `${layer}.bias`]
  const rows = { attributes: { transB: int(1) } }
  /** @type {import('#lib/graph/graph.js').Attributes} */
  const halves = { kernel_shape: { type: 'ints', value: [2, 2] }, strides: { type: 'ints', value: [2, 2] } }
  return makeGraph({
    inputs: [{ name: 'image', type: tensorType('f32', ['n', 1, 28, 28]) }],
    outputs: [{ name: 'scores' }],
    nodes: [
      makeNode('Conv', ['image', ...parameters('conv1')], ['c1']),
      makeNode('Relu', ['c1'], ['r1']),
      makeNode('Conv', ['r1', ...parameters('conv2')], ['c2']),
      makeNode('Relu', ['c2'], ['r2']),
      makeNode('MaxPool', ['r2'], ['pooled'], { attributes: halves }),
      makeNode('Flatten', ['pooled'], ['flat']),
      makeNode('Gemm', ['flat', ...parameters('fc1')], ['h'], rows),
      makeNode('Relu', ['h'], ['r3']),
      makeNode('Gemm', ['r3', ...parameters('fc2')], ['scores'], rows),
    ],
    initializers,
  })
}

/** The graphs of a step that ends after each phase. @param {Kernels} kernels */
async function phases(kernels) {
  const targetModules = Object.keys(shapes)
  const adapter = await createAdapter(network(), { targetModules, rank, backend: kernels.backend })
  const { graph, loss } = addLoss(adapter.graph, 'cross-entropy')
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
  const whole = { ...addAdamW(both, { gradients }), outputs }
  return { loss, graphs: { forward, 'forward, backward': backward, 'whole step': whole } }
}

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* trainingStep(kernels) {
  if (kernels.backend === 'cuda') return // it has no plans yet
  const { loss, graphs } = await phases(kernels)
  const target = Int32Array.from({ length: batch }, (_, i) => (7 * i) % 10)
  const data = { image: uniform(batch * 28 * 28, 3), target }
  const shapesOf = { image: [batch, 1, 28, 28], target: [batch] }
  for (const [name, graph] of Object.entries(graphs)) {
    const plan = await Plan.create(graph, kernels, { shapes: shapesOf })
    const { arenaBytes, steps } = plan.stats
    let number = 0
    let last = Number.NaN
    const run = async () => {
      number += 1
      const rate = { [adamwInputs.rate]: Float64Array.of(1e-4), [adamwInputs.step]: Float64Array.of(number) }
      const feeds = name === 'whole step' ? { ...data, ...rate } : data
      last = Number((await plan.run(feeds))[loss]?.[0])
    }
    yield {
      name: 'training step',
      shape: `B${batch} r${rank} ${name}, ${steps} calls, ${(arenaBytes / 2 ** 20).toFixed(1)} MiB`,
      dtype: 'f32',
      sizes: { tokens: batch, rows: 128, cols: 9216, rank },
      flops: batch * flopsOf(name),
      run,
      // Ten classes and small weights: the loss of a guess is log 10.
      check: () => assert.ok(Math.abs(last - Math.log(10)) < 0.3, `the loss ${last} should be near log 10`),
    }
    plan.dispose()
  }
}

/** Multiplications and additions of the layers for an image; a backward pass does twice those of the forward pass. */
function flopsOf(/** @type {string} */ phase) {
  const positions = { conv1: 26 * 26, conv2: 24 * 24, fc1: 1, fc2: 1 }
  const forward = Object.entries(shapes).reduce((sum, [layer, shape]) => {
    const weight = shape.reduce((product, size) => product * size)
    return sum + 2 * weight * positions[/** @type {keyof typeof positions} */ (layer)]
  }, 0)
  return phase === 'forward' ? forward : 3 * forward
}
