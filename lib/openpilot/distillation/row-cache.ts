// row-cache.ts: rows of numbers that are computed once, one after another, and kept in a folder.
import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { ioError, writeFileAtomic } from '../../io/atomic-write.js'
import { type Lock, lockFolder } from '../../io/lock.js'
import { readText } from '../../io/read-file.js'

/** A column of rows. */
export interface Field {
  readonly name: string
  readonly dtype: 'f32' | 'u8'
  /** Shape of a row. */
  readonly shape: readonly number[]
}

/** Numbers of rows. */
export type RowArray = Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>

const bytesOf = ({ dtype, shape }: Field): number =>
  shape.reduce((product, size) => product * size, dtype === 'f32' ? 4 : 1)

/**
 * Rows in files, a file per field, and `rows.json`, which says how many are whole: it is replaced after each append, once the rows are
 * on the disk, so that whatever ends a process leaves the rows before.
 */
export class RowCache {
  readonly #folder: string
  readonly #fields: readonly Field[]
  readonly #files: ReadonlyMap<string, FileHandle>
  readonly #lock: Lock
  #rows: number

  private constructor(
    folder: string,
    fields: readonly Field[],
    files: ReadonlyMap<string, FileHandle>,
    lock: Lock,
    rows: number,
  ) {
    this.#folder = folder
    this.#fields = fields
    this.#files = files
    this.#lock = lock
    this.#rows = rows
  }

  /**
   * Opens a cache; it is made if it is not there.
   * @throws SparkError ERR_IO; ERR_BUSY when another process has it; ERR_FORMAT when the folder holds other fields
   */
  static async open(folder: string, fields: readonly Field[]): Promise<RowCache> {
    const lock = await lockFolder(folder)
    const files = new Map<string, FileHandle>()
    try {
      const rows = await rowsIn(folder, fields)
      for (const field of fields) {
        const name = fileOf(folder, field.name)
        const file = await openData(name)
        files.set(field.name, file)
        if ((await file.stat()).size < rows * bytesOf(field)) throw tooShort(name)
      }
      return new RowCache(folder, fields, files, lock, rows)
    } catch (error) {
      for (const file of files.values()) await file.close()
      lock[Symbol.dispose]()
      throw error
    }
  }

  /** Number of whole rows. */
  get rows(): number {
    return this.#rows
  }

  /**
   * Appends rows, `count` of each field.
   * @throws SparkError ERR_IO, such as for a full disk; the rows before stay
   */
  async append(count: number, rows: Readonly<Record<string, RowArray>>): Promise<void> {
    for (const field of this.#fields) {
      const { buffer, byteOffset, byteLength } = rows[field.name]!
      const file = this.#files.get(field.name)!
      await writeAll(
        file,
        fileOf(this.#folder, field.name),
        new Uint8Array(buffer, byteOffset, byteLength),
        this.#rows * bytesOf(field),
      )
      await file.datasync()
    }
    this.#rows += count
    await writeFileAtomic(noteOf(this.#folder), [Buffer.from(noteFor(this.#rows, this.#fields))])
  }

  /** Rows of a field. @throws SparkError ERR_IO */
  async read(name: string, indices: readonly number[]): Promise<RowArray> {
    const field = this.#fields.find(field => field.name === name)!
    const bytes = bytesOf(field)
    const all = new Uint8Array(indices.length * bytes)
    for (const [i, index] of indices.entries())
      await readAll(
        this.#files.get(name)!,
        fileOf(this.#folder, name),
        all.subarray(i * bytes, (i + 1) * bytes),
        index * bytes,
      )
    return field.dtype === 'f32' ? new Float32Array(all.buffer) : all
  }

  /** Closes the files. */
  async close(): Promise<void> {
    for (const file of this.#files.values()) await file.close()
    this.#lock[Symbol.dispose]()
  }
}

const fileOf = (folder: string, name: string): string =>
  path.join(folder, `${name.replace(/[^\w.-]/g, '_')}.rows`)
const noteOf = (folder: string): string => path.join(folder, 'rows.json')
const noteFor = (rows: number, fields: readonly Field[]): string => JSON.stringify({ rows, fields })

async function openData(file: string): Promise<FileHandle> {
  try {
    // Neither emptied nor appended to: rows are written where they belong.
    return await open(file, 'r+').catch(() => open(file, 'w+'))
  } catch (error) {
    throw ioError('write', file, error)
  }
}

/** The number of whole rows. */
async function rowsIn(folder: string, fields: readonly Field[]): Promise<number> {
  const text = await readText(noteOf(folder)).catch(() => undefined)
  if (text === undefined) return 0
  let note: { rows?: unknown; fields?: unknown }
  try {
    note = JSON.parse(text)
  } catch {
    throw new SparkError('ERR_FORMAT', `${noteOf(folder)} is damaged: remove ${folder}`)
  }
  const { rows } = note
  if (!Number.isSafeInteger(rows) || JSON.stringify(note.fields) !== JSON.stringify(fields))
    throw new SparkError('ERR_FORMAT', `${folder} holds rows of something else: give another folder`)
  return rows as number
}

const tooShort = (file: string): SparkError =>
  new SparkError('ERR_FORMAT', `${file} lacks rows: remove ${path.dirname(file)}`)

async function writeAll(file: FileHandle, name: string, bytes: Uint8Array, position: number): Promise<void> {
  try {
    for (let done = 0; done < bytes.length; )
      done += (await file.write(bytes, done, bytes.length - done, position + done)).bytesWritten
  } catch (error) {
    throw ioError('write', name, error)
  }
}

async function readAll(file: FileHandle, name: string, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, position + done)
    if (bytesRead === 0) throw tooShort(name)
    done += bytesRead
  }
}
