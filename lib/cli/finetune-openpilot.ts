// finetune-openpilot.ts: `dgx-spark finetune --preset openpilot`: drives as training data, and the outputs of a teacher.
import path from 'node:path'
import { readLog } from '../data/route/log.js'
import { formatRouteName, parseRouteName } from '../data/route/names.js'
import { findRoutes, logOf, type Segment } from '../data/route/routes.js'
import { expectVideo } from '../data/route/videos.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import type { Graph } from '../graph/graph.js'
import type { LoadOptions } from '../model/model-options.js'
import type { DistillationData } from '../openpilot/distillation/data.js'
import { drivingLoss, prepareDistillation } from '../openpilot/distillation/distillation.js'
import { openForFrames } from '../openpilot/distillation/open-batched.js'
import type { DistillationModels, DistillationStages } from '../openpilot/distillation/options.js'
import { type Trial, tryFrames } from '../openpilot/distillation/trial.js'
import type { TrainingEvent } from '../training/options.js'
import { UsageError } from './command.js'
import type { FinetuneData } from './finetune-data.js'
import type { FinetuneOptions } from './finetune-options.js'
import { formatBytes, print, printError, printPairs } from './output.js'
import { segmentProgress } from './progress.js'

/** A step and how long it took. */
export interface TimedEvent extends TrainingEvent {
  readonly seconds: number
}

/** What a preset gives a training. */
export interface Preset {
  readonly data: FinetuneData
  readonly loss: Graph
  /** Writes what the preset knows into the adapter. */
  record(adapter: TrainableAdapter): void
  /** Prints what the whole training will take. */
  estimate(steps: readonly TimedEvent[]): void
  close(): Promise<void>
}

/** Frames of a segment: those of a minute. */
const framesPerSegment = 1200
/** Share of the frames that is held back where nothing is said. */
const defaultShare = 0.1

/** Opens models and data; the teacher is run on all frames that the cache lacks. */
export async function openpilotPreset(options: FinetuneOptions, signal: AbortSignal): Promise<Preset> {
  expectPresetOptions(options)
  const models = await openModels(options)
  try {
    return await (options.dryRun ? tryPreset(models, options) : runPreset(models, options, signal))
  } catch (error) {
    dispose(models)
    throw error
  }
}

function expectPresetOptions({ data, dryRun, loss, metrics, validation }: FinetuneOptions): void {
  if (data === undefined && !dryRun)
    throw new UsageError('--preset openpilot needs --data: a folder of drives, or a .txt file with paths')
  if (loss !== 'cross-entropy')
    throw new UsageError(`--preset openpilot has a loss of its own, so --loss ${loss} means nothing`)
  if (metrics !== undefined) throw new UsageError('--preset openpilot has no --metrics but its loss')
  const share = Number(validation ?? defaultShare)
  if (!(share > 0 && share < 1))
    throw new UsageError(`--validation ${validation}: --preset openpilot takes a share between 0 and 1`)
}

async function openModels(options: FinetuneOptions): Promise<DistillationModels> {
  const { model, vision, teacher, teacherVision, backend } = options
  const own: LoadOptions = { ...(backend && { backend }), precision: 'fp32' }
  const taught: LoadOptions = {
    ...own,
    ...(options.teacherBackend && { backend: options.teacherBackend }),
    ...(options.teacherProvider && { provider: options.teacherProvider }),
    ...(options.teacherPrecision && { precision: options.teacherPrecision }),
  }
  const hasOwnEngine = options.teacherBackend ?? options.teacherProvider ?? options.teacherPrecision
  if (teacher === undefined && hasOwnEngine === undefined)
    printError('without --teacher the model learns from itself: the loss begins at 0')
  const student = await openForFrames(model, own)
  const eyes = vision === undefined ? undefined : await openForFrames(vision, own)
  const other = teacher !== undefined || hasOwnEngine !== undefined
  const theirEyes = teacherVision ?? (hasOwnEngine === undefined ? undefined : vision)
  return {
    student,
    ...(eyes && { vision: eyes }),
    ...(other && { teacher: await openForFrames(teacher ?? model, taught) }),
    ...(theirEyes !== undefined && { teacherVision: await openForFrames(theirEyes, taught) }),
  }
}

function dispose({ student, vision, teacher, teacherVision }: DistillationModels): void {
  for (const model of new Set([student, vision, teacher, teacherVision])) model?.dispose()
}

