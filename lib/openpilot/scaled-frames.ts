// scaled-frames.ts: whole frames of a video in another size, packed.
import { argumentError, expectInteger, expectKnownOptions, expectOneOf } from '../core/checks.js'
import { type BackendName, backendNames } from '../core/config.js'
import { readVideo } from '../data/video.js'

/** Options of {@link readScaledFrames}. */
export interface ScaledFrameOptions {
  /** Columns before packing, even. */
  readonly width: number
  /** Rows before packing, even. */
  readonly height: number
  /** Frames in a batch. Default: 8. */
  readonly batch?: number
  /** Engine of the projection. Default: what DGX_SPARK_BACKEND says, or the best one. */
  readonly backend?: BackendName
}

/** Frames that follow each other. */
export interface ScaledFrameBatch {
  /** Index of the first frame in the video. */
  readonly first: number
  /** How many. */
  readonly count: number
  /** Y at even and odd rows and columns, U, V: [count, 6, height / 2, width / 2]. */
  readonly data: Uint8Array<ArrayBuffer>
}

/**
 * The frames of a video in another size, as driver monitoring models before 2023 read them (320 x 640): the nearest pixels, packed in
 * six channels. These models take (value − 128) / 128.
 * @throws SparkError ERR_ARGUMENT. The iterator throws as that of `readVideo`
 * @example
 * for await (const { data, count } of readScaledFrames('dcamera.hevc', { width: 320, height: 640 })) console.log(count, data.length)
 */
export function readScaledFrames(file: string, options: ScaledFrameOptions): AsyncIterable<ScaledFrameBatch> {
  expectKnownOptions('options', options, ['width', 'height', 'batch', 'backend'])
  const { width, height, batch, backend } = options
  for (const [name, size] of Object.entries({ width, height })) {
    expectInteger(`options.${name}`, size, 2, 1 << 14)
    if (size % 2 !== 0) throw argumentError(`options.${name}`, 'an even number', size)
  }
  if (backend !== undefined) expectOneOf('options.backend', backend, backendNames)
  const video = readVideo(file, batch === undefined ? {} : { batch })
  return {
    async *[Symbol.asyncIterator]() {
      const [{ openKernels }, { packFrames }, { scaleMatrix }] = await Promise.all([
        import('../kernels/open.js'),
        import('./packed-frames.js'),
        import('./cameras.js'),
      ])
      const kernels = await openKernels(backend ? { backend } : {})
      for await (const frames of video) {
        const matrix = scaleMatrix(frames, { width, height })
        const matrices = Array.from({ length: frames.count }, () => matrix)
        const data = await packFrames(kernels, frames, matrices, { width, height })
        yield { first: frames.first, count: frames.count, data }
      }
    },
  }
}
