// frame-source.ts: reads the videos of a segment along its log.
import { logOf, type Segment } from '../data/route/routes.js'
import { videoOf } from '../data/route/videos.js'
import { readVideo } from '../data/video.js'
import type { Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { modelFrameSize, warpMatrix } from './cameras.js'
import type {
  FrameReading,
  ModelFrameBatch,
  ModelFrameOptions,
  ModelFrameStages,
} from './model-frame-batch.js'
import { FrameCursor, type Frames, packFrames } from './packed-frames.js'
import { type FrameTimes, framesOf, readTimeline, type Timeline } from './timeline.js'

/** What the log of a segment says. */
export const timelineOf = (segment: Segment): Promise<Timeline> => readTimeline(logOf(segment))

/** The frames of a segment; `reader` is told how long the stages take and what is missing. */
export async function* readFrames(
  segment: Segment,
  { from = 0, to = Number.POSITIVE_INFINITY, batch = 16, backend, video }: ModelFrameOptions,
  reader: FrameReading,
): AsyncGenerator<ModelFrameBatch, void, undefined> {
  const { stages } = reader
  const timeline = await timed(stages, 'log', () => reader.timeline())
  const source = sourceOf(segment, timeline, video)
  const kernels = await openKernels(backend ? { backend } : {})
  const chosen = rangeOf(source.times, from, to)
  try {
    let next = source.read(chosen(0, batch))
    next.catch(() => {})
    for (let first = 0; ; first += batch) {
      const { times, frames, wide } = await timed(stages, 'decode', () => next)
      reader.missing += times.indices.length - (frames?.count ?? 0)
      if (!frames) return
      // The decoder goes on while these are projected.
      next = source.read(chosen(first + batch, batch))
      next.catch(() => {})
      yield await timed(stages, 'warp', () => source.project(kernels, cut(times, frames.count), frames, wide))
    }
  } finally {
    await source.close()
  }
}

function sourceOf(segment: Segment, timeline: Timeline, wanted: 'fcamera' | 'qcamera' | undefined): Source {
  const { files } = segment
  const video = wanted ?? (files.fcamera ? 'fcamera' : 'qcamera')
  const isWide = video === 'fcamera' && files.ecamera !== undefined && timeline.videos.ecamera !== undefined
  return new Source(segment, timeline, video, isWide)
}

interface Taken {
  readonly times: FrameTimes
  readonly frames: Frames | undefined
  readonly wide: Frames | undefined
}

/** The videos of a segment. */
class Source {
  readonly times: FrameTimes
  readonly #timeline: Timeline
  readonly #narrow: FrameCursor
  readonly #wide: FrameCursor | undefined
  #calibration: Float32Array | undefined
  readonly #matrices = new Map<string, number[]>()

  constructor(segment: Segment, timeline: Timeline, video: 'fcamera' | 'qcamera', isWide: boolean) {
    this.#timeline = timeline
    this.#narrow = new FrameCursor(readVideo(videoOf(segment, video)))
    this.#wide = isWide ? new FrameCursor(readVideo(videoOf(segment, 'ecamera'))) : undefined
    this.times = framesOf(timeline, video, logOf(segment))
  }

  async read(times: FrameTimes): Promise<Taken> {
    if (times.indices.length === 0) return { times, frames: undefined, wide: undefined }
    const wide = this.#wide?.read(sameTimes(framesOf(this.#timeline, 'ecamera', ''), times.times))
    wide?.catch(() => {})
    const frames = await this.#narrow.read(times.indices)
    const other = await wide
    if (!frames || !other) return { times, frames: wide && !other ? undefined : frames, wide: other }
    const count = Math.min(frames.count, other.count)
    return { times, frames: { ...frames, count }, wide: { ...other, count } }
  }

  async project(
    kernels: Kernels,
    times: FrameTimes,
    frames: Frames,
    wide: Frames | undefined,
  ): Promise<ModelFrameBatch> {
    const { narrow, wide: wideCamera = narrow } = this.#timeline.cameras
    const matricesOf = (view: 'medmodel' | 'sbigmodel', camera: typeof narrow, { height, width }: Frames) =>
      Array.from(times.times, time => this.#matrix(view, camera, { height, width }, time))
    const [big, bigCamera] = wide ? [wide, wideCamera] : [frames, narrow]
    const matrices = matricesOf('medmodel', narrow, frames)
    const bigMatrices = matricesOf('sbigmodel', bigCamera, big)
    const img = await packFrames(kernels, frames, matrices, modelFrameSize)
    const bigImg = await packFrames(kernels, big, bigMatrices, modelFrameSize)
    const desires = Uint8Array.from(times.times, time => this.#timeline.desireAt(time))
    return { count: frames.count, ...times, img, bigImg, desires }
  }

  /** One array for all frames that share it. */
  #matrix(
    view: 'medmodel' | 'sbigmodel',
    camera: Timeline['cameras']['narrow'],
    size: { readonly height: number; readonly width: number },
    time: number,
  ): number[] {
    const calibration = this.#timeline.calibrationAt(time)
    if (calibration !== this.#calibration) {
      this.#calibration = calibration
      this.#matrices.clear()
    }
    const key = `${view} ${camera.focalLength}`
    let matrix = this.#matrices.get(key)
    if (!matrix) {
      matrix = warpMatrix(view, camera, size, calibration)
      this.#matrices.set(key, matrix)
    }
    return matrix
  }

  async close(): Promise<void> {
    await Promise.all([this.#narrow.close(), this.#wide?.close()])
  }
}

/** Frames of the range, `count` of them from the `first` of it on. */
const rangeOf =
  (times: FrameTimes, from: number, to: number) =>
  (first: number, count: number): FrameTimes => {
    const start = times.indices.findIndex(index => index >= from)
    const end = times.indices.findIndex(index => index >= to)
    const last = end < 0 ? times.indices.length : end
    const begin = start < 0 ? last : Math.min(start + first, last)
    return slice(times, begin, Math.min(begin + count, last))
  }

const slice = ({ indices, frameIds, times }: FrameTimes, begin: number, end: number): FrameTimes => ({
  indices: indices.subarray(begin, end),
  frameIds: frameIds.subarray(begin, end),
  times: times.subarray(begin, end),
})

const cut = (times: FrameTimes, count: number): FrameTimes => slice(times, 0, count)

/** Indices of the frames of another camera that were taken at the same times: cameras are synchronized. */
function sameTimes(other: FrameTimes, times: Float64Array): Uint32Array {
  let at = 0
  return Uint32Array.from(times, time => {
    const distance = (i: number) => Math.abs((other.times[i] ?? Number.POSITIVE_INFINITY) - time)
    while (distance(at + 1) <= distance(at)) at++
    return other.indices[at]!
  })
}

async function timed<T>(
  stages: ModelFrameStages,
  stage: keyof ModelFrameStages,
  work: () => Promise<T>,
): Promise<T> {
  const start = performance.now()
  try {
    return await work()
  } finally {
    stages[stage] += (performance.now() - start) / 1000
  }
}
