// bzip2.ts: decompression of bzip2 streams block by block. A damaged block is skipped: each has a CRC and a mark of its own.
import { Gap, type Inflow, type Output } from './compressed.js'
import { withTimeLimit } from './time-limit.js'

/** Bytes of a block at most: 900,050 codes of up to 20 bits, and the tables. */
const maxBlockBytes = 2_400_000
const timeLimit = 10_000
const headerBytes = 4
const marks = { block: 0x314159265359, end: 0x177245385090 }

/**
 * Decompresses bzip2 streams.
 * @param accept - is given the number of bytes of a block as they are made, and throws when they are too many
 */
export async function* bunzip2(input: Inflow, accept: (bytes: number) => void): Output {
  const { default: decoder } = await import('seek-bzip')
  while (await input.has(headerBytes)) {
    const header = Buffer.from(input.bytes.subarray(0, headerBytes))
    if (!/^BZh[1-9]$/.test(header.toString('latin1'))) {
      yield new Gap(`byte ${input.offset} of the file begins no bzip2 stream`)
      return
    }
    input.drop(headerBytes)
    let bit = 0
    for (;;) {
      await input.has(maxBlockBytes)
      const mark = markAt(input.bytes, bit)
      if (mark === marks.end) {
        input.drop(Math.min(input.length, Math.ceil((bit + 80) / 8)))
        break
      }
      const block =
        mark === marks.block ? decodeBlock(decoder, header, input.bytes, bit, accept) : 'it has no mark'
      if (typeof block !== 'string') yield block.bytes
      const found = typeof block === 'string' ? undefined : nextMark(input.bytes, block.read)
      if (found === undefined) {
        const isTruncated = input.ended && findMark(input.bytes, bit + 1) === undefined
        const reason = typeof block === 'string' ? block : 'no other block follows it'
        yield new Gap(`the bzip2 block at byte ${input.offset + (bit >> 3)}: ${reason}`, isTruncated)
      }
      const next = found ?? findMark(input.bytes, bit + 1)
      if (next === undefined) return
      input.drop(next >> 3)
      bit = next & 7
    }
  }
}

interface Decoded {
  readonly bytes: Uint8Array
  /** Bytes of the input that the decoder has looked at. */
  readonly read: number
}

/**
 * The block at a bit of the input, and what is wrong with it otherwise. The decoder reads the header of the stream, too.
 * @throws what `accept` throws
 */
function decodeBlock(
  decoder: typeof import('seek-bzip').default,
  header: Uint8Array,
  bytes: Uint8Array,
  bit: number,
  accept: (bytes: number) => void,
): Decoded | string {
  let position = 0
  let made = new Uint8Array(1 << 20)
  let count = 0
  let refusal: unknown
  const readByte = (): number => {
    const at = position++
    if (at < headerBytes) return header[at]!
    if (at - headerBytes >= bytes.length) throw new Error('it is cut off')
    return bytes[at - headerBytes]!
  }
  const grow = (): void => {
    try {
      accept(count)
    } catch (error) {
      refusal = error
      throw error
    }
    const larger = new Uint8Array(2 * count)
    larger.set(made)
    made = larger
  }
  const input = {
    readByte,
    read(buffer: Uint8Array, offset: number, length: number): number {
      for (let i = 0; i < length; i++) buffer[offset + i] = readByte()
      return length
    },
    seek(to: number): void {
      position = to
    },
  }
  const output = {
    writeByte(byte: number): void {
      if (count === made.length) grow()
      made[count++] = byte
    },
  }
  try {
    withTimeLimit(timeLimit, () => decoder.decodeBlock(input, 8 * headerBytes + bit, output))
  } catch (error) {
    if (refusal) throw refusal
    return (error as Error).message
  }
  return { bytes: made.subarray(0, count), read: position - headerBytes }
}

/** The bit of the mark that follows a block at once: the decoder has read the byte that it may begin in. */
function nextMark(bytes: Uint8Array, read: number): number | undefined {
  for (let bit = 8 * read - 7; bit <= 8 * read; bit++) if (isMark(markAt(bytes, bit))) return bit
  return undefined
}

const isMark = (mark: number): boolean => mark === marks.block || mark === marks.end

/** The 48 bits from a bit on; those behind the end are 0. */
function markAt(bytes: Uint8Array, bit: number): number {
  const first = bit >> 3
  const bits24 = (from: number): number => {
    const [a = 0, b = 0, c = 0, d = 0] = bytes.subarray(from, from + 4)
    return (((a << 24) | (b << 16) | (c << 8) | d) << (bit & 7)) >>> 8
  }
  return bits24(first) * 2 ** 24 + bits24(first + 3)
}

function findMark(bytes: Uint8Array, from: number): number | undefined {
  for (let bit = from; bit + 48 <= 8 * bytes.length; bit++) {
    if (isMark(markAt(bytes, bit))) return bit
  }
  return undefined
}
