// base.js: makes the ONNX file that the example starts from. Skip it where you have a model of your own. `#lib` is not
// public: these imports work inside of this package only.
import { Model, Trainer } from 'dgx-spark'
import { randomGenerator } from '#lib/core/random.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { dataset } from './data.js'

/** @import { BackendName, TrainingEvent } from 'dgx-spark' */
/** @import { Digits } from './data.js' */

const shapes = {
  conv1: [8, 1, 3, 3],
  conv2: [16, 8, 3, 3],
  fc1: [256, 16 * 7 * 7],
  fc2: [10, 256],
}

/** Two convolutions and two linear layers, 28x28 pixels to 10 scores, with random weights (He et al. 2015, uniform). */
export function untrained() {
  const random = randomGenerator(1)
  const initializers = new Map()
  for (const [layer, shape] of Object.entries(shapes)) {
    const fanIn = shape.slice(1).reduce((product, size) => product * size)
    const bound = Math.sqrt(6 / fanIn)
    const weight = Float32Array.from({ length: shape[0] * fanIn }, () => (2 * random() - 1) * bound)
    initializers.set(`${layer}.weight`, Constant.from('f32', shape, weight))
    initializers.set(`${layer}.bias`, Constant.from('f32', [shape[0]], new Float32Array(shape[0])))
  }
  const halving = { attributes: { strides: ints([2, 2]), pads: ints([1, 1, 1, 1]) } }
  const rows = { attributes: { transB: int(1) } }
  const layer = (/** @type {string} */ name) => [`${name}.weight`, `${name}.bias`]
  return makeGraph({
    inputs: [{ name: 'image', type: tensorType('f32', ['n', 1, 28, 28]) }],
    outputs: [{ name: 'scores', type: tensorType('f32', ['n', 10]) }],
    nodes: [
      makeNode('Conv', ['image', ...layer('conv1')], ['c1'], halving),
      makeNode('Relu', ['c1'], ['r1']),
      makeNode('Conv', ['r1', ...layer('conv2')], ['c2'], halving),
      makeNode('Relu', ['c2'], ['r2']),
      makeNode('Flatten', ['r2'], ['flat']),
      makeNode('Gemm', ['flat', ...layer('fc1')], ['h'], rows),
      makeNode('Relu', ['h'], ['r3']),
      makeNode('Gemm', ['r3', ...layer('fc2')], ['scores'], rows),
    ],
    initializers,
  })
}

/**
 * Trains all weights of the network on `digits` and writes it as ONNX.
 * @param {string} file
 * @param {Digits} digits
 * @param {{ backend?: BackendName | undefined }} options
 * @param {(event: TrainingEvent) => void} onStep
 */
export async function makeBase(file, digits, { backend }, onStep) {
  const graph = untrained()
  const weights = new Map([...graph.initializers].map(([name, { data }]) => [name, data.slice()]))
  const whole = {
    graph,
    parameters: [...weights.keys()],
    read: (/** @type {string} */ name) => /** @type {Float32Array} */ (weights.get(name)).slice(),
    write: (/** @type {string} */ name, /** @type {Float32Array} */ values) => {
      weights.set(name, values.slice())
    },
  }
  const engine = backend && { backend }
  const trainer = new Trainer({ graph }, whole, {
    ...engine,
    loss: 'cross-entropy',
    epochs: 2,
    batchSize: 64,
    seed: 1,
  })
  for await (const event of trainer.fit(dataset(digits))) onStep(event)
  const initializers = new Map(
    [...graph.initializers].map(([name, { shape }]) => {
      return [name, Constant.from('f32', shape, whole.read(name))]
    }),
  )
  const model = await Model.fromGraph({ ...graph, initializers }, { ...engine })
  await model.save(file)
  model.dispose()
}
