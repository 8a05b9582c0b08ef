// journal.ts: a file of JSON lines, each with a checksum, that survives the death of the process at any moment.
// A line is a batch that was synced before the next one began: a bad line at the end was never acknowledged and is cut off;
// a bad line with a good one behind it means that the disk has changed what was acknowledged, and is an error.
import { type FileHandle, open, readFile, stat } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { SparkError } from '../../core/errors.js'
import { ioError, writeFileAtomic } from '../../io/atomic-write.js'

const header = '{"format":"dgx-spark control journal","version":1}'
const maxFileBytes = 2 ** 30
const newline = 10

/** `["crc",text]`: one line, itself JSON. */
function lineOf(text: string): Buffer {
  const bytes = Buffer.from(text)
  const sum = crc32(bytes).toString(16).padStart(8, '0')
  return Buffer.concat([Buffer.from(`["${sum}",`), bytes, Buffer.from(']\n')])
}

/** The text of a line without its end, or undefined where it is damaged. */
function textOf(line: Buffer): string | undefined {
  const match = /^\["([0-9a-f]{8})",$/.exec(line.toString('latin1', 0, 12))
  if (!match || line.at(-1) !== 0x5d) return undefined
  const bytes = line.subarray(12, -1)
  return crc32(bytes) === Number.parseInt(match[1]!, 16) ? bytes.toString() : undefined
}

/** An open journal. One process at a time may have it. */
export class Journal {
  readonly #file: string
  readonly #maxBytes: number
  #handle: FileHandle
  #bytes: number
  /** Part of a batch may lie behind the end. */
  #isTorn = false
  /** After the disk failed to sync, what it holds is unknown until the file is read again. */
  #broken: SparkError | undefined

  private constructor(file: string, handle: FileHandle, bytes: number, maxBytes: number) {
    this.#file = file
    this.#maxBytes = maxBytes
    this.#handle = handle
    this.#bytes = bytes
  }

  /** Bytes that are durable. */
  get bytes(): number {
    return this.#bytes
  }

  /** Why nothing more can be written until it is opened again. */
  get broken(): SparkError | undefined {
    return this.#broken
  }

  /**
   * Opens a journal, makes one if there is none, and reads it.
   * @param maxBytes - which it never exceeds
   * @throws SparkError ERR_IO; ERR_FORMAT where acknowledged lines are damaged
   */
  static async open(file: string, maxBytes = maxFileBytes): Promise<{ journal: Journal; texts: string[] }> {
    const found = await stat(file).catch(() => undefined)
    if (!found) await writeFileAtomic(file, [lineOf(header)], 0o600)
    else if (found.size > maxBytes)
      throw new SparkError('ERR_FORMAT', `${file} has ${found.size} bytes, more than a journal ever has`)
    const { texts, bytes, size } = await readJournal(file)
    const handle = await open(file, 'r+').catch(error => {
      throw ioError('write', file, error)
    })
    const journal = new Journal(file, handle, bytes, maxBytes)
    journal.#isTorn = bytes < size
    return { journal, texts }
  }

  /**
   * Writes a batch and returns when it is on the disk. Where that fails nothing is written, and the next batch may succeed.
   * @throws SparkError ERR_IO
   */
  async append(text: string): Promise<void> {
    if (this.#broken) throw this.#broken
    const line = lineOf(text)
    this.#expectSize(this.#bytes + line.length)
    try {
      if (this.#isTorn) await this.#handle.truncate(this.#bytes)
      this.#isTorn = true
      await writeAt(this.#handle, line, this.#bytes)
    } catch (error) {
      throw await this.#undo(error)
    }
    try {
      await this.#handle.datasync()
    } catch (error) {
      const isFull = ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '')
      if (!isFull) this.#broken = ioError('write', this.#file, error)
      throw await this.#undo(error)
    }
    this.#isTorn = false
    this.#bytes += line.length
  }

  #expectSize(bytes: number): void {
    if (bytes <= this.#maxBytes) return
    const numbers = `it would have ${bytes} bytes of at most ${this.#maxBytes}`
    throw new SparkError('ERR_IO', `${this.#file} is full: ${numbers}: keep fewer or shorter values in it`)
  }

  async #undo(error: unknown): Promise<SparkError> {
    await this.#handle.truncate(this.#bytes).catch(() => {})
    return ioError('write', this.#file, error)
  }

  /**
   * Replaces all batches by others that say the same in fewer bytes.
   * @throws SparkError ERR_IO; the journal then stays as it was
   */
  async replace(texts: Iterable<string>): Promise<void> {
    if (this.#broken) throw this.#broken
    let bytes = 0
    const lines = function* (): Iterable<Buffer> {
      for (const text of [header]) yield counted(text)
      for (const text of texts) yield counted(text)
    }
    const counted = (text: string): Buffer => {
      const line = lineOf(text)
      bytes += line.length
      this.#expectSize(bytes)
      return line
    }
    await writeFileAtomic(this.#file, lines())
    try {
      const handle = await open(this.#file, 'r+')
      await this.#handle.close().catch(() => {})
      this.#handle = handle
      this.#bytes = bytes
      this.#isTorn = false
    } catch (error) {
      // The old file has no name any more: nothing may be acknowledged that is written there.
      this.#broken = ioError('write', this.#file, error)
      throw this.#broken
    }
  }

  async close(): Promise<void> {
    this.#broken ??= new SparkError('ERR_DISPOSED', `${this.#file} has been closed`)
    await this.#handle.close()
  }
}

/** Good lines from the start, and how many bytes they have. */
async function readJournal(file: string): Promise<{ texts: string[]; bytes: number; size: number }> {
  const content = await readFile(file).catch(error => {
    throw ioError('read', file, error)
  })
  const texts: string[] = []
  let [bytes, start, bad] = [0, 0, 0]
  for (let number = 1; start < content.length; number++) {
    const at = content.indexOf(newline, start)
    const text = at === -1 ? undefined : textOf(content.subarray(start, at))
    if (number === 1 && text !== header)
      throw new SparkError('ERR_FORMAT', `${file} is no journal of a control plane: move it away`)
    if (text === undefined) bad ||= number
    else if (bad > 0) {
      const remedy = 'the disk may be failing: restore the folder from a copy, or move it away to begin anew'
      throw new SparkError('ERR_FORMAT', `${file}, line ${bad} is damaged, and was acknowledged: ${remedy}`)
    } else {
      texts.push(text)
      bytes = at + 1
    }
    start = at === -1 ? content.length : at + 1
  }
  if (texts.length === 0)
    throw new SparkError('ERR_FORMAT', `${file} is no journal of a control plane: it is empty`)
  return { texts: texts.slice(1), bytes, size: content.length }
}

async function writeAt(handle: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done)
    done += bytesWritten
  }
}
