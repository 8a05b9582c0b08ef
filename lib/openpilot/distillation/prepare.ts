// prepare.ts: what a student learns from: the inputs of a model and the outputs of its teacher for the frames of drives, computed
// once and kept.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { logOf, type Segment } from '../../data/route/routes.js'
import { videoOf } from '../../data/route/videos.js'
import { contentHash, digest, fileIdentity } from '../../io/content-hash.js'
import { graphHash } from '../../training/settings.js'
import type { DrivingModel } from '../driving-model.js'
import type { ModelFrameBatch } from '../model-frame-batch.js'
import { readModelFrames } from '../model-frames.js'
import { framesOf } from '../timeline.js'
import { DistillationData } from './data.js'
import type { DistillationModels, DistillationOptions, DistillationStages } from './options.js'
import { type Field, RowCache } from './row-cache.js'
import { DrivingSequence, type SequenceModels, slicesOf, widthOf } from './sequence.js'

/** Changes with what is done to frames before models see them. */
const preprocessing = 1

/** See `prepareDistillation` of distillation.ts. */
export async function prepare(
  segments: readonly Segment[],
  models: DistillationModels,
  options: DistillationOptions,
): Promise<DistillationData> {
  const pairs = pairsOf(models)
  const map = columnsOf(models)
  const hashes = hashesOf(pairs)
  const folder = options.cache ?? (await mkdtemp(path.join(tmpdir(), 'dgx-spark-distillation-')))
  const caches: RowCache[] = []
  const stages = { log: 0, decode: 0, warp: 0, models: 0, write: 0, frames: 0 }
  try {
    for (const segment of segments) {
      const key = await keyOf(segment, hashes, folder, options)
      const target = path.join(folder, `${segment.name.replace(/[^\w.-]/g, '_')}-${digest(key).slice(0, 16)}`)
      const fields = new DrivingSequence(pairs.student, false).fields
      const cache = await RowCache.open(target, [...fields, targetField(models.student)])
      caches.push(cache)
      await fill(cache, segment, pairs, map, { options, stages })
    }
  } catch (error) {
    for (const cache of caches) await cache.close()
    if (options.cache === undefined) await rm(folder, { recursive: true, force: true })
    throw error
  }
  const fields = new DrivingSequence(pairs.student, false).fields
  const temporary = options.cache === undefined ? folder : undefined
  return new DistillationData(caches, [...fields, targetField(models.student)], stages, temporary)
}

/** The student, and its teacher if that is another model. */
interface Pairs {
  readonly student: SequenceModels
  readonly teacher: SequenceModels
}

function pairsOf({ student, vision, teacher = student, teacherVision = vision }: DistillationModels): Pairs {
  return { student: { model: student, vision }, teacher: { model: teacher, vision: teacherVision } }
}

const targetField = (student: DrivingModel): Field => ({
  name: 'target',
  dtype: 'f32',
  shape: [widthOf(student)],
})

/** For each number of the student the index of the teacher's. */
function columnsOf({ student, teacher = student }: DistillationModels): Int32Array {
  const columns = new Int32Array(widthOf(student)).fill(-1)
  const theirs = slicesOf(teacher)
  for (const [name, [start, end]] of slicesOf(student)) {
    const [from = 0, to = 0] = theirs.get(name) ?? []
    if (name === 'pad') continue
    if (to - from !== end - start) {
      const found = theirs.has(name) ? `has ${to - from} numbers of it` : 'has none'
      throw new SparkError(
        'ERR_ARGUMENT',
        `teacher must have the outputs of the student: '${name}' has ${end - start} numbers, the teacher ${found}`,
      )
    }
    for (let i = start; i < end; i++) columns[i] = from + i - start
  }
  return columns
}

const hashesOf = ({ student, teacher }: Pairs): unknown[] =>
  [student.model, student.vision, teacher.model, teacher.vision].map(model => {
    if (!model) return null
    const { backend, precision, graph } = model.model
    return [graphHash(graph), precision, backend.name]
  })