async function runPreset(
  models: DistillationModels,
  options: FinetuneOptions,
  signal: AbortSignal,
): Promise<Preset> {
  const { output, every, validation = defaultShare, cache = path.join(output, 'teacher') } = options
  const segments = await segmentsOf(options.data!)
  const loss = await drivingLoss(models.student)
  const notes = await notesOf(segments, options)
  const begin = performance.now()
  const data = await prepareDistillation(segments, models, {
    cache,
    every,
    signal,
    onProgress: segmentProgress('teacher'),
    ...(options.backend && { backend: options.backend }),
  })
  printStages(data, (performance.now() - begin) / 1000)
  const [training, held] = data.split(Number(validation))
  print(`${training.size} frames to train on, ${held.size} to validate with`)
  return {
    data: { training, validation: held },
    loss,
    record: adapter => recordNotes(adapter, notes),
    estimate: () => {},
    async close() {
      await data.close()
      dispose(models)
    },
  }
}

/** Two steps on frames that are generated, and what they say of the whole. */
async function tryPreset(models: DistillationModels, options: FinetuneOptions): Promise<Preset> {
  const segments = options.data === undefined ? [] : await segmentsOf(options.data)
  const trial = await tryFrames(models, 2 * options.batchSize)
  return {
    data: { training: trial.data },
    loss: await drivingLoss(models.student),
    record: () => {},
    estimate: steps => printEstimate(trial, Math.max(1, segments.length), steps, options),
    async close() {
      dispose(models)
    },
  }
}

async function segmentsOf(source: string): Promise<Segment[]> {
  const routes = await findRoutes(source)
  for (const route of routes) expectVideo(route)
  const segments = routes.flatMap(({ segments }) => segments)
  print(`${counted(segments.length, 'segment')} of ${counted(routes.length, 'drive')}`)
  return segments
}

/** What the adapter says of the drives. */
async function notesOf(
  segments: readonly Segment[],
  options: FinetuneOptions,
): Promise<Record<string, unknown>> {
  const routes = new Set(
    segments.map(({ name }) => {
      const route = parseRouteName(name)
      return route ? formatRouteName({ ...route, segment: null }) : name
    }),
  )
  const { condition, every, vision, teacher = options.model } = options
  return {
    car: options.car ?? (await carOf(segments)),
    ...(condition !== undefined && { condition }),
    routes: [...routes],
    segments: segments.length,
    every,
    teacher: path.basename(teacher),
    ...(vision !== undefined && { vision: path.basename(vision) }),
  }
}

/** What the logs call the car; null where they do not say it. */
async function carOf(segments: readonly Segment[]): Promise<string | null> {
  for (const segment of segments) {
    for await (const { value } of readLog(logOf(segment), { which: ['carParams'] }))
      if (value && value.carFingerprint !== '') return value.carFingerprint
  }
  return null
}

function recordNotes(adapter: TrainableAdapter, notes: Readonly<Record<string, unknown>>): void {
  const { training = {} } = adapter as { training?: Readonly<Record<string, unknown>> }
  adapter.record?.({ ...training, ...notes })
}

const stageNames: Readonly<Record<keyof DistillationStages, string>> = {
  log: 'log',
  decode: 'waiting for frames',
  warp: 'pack and warp',
  models: 'vision and teacher',
  write: 'write',
}

/** Frames a second of each stage; those of a cache that was full took no time. */
function printStages({ size, stages, frames }: DistillationData, seconds: number): void {
  const rate = (time: number): string => `${(frames / time).toFixed(0)} frames/s, ${time.toFixed(1)} s`
  printPairs([
    ['frames', frames === 0 ? `${size}, all of them kept from before` : `${size} in ${seconds.toFixed(1)} s`],
    ...Object.entries(stageNames).flatMap(([stage, name]): [string, string][] => {
      const time = stages[stage as keyof DistillationStages]
      return frames > 0 && time > 0 ? [[name, rate(time)]] : []
    }),
  ])
}

function printEstimate(
  { framesPerSecond, rowBytes }: Trial,
  segments: number,
  steps: readonly TimedEvent[],
  { every, epochs, batchSize, data, output, validation = String(defaultShare) }: FinetuneOptions,
): void {
  const frames = segments * framesPerSegment
  const rows = Math.ceil(frames / every)
  const count = epochs * Math.ceil((rows * (1 - Number(validation))) / batchSize)
  const step = steps.at(-1)!
  const teacher = frames / framesPerSecond
  const training = count * step.seconds
  printPairs([
    [
      'estimate for',
      data === undefined ? `${segments} minute, without --data` : `${counted(segments, 'minute')} of ${data}`,
    ],
    [
      'teacher',
      `${frames} frames, ${formatDuration(teacher)} at ${framesPerSecond.toFixed(1)} frames/s, without decoding`,
    ],
    ['training', `${count} steps, ${formatDuration(training)} at ${step.seconds.toPrecision(3)} s each`],
    ['memory', formatBytes(step.memory.process)],
    ['disk', `${formatBytes(rows * rowBytes)} in ${path.join(output, 'teacher')}`],
  ])
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

const formatDuration = (seconds: number): string =>
  seconds < 120 ? `${seconds.toFixed(0)} s` : `${(seconds / 60).toFixed(0)} min`
