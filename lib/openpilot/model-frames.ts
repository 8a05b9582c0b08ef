// model-frames.ts: the frames of a segment as driving models read them, aligned with its log.
import { expectInteger, expectKnownOptions, expectOneOf } from '../core/checks.js'
import type { Segment } from '../data/route/routes.js'
import type { ModelFrameBatch, ModelFrameOptions, ModelFrameStages } from './model-frame-batch.js'
import type { Timeline } from './timeline.js'

/** The frames of a segment, in batches; read as they are asked for. */
export class ModelFrames implements AsyncIterable<ModelFrameBatch> {
  /** Seconds that the stages of the last reading took. */
  readonly stages: ModelFrameStages = { log: 0, decode: 0, warp: 0 }
  /** Frames of the log that the video ended before. */
  missing = 0
  readonly #segment: Segment
  readonly #options: ModelFrameOptions
  #timeline: Promise<Timeline> | undefined

  /** @internal */
  constructor(segment: Segment, options: ModelFrameOptions) {
    this.#segment = segment
    this.#options = options
  }

  /** What the log says about the frames. */
  timeline(): Promise<Timeline> {
    this.#timeline ??= import('./frame-source.js').then(source => source.timelineOf(this.#segment))
    return this.#timeline
  }

  /** Reads the frames from the first. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ModelFrameBatch, void, undefined> {
    const { readFrames } = await import('./frame-source.js')
    Object.assign(this.stages, { log: 0, decode: 0, warp: 0 })
    this.missing = 0
    yield* readFrames(this.#segment, this.#options, this)
  }
}

/**
 * Opens the frames of a segment: the video of the road through the calibration of the log, into the frames that driving models read
 * (512 x 256, six channels). Where the segment has no video of the wide camera, the wide frames are of the same video.
 * @throws SparkError ERR_ARGUMENT. The iterator throws ERR_FORMAT when the segment has no video (CAN logs have none) or its log no
 * encode indices, ERR_UNSUPPORTED when there is no ffmpeg, ERR_IO
 * @example
 * const [route] = await findRoutes('2023-07-27--13-01-19')
 * for await (const { count, img } of readModelFrames(route.segments[0])) console.log(count, img.length)
 */
export function readModelFrames(segment: Segment, options: ModelFrameOptions = {}): ModelFrames {
  expectKnownOptions('options', options, ['video', 'from', 'to', 'batch', 'backend'])
  const { video, from, to, batch } = options
  if (video !== undefined) expectOneOf('options.video', video, ['fcamera', 'qcamera'])
  if (from !== undefined) expectInteger('options.from', from, 0, 2 ** 32)
  if (to !== undefined) expectInteger('options.to', to, (from ?? 0) + 1, 2 ** 32)
  if (batch !== undefined) expectInteger('options.batch', batch, 1, 256)
  return new ModelFrames(segment, options)
}
