// Logs that are cut off at random positions or have a random bit flipped: nothing crashes, and every event before the damage is
// delivered. DAMAGED_LOGS=all makes 200 cuts and 2,000 flips of each log, as the nightly run does.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { readLog, SparkError } from 'dgx-spark'
import t from 'tap'
import { bunzip2 } from '#lib/data/route/bzip2.js'
import { Inflow } from '#lib/data/route/compressed.js'
import { unzstd } from '#lib/data/route/zstd.js'
import { demoSegment } from '../fixtures/route/demo-route.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

const isAll = process.env.DAMAGED_LOGS === 'all'
const file = path.join(t.testdir({}), 'damaged')

/** A log as it is stored, and what of it must be delivered. */
interface Log {
  readonly bytes: Buffer
  /** Bytes of the decompressed log that are there in full before a byte of the file. */
  intactBefore(byte: number): number
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

/** Decompresses a log block by block, and notes where in the file a block ends, or at least begins. */
async function compressed(name: string): Promise<{ log: Log; plain: Buffer }> {
  const bytes = readFileSync(path.join(demoSegment, name))
  const input = new Inflow(once(bytes))
  const isZstd = name.endsWith('.zst')
  const pieces: Uint8Array[] = []
  const starts: number[] = []
  for await (const piece of isZstd ? unzstd(input) : bunzip2(input, () => {})) {
    pieces.push(piece as Uint8Array)
    starts.push(input.offset)
  }
  const ends = isZstd ? starts : [...starts.slice(1).map(start => start + 1), bytes.length]
  const intactBefore = (byte: number): number =>
    pieces.reduce((sum, piece, i) => (ends[i]! <= byte ? sum + piece.length : sum), 0)
  return { log: { bytes, intactBefore }, plain: Buffer.concat(pieces) }
}

/** The ends of messages. */
function endsOf(plain: Buffer): number[] {
  const ends: number[] = []
  for (let at = 0; at < plain.length; ) {
    const segments = plain.readUInt32LE(at) + 1
    let words = Math.ceil((1 + segments) / 2)
    for (let i = 1; i <= segments; i++) words += plain.readUInt32LE(at + 4 * i)
    at += 8 * words
    ends.push(at)
  }
  return ends
}

/** Reads a file with all values. @returns types and times of the events */
async function events(path: string): Promise<string[]> {
  const found: string[] = []
  try {
    for await (const { ordinal, logMonoTime, value } of readLog(path)) {
      if (value === undefined) throw new Error(`event ${found.length} has no value`)
      found.push(`${ordinal} ${logMonoTime}`)
    }
  } catch (error) {
    if (!(error instanceof SparkError && error.code === 'ERR_FORMAT')) throw error
  }
  return found
}

t.test('damaged logs', { skip: noGolden, timeout: 7_200_000 }, async t => {
  const [zstd, bzip2] = [await compressed('qlog.zst'), await compressed('qlog.bz2')]
  t.ok(zstd.plain.equals(bzip2.plain))
  const ends = endsOf(zstd.plain)
  const expected = await events(path.join(demoSegment, 'qlog.zst'))
  t.equal(ends.length, expected.length)
  const logs: Record<string, Log> = {
    'not compressed': { bytes: zstd.plain, intactBefore: byte => byte },
    zstd: zstd.log,
    bzip2: bzip2.log,
  }
  for (const [name, { bytes, intactBefore }] of Object.entries(logs)) {
    const [cuts, flips] = isAll ? [200, 2000] : name === 'bzip2' ? [1, 3] : [5, 10]
    const random = randomGenerator(16)
    const missing: string[] = []
    let fewest = expected.length
    const tryOne = async (what: string, byte: number, damaged: Uint8Array): Promise<void> => {
      writeFileSync(file, damaged)
      const found = await events(file)
      const intact = intactBefore(byte)
      const needed = ends.filter(end => end <= intact).length
      const isPrefix = expected.slice(0, needed).every((event, i) => event === found[i])
      if (!isPrefix) missing.push(`${what}: not the first ${needed} events`)
      if (what.startsWith('cut')) fewest = Math.min(fewest, found.length - needed)
    }
    for (let i = 0; i < cuts; i++) {
      const length = Math.floor(random() * bytes.length)
      await tryOne(`cut at ${length}`, length, bytes.subarray(0, length))
    }
    for (let i = 0; i < flips; i++) {
      const bit = Math.floor(random() * 8 * bytes.length)
      const damaged = Buffer.from(bytes)
      damaged[bit >> 3]! ^= 1 << (bit & 7)
      await tryOne(`bit ${bit}`, bit >> 3, damaged)
    }
    t.strictSame(missing, [], `${name}: ${cuts} cuts, ${flips} bits`)
    t.ok(fewest >= 0, 'every event before the cut')
  }
})
