// video.ts: frames of videos, as users see them.
import path from 'node:path'
import { argumentError, expectInteger, expectKnownOptions, expectText } from '../core/checks.js'
import type { VideoBatch } from './video-batch.js'

/** Options of {@link readVideo}. */
export interface VideoOptions {
  /** Frames in a batch. Default: 8. */
  readonly batch?: number
}

/** What damaged videos are told of: the first lines. */
const maxMessages = 20

/** Formats by extension. Left to guess, ffmpeg would take bytes that others made for a list of other files and addresses. */
const formats: Readonly<Record<string, string>> = {
  '.hevc': 'hevc',
  '.h265': 'hevc',
  '.h264': 'h264',
  '.ts': 'mpegts',
  '.mp4': 'mov',
  '.mov': 'mov',
  '.mkv': 'matroska',
}

/**
 * What ffmpeg calls the kind of a video.
 * @throws SparkError ERR_ARGUMENT when its extension is not one of a video
 */
export function videoFormat(file: string): string {
  const format = formats[path.extname(file).toLowerCase()]
  if (format !== undefined) return format
  throw argumentError('file', `a video: ${Object.keys(formats).join(', ')}`, file)
}

/** The frames of a video, in batches; read as they are asked for. */
export class Video implements AsyncIterable<VideoBatch> {
  /** What ffmpeg reported about damage, the first 20 lines. */
  readonly damage: string[] = []
  readonly #file: string
  readonly #batch: number

  /** @internal */
  constructor(file: string, batch: number) {
    this.#file = file
    this.#batch = batch
  }

  /** Decodes the video from its start; breaking the loop ends the decoder. */
  async *[Symbol.asyncIterator](): AsyncGenerator<VideoBatch, void, undefined> {
    const { decodeVideo } = await import('./decode-video.js')
    this.damage.length = 0
    yield* decodeVideo(this.#file, videoFormat(this.#file), this.#batch, text => {
      const lines = text.split('\n').filter(line => line.trim() !== '')
      this.damage.push(...lines.slice(0, Math.max(0, maxMessages - this.damage.length)))
    })
  }
}

/**
 * Opens a video: `fcamera.hevc`, `qcamera.ts` and others (.h264, .h265, .mp4, .mov, .mkv) that the system's ffmpeg decodes. Frames are
 * not scaled, dropped or repeated, and their range of values is kept.
 * @throws SparkError ERR_ARGUMENT. The iterator throws ERR_IO when the file cannot be read, ERR_UNSUPPORTED when there is no ffmpeg,
 * ERR_FORMAT when there is no frame in it
 * @example
 * for await (const { data, count, width, height } of readVideo('qcamera.ts')) console.log(count, width, height, data.length)
 */
export function readVideo(file: string, options: VideoOptions = {}): Video {
  expectText('file', file)
  expectKnownOptions('options', options, ['batch'])
  videoFormat(file)
  const { batch = 8 } = options
  expectInteger('options.batch', batch, 1, 1024)
  return new Video(file, batch)
}
