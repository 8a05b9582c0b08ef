// trial.ts: a few rows of frames that are generated, to measure what a preparation will take.
import { randomGenerator } from '../../core/random.js'
import { ArrayDataset, type Dataset } from '../../training/dataset.js'
import { modelFrameSize } from '../cameras.js'
import type { ModelFrameBatch } from '../model-frame-batch.js'
import type { DistillationModels } from './options.js'
import { DrivingSequence, widthOf } from './sequence.js'

/** What a trial found. */
export interface Trial {
  /** Rows of the frames. */
  readonly data: Dataset
  /** Frames a second of vision and teacher. */
  readonly framesPerSecond: number
  /** Bytes of a row. */
  readonly rowBytes: number
}

/** Shows generated frames to the models. The first frames are not timed: they compile. @throws SparkError as `prepareDistillation` */
export async function tryFrames(models: DistillationModels, count: number): Promise<Trial> {
  const { student, vision, teacher = student, teacherVision = vision } = models
  const ours = new DrivingSequence({ model: student, vision }, false)
  const isOne = teacher === student && teacherVision === vision
  const theirs = isOne ? ours : new DrivingSequence({ model: teacher, vision: teacherVision }, false)
  const show = async (frames: ModelFrameBatch) => {
    const rows = await ours.next(frames, isOne)
    const { outputs } = isOne ? rows : await theirs.next(frames, true)
    return { inputs: rows.inputs, outputs: outputs! }
  }
  await show(generated(4))
  const frames = generated(count)
  const begin = performance.now()
  const { inputs, outputs } = await show(frames)
  const seconds = (performance.now() - begin) / 1000
  const target = new Float32Array(count * widthOf(student))
  target.set(outputs.subarray(0, target.length))
  const fields = ours.fields.map(
    ({ name, shape }) => [name, { shape: [count, ...shape], data: inputs[name]! }] as const,
  )
  const data = new ArrayDataset({
    ...Object.fromEntries(fields),
    target: { shape: [count, widthOf(student)], data: target },
  })
  const bytes = fields.reduce((sum, [, { data }]) => sum + data.byteLength, target.byteLength)
  return { data, framesPerSecond: count / seconds, rowBytes: bytes / count }
}

/** Frames of noise. */
function generated(count: number): ModelFrameBatch {
  const random = randomGenerator(1)
  const { width, height } = modelFrameSize
  const image = (): Uint8Array<ArrayBuffer> =>
    Uint8Array.from({ length: (count * width * height * 6) / 4 }, () => 256 * random())
  const order = Uint32Array.from({ length: count }, (_, i) => i)
  const times = Float64Array.from(order, i => i / 20)
  return {
    count,
    indices: order,
    frameIds: order,
    times,
    img: image(),
    bigImg: image(),
    desires: new Uint8Array(count),
  }
}