/** What rows depend on. */
async function keyOf(
  segment: Segment,
  models: readonly unknown[],
  folder: string,
  { video, every = 1 }: DistillationOptions,
): Promise<string> {
  const kind = video ?? (segment.files.fcamera ? 'fcamera' : 'qcamera')
  const files = [
    logOf(segment),
    videoOf(segment, kind),
    kind === 'fcamera' ? segment.files.ecamera : undefined,
  ]
  const contents: (string | null)[] = []
  for (const file of files) {
    if (file === undefined) contents.push(null)
    else {
      const identity = (await fileIdentity(file)) ?? `${file} ${Date.now()}`
      contents.push(await contentHash(file, identity, path.join(folder, 'hashes'), new Pacer()))
    }
  }
  return JSON.stringify([preprocessing, kind, every, contents, models])
}

/** How the rows of a segment are made. */
interface Making {
  readonly options: DistillationOptions
  /** Seconds, and frames that were shown. */
  readonly stages: DistillationStages & { frames: number }
}

/** Appends the rows that a cache lacks. */
async function fill(
  cache: RowCache,
  segment: Segment,
  { student, teacher }: Pairs,
  columns: Int32Array,
  { options, stages }: Making,
): Promise<void> {
  const { video, every = 1, batch = 16, backend, signal, onProgress } = options
  const reading = { batch, ...(video && { video }), ...(backend && { backend }) }
  const timeline = await readModelFrames(segment, reading).timeline()
  const kind = video ?? (segment.files.fcamera ? 'fcamera' : 'qcamera')
  const { indices } = framesOf(timeline, kind, logOf(segment))
  const total = Math.ceil(indices.length / every)
  const report = (): void => onProgress?.({ segment: segment.name, rows: cache.rows, of: total })
  report()
  if (cache.rows >= total) return
  const ours = new DrivingSequence(student, timeline.isRightHandDrive)
  const isOne = teacher.model === student.model && teacher.vision === student.vision
  const theirs = isOne ? ours : new DrivingSequence(teacher, timeline.isRightHandDrive)
  // What is remembered of the frames before the first missing row is seen again.
  let ordinal = Math.max(0, cache.rows * every - Math.max(ours.span, theirs.span))
  const frames = readModelFrames(segment, { ...reading, ...(ordinal > 0 && { from: indices[ordinal]! }) })
  for await (const shown of frames) {
    signal?.throwIfAborted()
    const start = performance.now()
    const rows = await ours.next(shown, isOne)
    const { outputs } = isOne ? rows : await theirs.next(shown, true)
    stages.models += (performance.now() - start) / 1000
    await keep(
      cache,
      { ordinal, every, shown },
      { ...rows.inputs, target: pick(outputs!, shown.count, columns) },
      stages,
    )
    ordinal += shown.count
    stages.frames += shown.count
    report()
  }
  for (const stage of ['log', 'decode', 'warp'] as const) stages[stage] += frames.stages[stage]
}

/** Appends the rows of frames that are wanted and not there yet. */
async function keep(
  cache: RowCache,
  { ordinal, every, shown }: { ordinal: number; every: number; shown: ModelFrameBatch },
  rows: Readonly<Record<string, Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>>,
  stages: DistillationStages,
): Promise<void> {
  const start = performance.now()
  const wanted = Array.from({ length: shown.count }, (_, i) => i).filter(
    i => (ordinal + i) % every === 0 && (ordinal + i) / every >= cache.rows,
  )
  if (wanted.length === 0) return
  const chosen = Object.entries(rows).map(([name, values]) => {
    const size = values.length / shown.count
    const part = values.slice(0, wanted.length * size)
    for (const [to, from] of wanted.entries())
      part.set(values.subarray(from * size, (from + 1) * size), to * size)
    return [name, part] as const
  })
  await cache.append(wanted.length, Object.fromEntries(chosen))
  stages.write += (performance.now() - start) / 1000
}

/** The teacher's numbers in the order of the student. */
function pick(outputs: Float32Array, count: number, columns: Int32Array): Float32Array<ArrayBuffer> {
  const width = outputs.length / count
  const target = new Float32Array(count * columns.length)
  for (let row = 0; row < count; row++) {
    for (const [i, column] of columns.entries())
      if (column >= 0) target[row * columns.length + i] = outputs[row * width + column]!
  }
  return target
}
