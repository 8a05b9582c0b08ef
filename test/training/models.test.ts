// DoRA adapters on real models: they start away from the base and are taught by it, so that the loss must fall to it.
import path from 'node:path'
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { Constant } from '#lib/graph/constant.js'
import type { Graph } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import type { Loss } from '#lib/graph/rewrites/losses.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import type { Batch } from '#lib/training/dataset.js'
import { Trainer } from '#lib/training/trainer.js'
import { backends } from '../fixtures/backends.js'
import { randomAdapter } from '../fixtures/models/trainable.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

interface ModelCase {
  readonly file: string
  readonly loss: Loss
  readonly targets: number
  readonly steps: number
  readonly batch: (random: () => number) => Batch
  /** Inputs that are the same for all samples. */
  readonly fixed?: Readonly<Record<string, Constant>>
}

const floats = (random: () => number, shape: number[]) => {
  const count = numel(shape)
  return { shape, data: Float32Array.from({ length: count }, () => 2 * random() - 1) }
}

const cases: readonly ModelCase[] = [
  {
    file: 'tinyphysics.onnx',
    loss: 'kl',
    targets: 18,
    steps: 50,
    batch: random => ({
      states: floats(random, [3, 20, 4]),
      tokens: {
        shape: [3, 20],
        data: BigInt64Array.from({ length: 60 }, () => BigInt(Math.floor(1024 * random()))),
      },
    }),
  },
  {
    file: 'openpilot/dmonitoring_model.3294407.onnx',
    loss: 'mse',
    targets: 58,
    steps: 50,
    batch: random => ({ input_img: floats(random, [1, 6, 320, 160]) }),
  },
  {
    file: 'mnist/mnist-8.onnx',
    loss: 'mse',
    targets: 3,
    steps: 30,
    batch: random => ({ Input3: floats(random, [1, 1, 28, 28]) }),
  },
  {
    // A model of f16.
    file: 'mnist/mnist_float16.onnx',
    loss: 'mse',
    targets: 3,
    steps: 30,
    batch: random => {
      const { shape, data } = floats(random, [1, 1, 28, 28])
      return { Input3: { shape, data: Tensor.from(data, { shape }).to('f16').data } }
    },
  },
  {
    file: 'vision/super_resolution.onnx',
    loss: 'l1',
    targets: 4,
    steps: 8,
    batch: random => ({ input: floats(random, [1, 1, 224, 224]) }),
  },
  {
    // A recurrent layer inside of branches that the sizes decide.
    file: 'silero/silero_vad_16k_op15.onnx',
    loss: 'mse',
    targets: 6,
    steps: 30,
    batch: random => ({ input: floats(random, [1, 576]) }),
    fixed: { sr: Constant.i64([16000]), state: Constant.f32(new Array(256).fill(0), [2, 1, 128]) },
  },
  {
    // Sequences whose length only the batch says.
    file: 'recurrent/byte_sb_bidi_lstm.onnx',
    loss: 'mse',
    targets: 1,
    steps: 30,
    batch: random => ({
      input: { shape: [3, 9], data: Uint8Array.from({ length: 27 }, () => 97 + Math.floor(26 * random())) },
    }),
  },
]

/** Mean of the first or last losses. */
const mean = (losses: readonly number[]): number =>
  losses.reduce((sum, loss) => sum + loss, 0) / losses.length

const skip = noGolden || (backends.includes('cpu') ? false : 'no native addon')

for (const { file, loss, targets, steps, batch, fixed = {} } of cases) {
  t.test(file, { skip }, async t => {
    const read = canonicalise(await readOnnx(path.join(process.env.DGX_SPARK_TEST_DATA!, 'models', file)))
    const initializers = new Map([...read.initializers, ...Object.entries(fixed)])
    const graph: Graph = { ...read, initializers, inputs: read.inputs.filter(({ name }) => !(name in fixed)) }
    const adapter = randomAdapter(graph, { rank: 2, change: 0.15, seed: 1 })
    t.equal(adapter.parameters.length, 3 * targets)
    const random = randomGenerator(2)
    function* batches(): Generator<Batch> {
      for (let step = 0; step < steps; step++) yield batch(random)
    }
    const optimizer = { type: 'adamw', learningRate: 3e-3 } as const
    const trainer = new Trainer({ graph }, adapter, { loss, optimizer, teacher: { graph }, backend: 'cpu' })
    const losses: number[] = []
    for await (const event of trainer.steps(batches)) losses.push(event.loss)
    const part = Math.ceil(steps / 10)
    const [before, after] = [mean(losses.slice(0, part)), mean(losses.slice(-part))]
    t.ok(after < 0.7 * before, `the loss fell from ${before} to ${after}`)
  })
}
