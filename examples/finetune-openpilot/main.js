// main.js: a policy that was disturbed learns from the original on a real drive: logs and video, frames, outputs of the teacher, an
// adapter, a merged model. Usage: node examples/finetune-openpilot/main.js <drives> <output> [driver monitoring model]
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import {
  buildOpenpilotModel,
  createAdapter,
  drivingLoss,
  findRoutes,
  Model,
  openModel,
  prepareDistillation,
  readModelFrames,
  readScaledFrames,
  Trainer,
  writeOnnx,
} from 'dgx-spark'
import { disturb } from './disturb.js'

const [drives, output, monitor] = process.argv.slice(2)
if (!drives || !output) {
  console.error('usage: node main.js <drives> <output> [driver monitoring model]')
  process.exit(2)
}
mkdirSync(output, { recursive: true })
const file = (/** @type {string} */ name) => path.join(output, name)

// The weights of openpilot's models are not part of this project; these have the same inputs, outputs and operators.
for (const name of /** @type {const} */ (['driving_vision', 'driving_policy']))
  await writeOnnx(await buildOpenpilotModel(name, { seed: 1 }), file(`${name}.onnx`))
await writeOnnx(
  await disturb(file('driving_policy.onnx'), { rank: 8, norm: 0.1, seed: 3 }),
  file('student.onnx'),
)

const routes = await findRoutes(drives)
const segments = routes.flatMap(route => route.segments)
for (const segment of segments) await load(segment)
if (monitor) await watchDriver(monitor, segments[0])

const engine = /** @type {const} */ ({ precision: 'fp32' })
const vision = await openModel(file('driving_vision.onnx'), { ...engine, batchSize: 4 })
const teacher = await openModel(file('driving_policy.onnx'), { ...engine, batchSize: 16 })
const student = await openModel(file('student.onnx'), { ...engine, batchSize: 16 })
const data = await prepareDistillation(segments, { student, vision, teacher }, { cache: file('teacher') })
for (const [stage, seconds] of Object.entries(data.stages))
  if (data.frames > 0) console.log(`${stage}: ${(data.frames / seconds).toFixed(0)} frames/s`)

const base = await Model.load(file('student.onnx'), engine)
const adapter = await createAdapter(base, { rank: 16, targetModules: 'all-linear', seed: 5 })
const [training, validation] = data.split(0.1)
const trainer = new Trainer(base, adapter, {
  loss: await drivingLoss(student),
  epochs: 6,
  batchSize: 32,
  optimizer: { type: 'adamw', learningRate: 1e-3 },
  schedule: { type: 'cosine', warmup: 10 },
  maxNorm: 1,
})
const before = await trainer.evaluate(validation)
const start = performance.now()
const { steps } = await trainer.fit(training)
console.log(
  `step: ${((32 * steps * 1000) / (performance.now() - start)).toFixed(0)} frames/s, ${steps} steps`,
)
const after = await trainer.evaluate(validation)
console.log(
  `held-out loss: ${before.loss.toFixed(2)} -> ${after.loss.toFixed(2)}, ${(before.loss / after.loss).toFixed(1)}x`,
)

await adapter.save(file('adapter'))
const merged = await adapter.merge()
await writeOnnx(merged.graph, file('merged.onnx'))
const error = await compareEngines(file('merged.onnx'), await validation.read([0]))
console.log(`merged.onnx in onnxruntime-node: largest difference ${error.toExponential(1)}`)
await data.close()

/** Reads the frames of a segment as models want them, all stages together. */
async function load(/** @type {import('dgx-spark').Segment} */ segment) {
  const start = performance.now()
  let frames = 0
  for await (const { count } of readModelFrames(segment)) frames += count
  const rate = (1000 * frames) / (performance.now() - start)
  console.log(`loader: ${rate.toFixed(0)} frames/s, ${(rate / 20).toFixed(1)} times real time`)
}

/** The largest difference between ONNX Runtime and this library, relative to the largest output. */
async function compareEngines(/** @type {string} */ merged, /** @type {import('dgx-spark').Batch} */ batch) {
  /** @type {Float32Array[]} */
  const results = []
  for (const backend of /** @type {const} */ (['cpu', 'onnxruntime'])) {
    const model = await openModel(merged, { backend })
    const inputs = model.inputs.map(({ name }) => [name, /** @type {Float32Array} */ (batch[name]?.data)])
    const { outputs } = await model.model.run(model.cast(Object.fromEntries(inputs)))
    results.push(/** @type {import('dgx-spark').Tensor<'f16'>} */ (outputs).toFloat32())
    model.dispose()
  }
  const [ours, theirs] = /** @type {[Float32Array, Float32Array]} */ (results)
  const largest = theirs.reduce((max, value) => Math.max(max, Math.abs(value)), 0)
  return ours.reduce((max, value, i) => Math.max(max, Math.abs(value - (theirs[i] ?? 0))), 0) / largest
}

/** Outputs of a driver monitoring model for the frames of the first video, resized. */
async function watchDriver(
  /** @type {string} */ name,
  /** @type {import('dgx-spark').Segment | undefined} */ segment,
) {
  const video = segment?.files.dcamera ?? segment?.files.qcamera
  if (!video) return
  const model = await openModel(name)
  const start = performance.now()
  let frames = 0
  let face = 0
  for await (const { data, count } of readScaledFrames(video, { width: 320, height: 640 })) {
    for (let i = 0; i < count; i += 4) {
      const size = data.length / count
      const pixels = Float32Array.from(data.subarray(i * size, (i + 1) * size), value => (value - 128) / 128)
      const { driver } = await model.run({ input_img: pixels })
      face += driver?.faceProb ?? 0
      frames++
    }
  }
  const seconds = (performance.now() - start) / 1000
  console.log(
    `driver monitoring: ${(frames / seconds).toFixed(0)} frames/s, mean probability of a face ${(face / frames).toFixed(3)}`,
  )
  model.dispose()
}
