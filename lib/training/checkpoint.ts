// checkpoint.ts: training checkpoints: parameters, optimizer state, schedule and position in the data, in one safetensors
// file. A resumed training continues bit for bit.
import { readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import { ioError, makeFolder } from '../io/atomic-write.js'
import { readSafetensors, writeSafetensors } from '../io/safetensors.js'
import type { LossScale } from './loss-scaler.js'
import type { ScheduleState } from './schedules.js'
import type { Settings } from './settings.js'
import type { State } from './step.js'
import type { Validation, ValidationState } from './validation.js'

/** The position of a training. */
export interface Progress {
  /** Completed steps. */
  readonly step: number
  /** Completed epochs. */
  readonly epoch: number
  /** Batches read in the current epoch. */
  readonly batch: number
  /** Sum of the losses of the current epoch, each times its number of samples. */
  readonly lossSum: number
  /** Samples read in the current epoch. */
  readonly samples: number
}

/** The contents of a checkpoint. */
export interface Checkpoint {
  readonly progress: Progress
  readonly schedule: ScheduleState
  /** State of the loss scaler; absent without fp16 and in files of older versions. */
  readonly lossScale?: LossScale
  /** Parameters and the optimizer's state. */
  readonly state: State
  /** The sha256 of each adapted frozen weight by module name; empty if unknown. */
  readonly base: ReadonlyMap<string, string>
  /** Settings that a resumed training must have; the seed with `epoch` and `batch` is the state of the random numbers. */
  readonly settings: Settings
  /** Absent in trainings without validation. */
  readonly validation?: ValidationState
}

const version = '1'
const baseKey = 'dgx_spark.base.'
const settingKey = 'dgx_spark.setting.'
const namePattern = /^step-(\d+)\.safetensors$/
/** Temporary files of a killed process, see {@link temporaryName}. */
const abandonedPattern = /^\.(step-\d+|best)\.safetensors\.[0-9a-f]+\.tmp$/
/** What names of the parameters of the best validation start with. */
const bestKey = 'dgx_spark.best/'

/** Path of the checkpoint after a step. */
export const checkpointFile = (folder: string, step: number): string =>
  path.join(folder, `step-${String(step).padStart(8, '0')}.safetensors`)

/** Path of the checkpoint of the best validation, which is never removed. */
export const bestCheckpointFile = (folder: string): string => path.join(folder, 'best.safetensors')

/** The step of a checkpoint, by its path. */
export const stepOf = (file: string): number => Number(namePattern.exec(path.basename(file))?.[1])

/**
 * Writes a checkpoint atomically, then removes all but the newest `keep` checkpoints of the folder and the temporary files of
 * killed processes. The caller must hold the lock of the folder.
 * @returns the path of the checkpoint
 * @throws SparkError ERR_IO
 */
export async function saveCheckpoint(folder: string, checkpoint: Checkpoint, keep: number): Promise<string> {
  const file = checkpointFile(folder, checkpoint.progress.step)
  await writeCheckpoint(file, checkpoint)
  const older = (await listCheckpoints(folder)).filter(other => other !== file)
  const abandoned = (await readdir(folder)).filter(name => abandonedPattern.test(name))
  const superfluous = [
    ...older.slice(0, Math.max(0, older.length - (keep - 1))),
    ...abandoned.map(name => path.join(folder, name)),
  ]
  for (const other of superfluous) await rm(other, { force: true })
  return file
}

/**
 * Writes a checkpoint atomically. The caller must hold the lock of the folder.
 * @throws SparkError ERR_IO
 */
export async function writeCheckpoint(file: string, checkpoint: Checkpoint): Promise<void> {
  const { progress, schedule, state, lossScale, base, settings, validation } = checkpoint
  const best = [...(validation?.best ?? [])].map(([name, data]) => [bestKey + name, data] as const)
  const tensors = [...state, ...best].map(([name, data]) => {
    return [name, { dtype: 'F32', shape: [data.length], data }] as const
  })
  const metadata = {
    'dgx_spark.checkpoint': version,
    'dgx_spark.progress': JSON.stringify(progress),
    'dgx_spark.schedule': JSON.stringify(encodeNumbers(schedule)),
    ...withPrefix(baseKey, base),
    ...withPrefix(settingKey, Object.entries(settings)),
    ...(lossScale && { 'dgx_spark.loss_scale': JSON.stringify(lossScale) }),
    ...(validation && { 'dgx_spark.validation': encodeHistory(validation.history) }),
  }
  await makeFolder(path.dirname(file))
  await writeSafetensors(file, tensors, { metadata })
}

/**
 * Paths of the checkpoints of a folder, oldest first; empty if the folder does not exist.
 * @throws SparkError ERR_IO
 */
export async function listCheckpoints(folder: string): Promise<string[]> {
  try {
    const names = (await readdir(folder)).filter(name => namePattern.test(name))
    return names.sort((a, b) => stepOf(a) - stepOf(b)).map(name => path.join(folder, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw ioError('read', folder, error)
  }
}

/**
 * Reads a checkpoint.
 * @throws SparkError ERR_IO, ERR_FORMAT for a file that is not a checkpoint
 */
export async function readCheckpoint(file: string): Promise<Checkpoint> {
  const { tensors, metadata } = await readSafetensors(file)
  if (metadata.get('dgx_spark.checkpoint') !== version) {
    throw new SparkError('ERR_FORMAT', `${file} is not a training checkpoint of this version of dgx-spark`)
  }
  const [state, best] = [new Map<string, Float32Array>(), new Map<string, Float32Array>()]
  for (const [name, { dtype, data }] of tensors) {
    if (dtype !== 'F32') throw new SparkError('ERR_FORMAT', `${file}: '${name}' is ${dtype}, expected F32`)
    if (name.startsWith(bestKey)) best.set(name.slice(bestKey.length), data as Float32Array)
    else state.set(name, data as Float32Array)
  }
  const progress = parseNumbers(file, metadata.get('dgx_spark.progress'))
  for (const field of ['step', 'epoch', 'batch', 'samples'] as const) {
    if (!Number.isSafeInteger(progress[field])) {
      throw new SparkError(
        'ERR_FORMAT',
        `${file}: progress.${field} is ${progress[field]}, expected an integer`,
      )
    }
  }
  const schedule = parseNumbers(file, metadata.get('dgx_spark.schedule'))
  const scale = metadata.get('dgx_spark.loss_scale')
  const history = metadata.get('dgx_spark.validation')
  return {
    progress: progress as unknown as Progress,
    schedule,
    state,
    base: new Map(withoutPrefix(baseKey, metadata)),
    settings: Object.fromEntries(withoutPrefix(settingKey, metadata)),
    ...(scale !== undefined && { lossScale: lossScaleOf(file, parseNumbers(file, scale)) }),
    ...(history !== undefined && {
      validation: { history: parseHistory(file, history), best: best.size > 0 ? best : undefined },
    }),
  }
}

const withPrefix = (prefix: string, entries: Iterable<readonly [string, string]>): Record<string, string> =>
  Object.fromEntries(Array.from(entries, ([name, value]) => [prefix + name, value]))

const withoutPrefix = (prefix: string, entries: Iterable<readonly [string, string]>): [string, string][] =>
  [...entries]
    .filter(([name]) => name.startsWith(prefix))
    .map(([name, value]) => [name.slice(prefix.length), value])

function lossScaleOf(file: string, { scale, good, skipped }: Record<string, number>): LossScale {
  const fits = Number.isSafeInteger(good) && Number.isSafeInteger(skipped) && scale! > 0
  if (fits) return { scale: scale!, good: good!, skipped: skipped! }
  throw new SparkError('ERR_FORMAT', `${file}: invalid loss scale: ${scale}, ${good}, ${skipped}`)
}

/** Values that are not finite become strings, because JSON has none. */
const encodeHistory = (history: readonly Validation[]): string =>
  JSON.stringify(history, (_, part) =>
    typeof part === 'number' && !Number.isFinite(part) ? String(part) : part,
  )

function parseHistory(file: string, text: string): Validation[] {
  try {
    return (JSON.parse(text) as Validation[]).map(entry => {
      const metrics = Object.entries(entry.metrics).map(([name, value]) => [name, Number(value)])
      return { ...entry, loss: Number(entry.loss), metrics: Object.fromEntries(metrics) }
    })
  } catch (error) {
    throw new SparkError('ERR_FORMAT', `${file}: invalid validation history`, { cause: error })
  }
}

/** Infinities become strings, because JSON has none. */
function encodeNumbers(numbers: ScheduleState): Record<string, number | string> {
  return Object.fromEntries(
    Object.entries(numbers).map(([name, value]) => [name, Number.isFinite(value) ? value : String(value)]),
  )
}

function parseNumbers(file: string, text = ''): Record<string, number> {
  try {
    const entries = Object.entries(JSON.parse(text) as Record<string, number | string>)
    return Object.fromEntries(entries.map(([name, value]) => [name, Number(value)]))
  } catch (error) {
    throw new SparkError('ERR_FORMAT', `${file}: invalid checkpoint metadata`, { cause: error })
  }
}
