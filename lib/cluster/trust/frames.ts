// frames.ts: JSON documents on a connection, each behind its length: bounded before anything is allocated.
import type { Duplex } from 'node:stream'
import { SparkError } from '../../core/errors.js'

/** Bytes of a document at most. */
export const maxFrameBytes = 16_384

const headBytes = 4

/** Sends a document: its length in 4 bytes, big endian, then its JSON in UTF-8. */
export function sendFrame(stream: Duplex, value: unknown): void {
  const body = Buffer.from(JSON.stringify(value))
  const head = Buffer.alloc(headBytes)
  head.writeUInt32BE(body.byteLength)
  stream.write(Buffer.concat([head, body]))
}

/**
 * Receives one document.
 * @param timeoutMs - for all of it, however its bytes arrive
 * @throws SparkError ERR_RANGE when it is longer than {@link maxFrameBytes}, ERR_BUSY when it is not there in time, ERR_FORMAT
 * when it is no JSON or followed by more, ERR_IO when the connection ends before
 */
export function receiveFrame(stream: Duplex, timeoutMs: number): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let [held, needed] = [0, headBytes]
    const end = (error?: Error, value?: unknown): void => {
      clearTimeout(timer)
      stream.off('data', take).off('end', ended).off('close', ended).off('error', failed)
      stream.pause()
      if (error) reject(error)
      else resolve(value)
    }
    const take = (chunk: Buffer): void => {
      chunks.push(chunk)
      held += chunk.byteLength
      if (held < needed) return
      try {
        const bytes = Buffer.concat(chunks.splice(0))
        chunks.push(bytes)
        needed = headBytes + lengthIn(bytes)
        if (held >= needed) end(undefined, documentIn(bytes, needed))
      } catch (error) {
        end(error as Error)
      }
    }
    const ended = (): void => end(new SparkError('ERR_IO', 'the connection ended before the frame did'))
    const failed = (error: Error): void => end(error)
    const late = new SparkError('ERR_BUSY', `the frame was not there within ${timeoutMs} ms`)
    const timer = setTimeout(() => end(late), timeoutMs)
    stream.on('data', take).on('end', ended).on('close', ended).on('error', failed)
  })
}

function lengthIn(bytes: Buffer): number {
  const length = bytes.readUInt32BE()
  if (length <= maxFrameBytes) return length
  throw new SparkError('ERR_RANGE', `a frame of ${length} bytes is refused: at most ${maxFrameBytes}`)
}

function documentIn(bytes: Buffer, end: number): unknown {
  if (bytes.byteLength > end) throw new SparkError('ERR_FORMAT', 'bytes follow the frame')
  try {
    return JSON.parse(bytes.toString('utf8', headBytes))
  } catch {
    throw new SparkError('ERR_FORMAT', 'the frame is no JSON')
  }
}
