// y4m.ts: reads YUV4MPEG2, the format in which ffmpeg gives frames to pipes: a line with the size, and before each frame a line.
import { SparkError } from '../core/errors.js'
import type { FrameSize } from './video-batch.js'

/** Frames in memory of their own. */
interface Frames {
  readonly data: Uint8Array<ArrayBuffer>
  readonly count: number
}

const maxLine = 1024
/** Beyond any camera: a larger size is a mistake. */
const maxSide = 1 << 14
const newline = 10

/**
 * The header of a stream.
 * @returns its size in bytes and that of frames; null while it is incomplete
 * @throws SparkError ERR_FORMAT
 */
export function parseY4mHeader(bytes: Uint8Array, name: string): { size: FrameSize; bytes: number } | null {
  const end = bytes.indexOf(newline)
  if (end < 0 && bytes.length <= maxLine) return null
  const line = Buffer.from(bytes.subarray(0, Math.max(end, 0))).toString('latin1')
  const width = Number(/ W(\d+)/.exec(line)?.[1])
  const height = Number(/ H(\d+)/.exec(line)?.[1])
  const isPlanar =
    /^YUV4MPEG2 /.test(line) && (!/ C/.test(line) || / C420(jpeg|paldv|mpeg2)?( |$)/.test(line))
  if (!isPlanar || !(width > 0 && height > 0 && width <= maxSide && height <= maxSide))
    throw new SparkError('ERR_FORMAT', `${name}: frames of an unknown form: ${line.slice(0, 100)}`)
  const chroma = Math.ceil(height / 2) * Math.ceil(width / 2)
  return { size: { height, width, frameBytes: height * width + 2 * chroma }, bytes: end + 1 }
}

/** Collects the frames behind the header. */
export class Y4mFrames {
  readonly size: FrameSize
  readonly #name: string
  readonly #batch: number
  #data: Uint8Array<ArrayBuffer>
  /** What is there of the line before the next frame. */
  #line = ''
  #isInFrame = false
  /** Bytes of frames that are there. */
  #used = 0

  constructor(size: FrameSize, batch: number, name: string) {
    this.size = size
    this.#batch = batch
    this.#name = name
    this.#data = new Uint8Array(batch * size.frameBytes)
  }

  /** Takes bytes. @returns the batches that are full */
  take(bytes: Uint8Array): Frames[] {
    const { frameBytes } = this.size
    const full: Frames[] = []
    for (let at = 0; at < bytes.length; ) {
      if (!this.#isInFrame) {
        at = this.#readLine(bytes, at)
        continue
      }
      const left = frameBytes - (this.#used % frameBytes)
      const piece = bytes.subarray(at, at + left)
      this.#data.set(piece, this.#used)
      this.#used += piece.length
      at += piece.length
      if (piece.length < left) continue
      this.#isInFrame = false
      if (this.#used === this.#data.length) full.push(this.#next())
    }
    return full
  }

  /** The whole frames that are left, at the end of the stream. */
  flush(): Frames | undefined {
    const count = Math.floor(this.#used / this.size.frameBytes)
    if (count === 0) return undefined
    return { data: this.#data.slice(0, count * this.size.frameBytes), count }
  }

  #readLine(bytes: Uint8Array, start: number): number {
    const end = bytes.indexOf(newline, start)
    const isWhole = end >= 0
    this.#line += Buffer.from(bytes.subarray(start, isWhole ? end : bytes.length)).toString('latin1')
    if (this.#line.length > maxLine || (isWhole && !this.#line.startsWith('FRAME')))
      throw new SparkError('ERR_FORMAT', `${this.#name}: its decoder's output is out of step`)
    if (!isWhole) return bytes.length
    this.#line = ''
    this.#isInFrame = true
    return end + 1
  }

  #next(): Frames {
    const frames = { data: this.#data, count: this.#batch }
    this.#data = new Uint8Array(this.#data.length)
    this.#used = 0
    return frames
  }
}
