// decompress.ts: bytes of a log, whatever it is compressed with. The first bytes decide, not the name.
import { SparkError } from '../../core/errors.js'
import { openFile } from '../../io/read-file.js'
import { bunzip2 } from './bzip2.js'
import { type Gap, Inflow, type Output } from './compressed.js'
import { isZstd, unzstd } from './zstd.js'

/** Logs shrink to a third or a tenth; one that grows more than this is made to fill the memory or to never end. */
const maxRatio = 250
/** Output that is accepted of any file. */
const freeBytes = 1 << 26
const pieceBytes = 1 << 18

/** How a log is stored. */
export type Compression = 'bzip2' | 'zstd' | 'none'

/** The compression that bytes begin with. */
export function compressionOf(bytes: Buffer): Compression {
  if (bytes.toString('latin1', 0, 3) === 'BZh') return 'bzip2'
  return bytes.length >= 4 && isZstd(bytes.readUInt32LE(0)) ? 'zstd' : 'none'
}

/**
 * The bytes of a file, decompressed.
 * @throws SparkError ERR_IO when it cannot be read, ERR_FORMAT when it grows to more than 250 times its size
 */
export async function* decompress(file: string): Output {
  const input = new Inflow(fileBytes(file))
  try {
    await input.has(4)
    let made = 0
    const expectSmall = (bytes: number): void => {
      const limit = freeBytes + maxRatio * (input.offset + input.length)
      if (made + bytes <= limit) return
      const what = `${input.offset + input.length} bytes of it become more than ${limit}`
      throw new SparkError('ERR_FORMAT', `${file} is refused: ${what}, which no log does`)
    }
    const kind = compressionOf(input.bytes)
    const output =
      kind === 'bzip2' ? bunzip2(input, expectSmall) : kind === 'zstd' ? unzstd(input) : plain(input)
    for await (const piece of output) {
      if (piece instanceof Uint8Array) {
        expectSmall(piece.length)
        made += piece.length
      }
      yield piece
    }
  } finally {
    await input.close()
  }
}

async function* plain(input: Inflow): AsyncGenerator<Uint8Array | Gap, void, undefined> {
  while (await input.has(1)) {
    const piece = Uint8Array.from(input.bytes)
    input.drop(piece.length)
    yield piece
  }
}

async function* fileBytes(file: string): AsyncGenerator<Uint8Array, void, undefined> {
  const handle = await openFile(file)
  try {
    const buffer = new Uint8Array(pieceBytes)
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, pieceBytes, null)
      if (bytesRead === 0) return
      yield buffer.subarray(0, bytesRead)
    }
  } finally {
    await handle.close()
  }
}
