// Real models: their outputs against ONNX Runtime, and what they are known to do.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import type { Constant } from '#lib/graph/constant.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { lightModel } from '../fixtures/models/light-models.js'
import { modelFile, modelFiles, noModels } from '../fixtures/models/onnx-models.js'
import { normalized, rightDigits } from '../fixtures/models/test-digits.js'
import { noExactInt8, randomFeeds, runOnnxRuntime } from '../fixtures/onnx-runtime.js'

const skip = noModels
const cpu = backends.includes('cpu')
const named = (name: string): string => modelFiles().find(file => path.basename(file) === name)!

/** Sizes that models leave open. */
const sizes: Record<string, number> = { batch: 1, sequence: 576, length: 7, b: 2 }

const asTensor = ({ dtype, shape, data }: Constant): Tensor<'f32'> =>
  Tensor.from(data, { dtype, shape }) as Tensor<'f32'>

/** Inputs for a model; silero has a branch for 16 kHz only. */
function feedsFor({ graph }: Model): Map<string, Constant> {
  const feeds = randomFeeds(graph, 3, sizes)
  const rate = feeds.get('sr')
  if (rate) (rate.data as BigInt64Array)[0] = 16000n
  return feeds
}

/** Compares with ONNX Runtime: max|a − b| <= tolerance · max|b| for each output. */
async function agrees(t: Test, model: Model, source: string | Uint8Array, tolerance = 1e-4): Promise<void> {
  const feeds = feedsFor(model)
  const expected = await runOnnxRuntime(source, feeds, true)
  const inputs = Object.fromEntries(Array.from(feeds, ([name, constant]) => [name, asTensor(constant)]))
  for (const run of ['first', 'second']) {
    const outputs = await model.run(inputs)
    for (const [name, { dims, type, data }] of Object.entries(expected)) {
      const output = outputs[name]!
      t.same(output.shape, dims, `${run} ${name}`)
      const numbers =
        type === 'float16'
          ? Tensor.from(new Uint16Array((data as Uint16Array).buffer), { dtype: 'f16' }).toFloat32()
          : (data as Float32Array)
      close(t, output.toFloat32(), numbers, tolerance, `${run} ${name}`)
    }
  }
}

/** Small enough for the loops in TypeScript. */
const forJs = [
  'burn_mnist.onnx',
  'mnist-8.onnx',
  'mnist_original_pytorch.onnx',
  'byte_sb_bidi_lstm.onnx',
  'silero_vad_16k_op15.onnx',
  'tinyphysics.onnx',
  'version-RFB-320.onnx',
]
/** Products of f16 are rounded in another order. */
const tolerances: Record<string, number> = { 'mnist_float16.onnx': 1e-2 }

if (!skip) {
  for (const file of modelFiles()) {
    const name = path.basename(file)
    for (const backend of backends.filter(backend => backend === 'cpu' || forJs.includes(name))) {
      const skip = name.includes('int8') && noExactInt8
      t.test(`${name} on ${backend}`, { skip }, async t => {
        const light = name.startsWith('light_') ? serializeOnnx(await lightModel(file)) : undefined
        using model = await Model.load(light ?? file, { backend })
        await agrees(t, model, light ?? file, tolerances[name])
        t.comment(JSON.stringify(model.stats))
      })
    }
  }
}

t.test('accuracy on the 10,000 test digits', { skip: skip || !cpu }, async t => {
  for (const [name, scale, right] of [
    ['mnist-8', (pixel: number) => pixel, 9891],
    ['burn_mnist', normalized, 9916],
  ] as const) {
    using model = await Model.load(modelFile('mnist', `${name}.onnx`), { backend: 'cpu' })
    t.equal(await rightDigits(model, scale), right, name)
  }
})

t.test('speech in a minute of sound', { skip: skip || !cpu }, async t => {
  using model = await Model.load(named('silero_vad_16k_op15.onnx'), { backend: 'cpu' })
  const wav = readFileSync(modelFile('silero', 'test.wav'))
  const start = wav.indexOf('data') + 8
  const samples = Float32Array.from(
    { length: (wav.length - start) >> 1 },
    (_, i) => wav.readInt16LE(start + 2 * i) / 32768,
  )
  const sr = Tensor.from(16000, { dtype: 'i64' })
  const input = new Float32Array(64 + 512)
  let state: Tensor = Tensor.zeros([2, 1, 128])
  let [sum, frames] = [0, 0]
  for (let at = 0; at + 512 <= samples.length; at += 512) {
    input.copyWithin(0, 512)
    input.set(samples.subarray(at, at + 512), 64)
    const outputs = await model.run<Tensor>({ input: Tensor.from(input, { shape: [1, 576] }), state, sr })
    sum += outputs.output!.toFloat32()[0]!
    state = outputs.stateN!
    frames++
  }
  t.ok(Math.abs(sum / frames - 0.778) < 5e-4, `mean probability ${sum / frames} of ${frames} frames`)
})
