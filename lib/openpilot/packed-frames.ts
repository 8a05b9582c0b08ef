// packed-frames.ts: frames of a video by their indices, and through a projection into the six channels that models read.
import type { Video } from '../data/video.js'
import type { FrameSize, VideoBatch } from '../data/video-batch.js'
import type { Kernels, PixelPlane } from '../kernels/kernels.js'

/** Frames of one size, behind each other. */
export interface Frames extends FrameSize {
  readonly count: number
  /** [count, frameBytes] */
  readonly data: Uint8Array<ArrayBuffer>
}

/** Takes frames out of a video, forwards. */
export class FrameCursor {
  readonly #batches: AsyncIterator<VideoBatch, void, undefined>
  #batch: VideoBatch | undefined

  constructor(video: Video) {
    this.#batches = video[Symbol.asyncIterator]()
  }

  /**
   * The frames with some indices, ascending and behind those of the call before; those behind the end of the video are missing.
   * @returns undefined when all are
   */
  async read(indices: ArrayLike<number>): Promise<Frames | undefined> {
    let size: FrameSize | undefined
    let data = new Uint8Array(0)
    let count = 0
    for (let i = 0; i < indices.length; i++) {
      const batch = await this.#batchOf(indices[i]!)
      if (!batch) break
      const { height, width, frameBytes } = batch
      if (!size) {
        size = { height, width, frameBytes }
        data = new Uint8Array(indices.length * frameBytes)
      }
      const start = (indices[i]! - batch.first) * frameBytes
      data.set(batch.data.subarray(start, start + frameBytes), count++ * frameBytes)
    }
    return size && { ...size, count, data: data.subarray(0, count * size.frameBytes) }
  }

  /** Ends the decoder. */
  async close(): Promise<void> {
    await this.#batches.return?.()
  }

  async #batchOf(index: number): Promise<VideoBatch | undefined> {
    while (!this.#batch || index >= this.#batch.first + this.#batch.count) {
      const { done, value } = await this.#batches.next()
      if (done) return undefined
      this.#batch = value
    }
    return this.#batch
  }
}

/** The planes of a frame. */
function planesOf({ height, width }: FrameSize): PixelPlane[] {
  const [rows, columns] = [Math.ceil(height / 2), Math.ceil(width / 2)]
  const chroma = { height: rows, width: columns, pitch: columns, step: 1 }
  const offset = height * width
  return [
    { height, width, offset: 0, pitch: width, step: 1 },
    { ...chroma, offset },
    { ...chroma, offset: offset + rows * columns },
  ]
}

/**
 * Samples frames through projections and packs them: four channels of Y at even and odd rows and columns, U, V.
 * @param matrices - one for each frame; {@link WarpFramesArgs.matrix}
 * @param out - size of the frames before they are packed, even
 * @returns [count, 6, out.height / 2, out.width / 2]
 */
export async function packFrames(
  kernels: Kernels,
  frames: Frames,
  matrices: readonly (readonly number[])[],
  out: { readonly height: number; readonly width: number },
): Promise<Uint8Array<ArrayBuffer>> {
  const { frameBytes, data } = frames
  const packedBytes = (out.height * out.width * 6) / 4
  const packed = new Uint8Array(frames.count * packedBytes)
  for (let first = 0; first < frames.count; ) {
    let end = first + 1
    while (end < frames.count && matrices[end] === matrices[first]) end++
    await kernels.runOwned('warpFrames', {
      frames: end - first,
      frameBytes,
      planes: planesOf(frames),
      outHeight: out.height,
      outWidth: out.width,
      matrix: matrices[first]!,
      x: data.subarray(first * frameBytes, end * frameBytes),
      y: packed.subarray(first * packedBytes, end * packedBytes),
    })
    first = end
  }
  return packed
}
