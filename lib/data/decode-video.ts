// decode-video.ts: decodes videos with the system's ffmpeg.
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { getConfig } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { openFile } from '../io/read-file.js'
import type { VideoBatch } from './video-batch.js'
import { parseY4mHeader, Y4mFrames } from './y4m.js'

type Decoder = ChildProcessByStdio<null, Readable, Readable>

/**
 * Decodes a video from its start.
 * @param format - what ffmpeg calls the kind of file
 * @param report - is given what ffmpeg says
 * @throws SparkError as `readVideo`
 */
export async function* decodeVideo(
  file: string,
  format: string,
  size: number,
  report: (text: string) => void,
): AsyncGenerator<VideoBatch, void, undefined> {
  await (await openFile(file)).close()
  // Both formats, so that none is converted to the other's range.
  const raw = ['-vf', 'format=yuv420p|yuvj420p', '-strict', '-1', '-f', 'yuv4mpegpipe', '-']
  const decoder = await startDecoder(file, format, raw)
  let said = ''
  decoder.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (said.length < 1000) said += text
    report(text)
  })
  const ended = new Promise<void>(resolve => decoder.once('close', () => resolve()))
  let count = 0
  try {
    for await (const batch of batches(decoder.stdout, size, file)) {
      yield batch
      count += batch.count
    }
    await ended
  } finally {
    decoder.kill('SIGKILL')
  }
  if (count > 0) return
  const why = said.split('\n')[0] || 'it holds no frames'
  throw new SparkError('ERR_FORMAT', `${file} could not be decoded: ${why}`)
}

/**
 * Starts ffmpeg on a video. Frames are neither dropped nor repeated for the sake of a rate.
 * @param format - what ffmpeg calls the kind of file
 * @param output - options of what it writes, and where
 * @throws SparkError ERR_UNSUPPORTED when there is no ffmpeg
 */
export async function startDecoder(
  file: string,
  format: string,
  output: readonly string[],
): Promise<Decoder> {
  const { ffmpeg } = getConfig()
  const options = ['-nostdin', '-hide_banner', '-v', 'error', '-protocol_whitelist', 'file,pipe']
  const input = ['-f', format, '-i', `file:${file}`, '-map', '0:v:0']
  const args = [...options, ...input, ...(await keepTimes(ffmpeg)), ...output]
  const decoder = spawn(ffmpeg, args, { stdio: ['ignore', 'pipe', 'pipe'], windowsHide: true })
  await once(decoder, 'spawn').catch(error => {
    throw missing(ffmpeg, error)
  })
  return decoder
}

/** The option that keeps frames as they are: it was renamed in ffmpeg 5.1. */
async function keepTimes(ffmpeg: string): Promise<string[]> {
  const [, major = '9', minor = '0'] = /^ffmpeg version n?(\d+)\.(\d+)/.exec(await versionOf(ffmpeg)) ?? []
  const isOld = Number(major) < 5 || (Number(major) === 5 && Number(minor) < 1)
  return isOld ? ['-vsync', '0'] : ['-fps_mode', 'passthrough']
}

const versions = new Map<string, Promise<string>>()

/** What ffmpeg says of itself. */
function versionOf(ffmpeg: string): Promise<string> {
  let version = versions.get(ffmpeg)
  if (!version) {
    version = new Promise<string>((resolve, reject) => {
      const child = spawn(ffmpeg, ['-version'], { stdio: ['ignore', 'pipe', 'ignore'], windowsHide: true })
      let text = ''
      child.stdout.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
      })
      child.once('error', (error: NodeJS.ErrnoException) => reject(missing(ffmpeg, error)))
      child.once('close', () => resolve(text))
    })
    versions.set(ffmpeg, version)
    // Once it is installed, the next video finds it.
    version.catch(() => versions.delete(ffmpeg))
  }
  return version
}

function missing(ffmpeg: string, { code, message }: NodeJS.ErrnoException): SparkError {
  const install =
    process.platform === 'darwin'
      ? 'brew install ffmpeg'
      : process.platform === 'win32'
        ? 'winget install ffmpeg'
        : 'sudo apt install ffmpeg'
  const reason = code === 'ENOENT' ? 'was not found' : `could not be started (${message})`
  const help = `it decodes videos. Install it (${install}) or set DGX_SPARK_FFMPEG to its path`
  return new SparkError('ERR_UNSUPPORTED', `${ffmpeg} ${reason}: ${help}`)
}

/** Frames of a decoder's output. */
async function* batches(
  stream: Readable,
  size: number,
  file: string,
): AsyncGenerator<VideoBatch, void, undefined> {
  let header = Buffer.alloc(0)
  let frames: Y4mFrames | undefined
  let first = 0
  for await (const piece of stream as AsyncIterable<Buffer>) {
    let rest: Uint8Array = piece
    if (!frames) {
      header = Buffer.concat([header, piece])
      const found = parseY4mHeader(header, file)
      if (!found) continue
      frames = new Y4mFrames(found.size, size, file)
      rest = header.subarray(found.bytes)
    }
    for (const { data, count } of frames.take(rest)) {
      yield { ...frames.size, first, count, data }
      first += count
    }
  }
  const last = frames?.flush()
  if (frames && last) yield { ...frames.size, first, ...last }
}
