// audit-files.ts: the files of an audit log: segments of records, archives of full ones, checkpoints.
import { createReadStream } from 'node:fs'
import { type FileHandle, open, readdir, rm, truncate } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import { SparkError } from '../../core/errors.js'
import { ioError, writeFileAtomic } from '../../io/atomic-write.js'
import { isThere, readText } from '../../io/read-file.js'

/** A file of records. */
export interface Segment {
  /** From 1. */
  readonly number: number
  readonly file: string
  readonly isArchive: boolean
}

/** A line of a segment. */
export interface SegmentLine {
  /** Without its line feed. */
  readonly bytes: Buffer
  /** Whether a line feed ends it: the last line of a killed process has none. */
  readonly isWhole: boolean
  /** Of the line in the segment, unpacked. */
  readonly offset: number
}

const [checkpointsFile, ownerFile] = ['checkpoints.jsonl', 'log.json']

/** The node that a log belongs to. */
export interface LogOwner {
  /** A uuid. */
  readonly nodeId: string
  /** Its Ed25519 key: 32 bytes in base64url. */
  readonly publicKey: string
}

/** The path of a segment that is written. */
export const segmentFile = (folder: string, number: number): string =>
  path.join(folder, `audit-${String(number).padStart(8, '0')}.jsonl`)

/** The path of the checkpoints. */
export const checkpointsOf = (folder: string): string => path.join(folder, checkpointsFile)

/**
 * The segments of a log, oldest first. One that is there twice, for its process was killed while it was archived, counts once.
 * @throws SparkError ERR_IO when the folder cannot be read
 */
export async function segmentsIn(folder: string): Promise<Segment[]> {
  const names = await readdir(folder).catch(error => {
    throw ioError('read', folder, error)
  })
  const found = new Map<number, Segment>()
  for (const name of names.sort()) {
    const [, digits, packed] = /^audit-(\d{8})\.jsonl(\.gz)?$/.exec(name) ?? []
    if (digits === undefined) continue
    const number = Number(digits)
    if (packed !== undefined && found.has(number)) continue
    found.set(number, { number, file: path.join(folder, name), isArchive: packed !== undefined })
  }
  return [...found.values()].sort((a, b) => a.number - b.number)
}

/** Longer lines are no records: they are cut into pieces of this size, which are none either. */
const maxLineBytes = 65_536

/**
 * The lines of a segment.
 * @throws SparkError ERR_FORMAT when an archive is damaged, ERR_IO
 */
export async function* linesOf({ file, isArchive }: Segment): AsyncGenerator<SegmentLine> {
  const source = createReadStream(file)
  const stream = isArchive ? source.pipe(createGunzip()) : source
  source.on('error', error => stream.destroy(error))
  let rest: Buffer = Buffer.alloc(0)
  let offset = 0
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      rest = rest.byteLength === 0 ? chunk : Buffer.concat([rest, chunk])
      let begin = 0
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, begin)) {
        yield { bytes: rest.subarray(begin, end), isWhole: true, offset: offset + begin }
        begin = end + 1
      }
      offset += begin
      rest = rest.subarray(begin)
      if (rest.byteLength > maxLineBytes) {
        yield { bytes: rest, isWhole: true, offset }
        offset += rest.byteLength
        rest = Buffer.alloc(0)
      }
    }
  } catch (error) {
    if (!String((error as NodeJS.ErrnoException).code).startsWith('Z_')) throw ioError('read', file, error)
    throw new SparkError('ERR_FORMAT', `${file} is damaged: ${(error as Error).message}`, { cause: error })
  }
  if (rest.byteLength > 0) yield { bytes: rest, isWhole: false, offset }
}

/** Packs a full segment, then removes it. @throws SparkError ERR_IO */
export async function archive(folder: string, number: number): Promise<void> {
  const file = segmentFile(folder, number)
  const packed = createGzip()
  const read = pipeline(createReadStream(file), packed)
  read.catch(error => packed.destroy(error))
  await writeFileAtomic(`${file}.gz`, packed, 0o600)
  await rm(file)
}

const checkpointLines = (folder: string): AsyncGenerator<SegmentLine> =>
  linesOf({ number: 0, file: checkpointsOf(folder), isArchive: false })

/**
 * The notes of a log, oldest first. A line that is torn at the end is left out.
 * @throws SparkError ERR_FORMAT, ERR_IO
 */
export async function* notesOf(folder: string): AsyncGenerator<string> {
  const file = checkpointsOf(folder)
  if (!(await isThere(file))) return
  let number = 0
  for await (const { bytes, isWhole } of checkpointLines(folder)) {
    number++
    if (isWhole) yield noteOf(bytes, `${file}, line ${number}`)
  }
}

function noteOf(bytes: Buffer, where: string): string {
  try {
    const { note } = JSON.parse(bytes.toString())
    if (typeof note === 'string') return note
  } catch {}
  throw new SparkError('ERR_FORMAT', `${where}, is no checkpoint`)
}

/** Cuts off a checkpoint that was torn when its process was killed. @throws SparkError ERR_IO */
export async function cutTornNote(folder: string): Promise<void> {
  const file = checkpointsOf(folder)
  if (!(await isThere(file))) return
  for await (const { isWhole, offset } of checkpointLines(folder)) if (!isWhole) await truncate(file, offset)
}

/** Bytes behind which the checkpoints are written anew, with the last ones only. */
const maxCheckpointBytes = 1 << 20

/**
 * Adds a note to the checkpoints of a log.
 * @param cosigned - the note before it that is kept where the file has become long
 * @throws SparkError ERR_IO
 */
export async function addNote(folder: string, note: string, cosigned: string | undefined): Promise<void> {
  const file = checkpointsOf(folder)
  const lineOf = (text: string): string => `${JSON.stringify({ note: text })}\n`
  const handle = await open(file, 'a', 0o600)
  try {
    const { size } = await handle.stat()
    if (size > maxCheckpointBytes) {
      const lines = [cosigned ?? [], note].flat().map(lineOf)
      return await writeFileAtomic(file, [Buffer.from(lines.join(''))], 0o600)
    }
    try {
      await handle.appendFile(lineOf(note))
      await handle.datasync()
    } catch (error) {
      // The next one begins a line of its own.
      await handle.truncate(size)
      throw error
    }
  } finally {
    await handle.close()
  }
}

/** Opens a segment to append to; a new one is there after a power cut too. @throws SparkError ERR_IO */
export async function openSegment(folder: string, number: number): Promise<FileHandle> {
  const file = segmentFile(folder, number)
  if (!(await isThere(file))) await writeFileAtomic(file, [], 0o600)
  return open(file, 'a', 0o600)
}

/** Keeps who owns a log beside it, so that whoever verifies needs no secret. */
export async function writeOwner(folder: string, { nodeId, publicKey }: LogOwner): Promise<void> {
  const text = `${JSON.stringify({ nodeId, publicKey }, null, 2)}\n`
  await writeFileAtomic(path.join(folder, ownerFile), [Buffer.from(text)], 0o600)
}

/** Who owns a log. @throws SparkError ERR_IO when the folder holds none, ERR_FORMAT */
export async function readOwner(folder: string): Promise<LogOwner> {
  const file = path.join(folder, ownerFile)
  if (!(await isThere(file))) throw new SparkError('ERR_IO', `${folder} holds no audit log of a node`)
  try {
    const { nodeId, publicKey } = JSON.parse(await readText(file))
    if (typeof nodeId === 'string' && typeof publicKey === 'string') return { nodeId, publicKey }
  } catch {}
  throw new SparkError('ERR_FORMAT', `${file} does not say whose log this is`)
}
