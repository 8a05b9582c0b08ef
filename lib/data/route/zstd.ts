// zstd.ts: decompression of Zstandard streams block by block (RFC 8878), by Node.js where it can, else by fzstd.
import zlib from 'node:zlib'
import { Gap, type Inflow, type Output } from './compressed.js'
import { withTimeLimit } from './time-limit.js'

/** Takes a part of a frame, at most a block of it. @returns what it decompresses to */
type Decoder = (part: Uint8Array, isLast: boolean) => Promise<Uint8Array[]>

/** The window that zstd itself accepts unless told otherwise. */
const maxWindow = 2 ** 27
const maxBlock = 2 ** 17
const timeLimit = 10_000
const magic = 0xfd2fb528
const isSkippable = (value: number): boolean => value >>> 4 === 0x184d2a5

/** Whether a stream that begins with these four bytes is compressed with Zstandard. */
export const isZstd = (start: number): boolean => start === magic || isSkippable(start)

/** Decompresses Zstandard frames, one after another. */
export async function* unzstd(input: Inflow): Output {
  try {
    while (await input.has(4)) {
      const kind = input.bytes.readUInt32LE(0)
      if (isSkippable(kind)) await skipFrame(input)
      else if (kind === magic) yield* frame(input)
      else throw new Error(`byte ${input.offset} of the file begins no Zstandard frame`)
    }
    if (input.length > 0) throw cutOff
  } catch (error) {
    yield new Gap((error as Error).message, error === cutOff)
  }
}

const cutOff = new Error('the Zstandard stream is cut off')

async function need(input: Inflow, bytes: number): Promise<void> {
  if (!(await input.has(bytes))) throw cutOff
}

async function skipFrame(input: Inflow): Promise<void> {
  await need(input, 8)
  let left = 8 + input.bytes.readUInt32LE(4)
  while (left > 0) {
    await need(input, 1)
    const step = Math.min(left, input.length)
    input.drop(step)
    left -= step
  }
}

async function* frame(input: Inflow): AsyncGenerator<Uint8Array, void, undefined> {
  const at = input.offset
  const { bytes, hasChecksum } = await readHeader(input)
  const decode = openDecoder()
  const run = async (count: number, isEnd: boolean): Promise<Uint8Array[]> => {
    const part = Uint8Array.from(input.bytes.subarray(0, count))
    const where = input.offset
    input.drop(count)
    return decode(part, isEnd).catch(error => {
      throw new Error(`the Zstandard frame at byte ${at}, block at byte ${where}: ${error.message}`)
    })
  }
  yield* await run(bytes, false)
  for (let isLast = false; !isLast; ) {
    await need(input, 3)
    const header = input.bytes.readUIntLE(0, 3)
    isLast = (header & 1) === 1
    const [kind, size] = [(header >> 1) & 3, header >> 3]
    if (kind === 3 || size > maxBlock)
      throw new Error(`the Zstandard block at byte ${input.offset} has an invalid header`)
    const whole = 3 + (kind === 1 ? 1 : size)
    await need(input, whole)
    yield* await run(whole, isLast && !hasChecksum)
  }
  if (!hasChecksum) return
  await need(input, 4)
  yield* await run(4, true)
}

/** Checks the header of a frame. @returns its length */
async function readHeader(input: Inflow): Promise<{ bytes: number; hasChecksum: boolean }> {
  await need(input, 5)
  const flags = input.bytes[4]!
  const isSingle = (flags & 0x20) !== 0
  const dictionary = [0, 1, 2, 4][flags & 3]!
  const size = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6]!
  const start = 5 + (isSingle ? 0 : 1) + dictionary
  const bytes = start + size
  await need(input, bytes)
  const header = input.bytes
  const exponent = header[5]! >> 3
  const window = isSingle ? readSize(header, start, size) : 2 ** (10 + exponent) * (1 + (header[5]! & 7) / 8)
  if (dictionary > 0 || (flags & 8) !== 0)
    throw new Error(`the Zstandard frame at byte ${input.offset} needs a dictionary, or is damaged`)
  if (window > maxWindow)
    throw new Error(
      `the Zstandard frame at byte ${input.offset} has a window of ${window} bytes; ${maxWindow} are accepted`,
    )
  return { bytes, hasChecksum: (flags & 4) !== 0 }
}

function readSize(header: Buffer, start: number, size: number): number {
  if (size === 8) return Number(header.readBigUInt64LE(start))
  return header.readUIntLE(start, size) + (size === 2 ? 256 : 0)
}

/** Node.js has zstd since 22.15 and 23.8. */
interface ZstdOfNode {
  createZstdDecompress?(options: { chunkSize: number; readableHighWaterMark: number }): NodeJS.ReadWriteStream
}

const openDecoder = (): Decoder => nodeDecoder((zlib as ZstdOfNode).createZstdDecompress) ?? fzstdDecoder()

/** Exported for tests. */
export function nodeDecoder(create: ZstdOfNode['createZstdDecompress']): Decoder | undefined {
  if (!create) return undefined
  // What one block becomes fits, so that a write ends without a reader.
  const stream = create({ chunkSize: 2 * maxBlock, readableHighWaterMark: 8 * maxBlock })
  const failed = new Promise<never>((_, reject) => stream.on('error', reject))
  failed.catch(() => {})
  return async part => {
    const written = new Promise<void>(resolve => stream.write(part, () => resolve()))
    await Promise.race([written, failed])
    const made: Uint8Array[] = []
    for (let piece = stream.read(); piece !== null; piece = stream.read())
      made.push(piece as unknown as Uint8Array)
    return made
  }
}

/** Exported for tests. */
export function fzstdDecoder(): Decoder {
  let made: Uint8Array[] = []
  const opened = import('fzstd').then(({ Decompress }) => new Decompress(piece => made.push(piece)))
  return async (part, isLast) => {
    const decoder = await opened
    made = []
    withTimeLimit(timeLimit, () => decoder.push(part, isLast))
    return made.filter(piece => piece.length > 0)
  }
}
