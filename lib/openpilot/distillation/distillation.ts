// distillation.ts: prepares what a student learns from a teacher.
import {
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectSignal,
  expectText,
} from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Segment } from '../../data/route/routes.js'
import type { Graph } from '../../graph/graph.js'
import type { DrivingModel } from '../driving-model.js'
import type { DistillationData } from './data.js'
import type { DistillationModels, DistillationOptions, DrivingLossOptions } from './options.js'

/**
 * Shows the frames of drives to a teacher and keeps what it says: the data set of a `Trainer` whose loss is `drivingLoss`. Frames are
 * shown in batches where models do not wait for themselves. What is kept depends on the content of models, logs and videos.
 * @throws SparkError ERR_ARGUMENT; ERR_FORMAT for segments without video; ERR_UNSUPPORTED for models that keep their states, and
 * without ffmpeg; ERR_BUSY when another process fills the same cache; ERR_IO, such as for a full disk
 * @example
 * const [route] = await findRoutes('2023-07-27--13-01-19')
 * const data = await prepareDistillation(route.segments, { student, vision }, { cache: 'teacher' })
 * const [training, validation] = data.split(0.1)
 */
export async function prepareDistillation(
  segments: readonly Segment[],
  models: DistillationModels,
  options: DistillationOptions = {},
): Promise<DistillationData> {
  expectKnownOptions('models', models, ['student', 'vision', 'teacher', 'teacherVision'])
  expectKnownOptions('options', options, [
    'cache',
    'every',
    'video',
    'batch',
    'backend',
    'signal',
    'onProgress',
  ])
  const { cache, every, video, batch, signal } = options
  if (cache !== undefined) expectText('options.cache', cache)
  if (every !== undefined) expectInteger('options.every', every, 1, 1000)
  if (video !== undefined) expectOneOf('options.video', video, ['fcamera', 'qcamera'])
  if (batch !== undefined) expectInteger('options.batch', batch, 1, 256)
  expectSignal('options.signal', signal)
  if (segments.length === 0) throw new SparkError('ERR_ARGUMENT', 'segments must have one, got []')
  const { prepare } = await import('./prepare.js')
  return prepare(segments, models, options)
}

/**
 * The loss of a driving model against its teacher: a graph for the option `loss` of `Trainer`. Parts and weights are those of
 * path distillation (plan, probabilities, lane lines, road edges) with feature distillation; hypotheses are compared with those of
 * the same index, weighted by the teacher's probabilities. The plan is summed over times and columns, everything else averaged.
 *
 * With δ = |μ − μ'|, scales b and b' of student and teacher, a distribution costs log(b / b') + (δ + b' exp(−δ / b')) / b − 1.
 * @param student - the model that is trained
 * @returns a graph that reads the raw outputs of the model and of the teacher, `target` f32 [n, width], and gives one number
 * @throws SparkError ERR_ARGUMENT, ERR_UNSUPPORTED for slices among which nothing can be compared
 */
export async function drivingLoss(student: DrivingModel, options: DrivingLossOptions = {}): Promise<Graph> {
  const { lossOf } = await import('./loss.js')
  return lossOf(student, options)
}
