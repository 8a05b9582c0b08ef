// still-frames.ts: every so many frames of a video, as small JPEGs, made by the system's ffmpeg.
import { SparkError } from '../core/errors.js'
import { openFile } from '../io/read-file.js'
import { startDecoder } from './decode-video.js'
import { videoFormat } from './video.js'

/** Which frames of a video, and their size. */
export interface StillFrameOptions {
  /** Frames from one to the next. */
  readonly step: number
  /** Index of the first, less than step. */
  readonly first: number
  /** How many at most. */
  readonly limit: number
  /** Pixels; the height follows. */
  readonly width: number
}

/** A frame of a video. */
export interface StillFrame {
  /** Its index in the video. */
  readonly index: number
  readonly jpeg: Uint8Array
}

/** Bytes of a JPEG; small ones have some ten thousand. */
const maxBytes = 1 << 24

/**
 * Decodes a video and compresses some of its frames.
 * @throws SparkError ERR_ARGUMENT for a file that is no video, ERR_IO when it cannot be read, ERR_UNSUPPORTED when there is no ffmpeg,
 * ERR_FORMAT when there is no frame in it
 */
export async function* readStillFrames(
  file: string,
  { step, first, limit, width }: StillFrameOptions,
): AsyncGenerator<StillFrame, void, undefined> {
  const format = videoFormat(file)
  await (await openFile(file)).close()
  const filters = `select=not(mod(n-${first}\\,${step})),scale=${width}:-2,format=yuvj420p`
  const jpeg = ['-c:v', 'mjpeg', '-q:v', '5', '-bitexact', '-f', 'image2pipe', '-']
  const decoder = await startDecoder(file, format, ['-vf', filters, '-frames:v', String(limit), ...jpeg])
  let said = ''
  decoder.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (said.length < 1000) said += text
  })
  const ended = new Promise<void>(resolve => decoder.once('close', () => resolve()))
  let count = 0
  try {
    for await (const image of jpegs(decoder.stdout, file))
      yield { index: first + step * count++, jpeg: image }
    await ended
  } finally {
    decoder.kill('SIGKILL')
  }
  if (count > 0) return
  const why = said.split('\n')[0] || 'it holds no frames'
  throw new SparkError('ERR_FORMAT', `${file} could not be decoded: ${why}`)
}

/** The end of a JPEG: within its data a byte of 255 is followed by 0 or by a restart marker. */
const endMarker = Uint8Array.of(0xff, 0xd9)

async function* jpegs(stream: AsyncIterable<Buffer>, file: string): AsyncGenerator<Uint8Array> {
  let rest = Buffer.alloc(0)
  for await (const piece of stream) {
    // The marker may begin in the last byte of the piece before.
    let from = Math.max(0, rest.length - 1)
    rest = Buffer.concat([rest, piece])
    for (let at = rest.indexOf(endMarker, from); at >= 0; at = rest.indexOf(endMarker, from)) {
      yield rest.subarray(0, at + 2)
      rest = rest.subarray(at + 2)
      from = 0
    }
    if (rest.length > maxBytes)
      throw new SparkError('ERR_FORMAT', `${file}: a frame takes more than ${maxBytes} bytes as a JPEG`)
  }
}
