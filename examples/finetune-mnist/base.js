// base.js: makes the ONNX file that the example starts from. Skip it where you have a model of your own.
import { Constant, GraphBuilder, Model, Tensor, Trainer } from 'dgx-spark'
import { dataset } from './data.js'

/** @import { BackendName, TrainingEvent } from 'dgx-spark' */
/** @import { Digits } from './data.js' */

/** Two convolutions and two linear layers, 28x28 pixels to 10 scores, with random weights (He et al. 2015, uniform). */
export function untrained() {
  const g = new GraphBuilder()
  let seed = 1
  const layer = (/** @type {string} */ name, /** @type {number[]} */ shape) => {
    const fanIn = shape.slice(1).reduce((product, size) => product * size)
    const bound = Math.sqrt(6 / fanIn)
    const weight = Tensor.random(shape, { seed: seed++ }).data.map(value => (2 * value - 1) * bound)
    return [
      g.initializer(`${name}.weight`, Tensor.from(weight, { shape })),
      g.initializer(`${name}.bias`, Tensor.zeros(shape.slice(0, 1))),
    ]
  }
  const halving = { strides: [2, 2], pads: [1, 1, 1, 1] }
  const image = g.input('image', 'f32', ['n', 1, 28, 28])
  const small = g.add('Relu', [g.add('Conv', [image, ...layer('conv1', [8, 1, 3, 3])], halving)])
  const smaller = g.add('Relu', [g.add('Conv', [small, ...layer('conv2', [16, 8, 3, 3])], halving)])
  const rows = { transB: 1 }
  const flat = g.add('Flatten', [smaller])
  const hidden = g.add('Relu', [g.add('Gemm', [flat, ...layer('fc1', [256, 16 * 7 * 7])], rows)])
  g.output(g.add('Gemm', [hidden, ...layer('fc2', [10, 256])], rows), 'scores')
  return g.build()
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
  await trainer.fit(dataset(digits), { onStep })
  const initializers = new Map(
    [...graph.initializers].map(([name, { shape }]) => {
      return [name, Constant.from('f32', shape, whole.read(name))]
    }),
  )
  const model = await Model.fromGraph({ ...graph, initializers }, { ...engine })
  await model.save(file)
  model.dispose()
}
