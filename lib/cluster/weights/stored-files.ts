// stored-files.ts: files in which chunks lie: those that a store put together, and those of the user that it was told of.
import { randomBytes } from 'node:crypto'
import { type FileHandle, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import path from 'node:path'
import { debug } from '../../core/log.js'
import { ioError, makeFolder, temporaryName, writeFileAtomic } from '../../io/atomic-write.js'
import { fill, isThere, openFile, readJson } from '../../io/read-file.js'
import { unlessGone } from './chunk-folder.js'
import { type FileManifest, hashOf, manifestId, parseManifest, rangeOf } from './manifest.js'

/** A file in which chunks lie. */
export interface StoredFile {
  /** Of its manifest. */
  readonly id: string
  /** Its chunks. */
  readonly manifest: FileManifest
  /** Where it is. */
  readonly path: string
  /** The folder of the store that it lies in; null where it lies elsewhere. */
  readonly group: string | null
  /** Numbers of the chunks that it has; the rest is a hole. */
  readonly chunks: ReadonlySet<number>
  /** When it was last used, in milliseconds since 1970. */
  used: number
}

/** What a note says of a file. */
interface Note {
  readonly manifest: FileManifest
  /** Where a file of the user is; null for one of the store. */
  readonly path: string | null
  /** Folder of one of the store. */
  readonly group: string | null
  readonly chunks: readonly number[]
}

/** Whether a value may name a folder of files. */
export const isGroup = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w-]{1,128}$/.test(value)

/** Bytes of the chunks that a file has. */
export function bytesIn({ manifest, chunks }: Pick<StoredFile, 'manifest' | 'chunks'>): number {
  let bytes = 0
  for (const index of chunks) {
    const { begin, end } = rangeOf(manifest, index)
    bytes += end - begin
  }
  return bytes
}

/** Files with chunks, by the id of their manifest, and where each chunk lies. */
export class StoredFiles {
  readonly #folder: string
  readonly #files = new Map<string, StoredFile>()
  readonly #places = new Map<string, { file: StoredFile; index: number }>()

  private constructor(folder: string) {
    this.#folder = folder
  }

  /** Finds the files that were kept, and removes what a killed process left half written. */
  static async open(folder: string): Promise<StoredFiles> {
    await makeFolder(folder)
    const files = new StoredFiles(folder)
    const entries = await readdir(folder, { recursive: true, withFileTypes: true })
    const names = entries
      .filter(entry => entry.isFile())
      .map(entry => path.join(entry.parentPath, entry.name))
    const isNote = (file: string): boolean =>
      path.dirname(file) === folder && /^[0-9a-f]{64}\.json$/.test(path.basename(file))
    for (const file of names.filter(isNote)) await files.#load(path.basename(file, '.json'), file)
    const known = new Set([...files.files.values()].map(({ path }) => path))
    for (const file of names) if (!isNote(file) && !known.has(file)) await rm(file, { force: true })
    return files
  }

  get files(): ReadonlyMap<string, StoredFile> {
    return this.#files
  }

  has(hash: string): boolean {
    return this.#places.has(hash)
  }

  /** The path of a file that the store puts together. */
  #pathOf({ name }: FileManifest, group: string): string {
    return path.join(this.#folder, group, ...name.split('/'))
  }

  /**
   * A chunk whose content has its hash; undefined where its file is gone or has other content by now.
   * @throws SparkError ERR_IO where it cannot be read at the moment
   */
  async read(hash: string): Promise<Uint8Array | undefined> {
    const place = this.#places.get(hash)
    if (!place) return undefined
    const { begin, end } = rangeOf(place.file.manifest, place.index)
    const bytes = await readRange(place.file.path, begin, end - begin)
    if (bytes && (await hashOf(bytes)) === hash) return bytes
    this.#places.delete(hash)
    return undefined
  }

  /** Notes that chunks lie in a file that is not the store's. */
  async add(manifest: FileManifest, file: string): Promise<StoredFile> {
    return this.#note({ manifest, path: file, group: null, chunks: [...manifest.chunks.keys()] })
  }

  /**
   * Writes chunks to the file of a manifest, with holes for the others. The file is new: who has an older one open keeps it.
   * @param group - the folder that it lies in, with other files of its model
   * @param read - a chunk by its number
   */
  async assemble(
    manifest: FileManifest,
    group: string,
    chunks: readonly number[],
    read: (index: number) => Promise<Uint8Array>,
  ): Promise<StoredFile> {
    const target = this.#pathOf(manifest, group)
    await makeFolder(path.dirname(target))
    const temporary = path.join(
      path.dirname(target),
      temporaryName(path.basename(target), randomBytes(6).toString('hex')),
    )
    try {
      const handle = await open(temporary, 'wx')
      try {
        await handle.truncate(manifest.bytes)
        for (const index of chunks) await writeAt(handle, await read(index), rangeOf(manifest, index).begin)
        await handle.sync()
      } finally {
        await handle.close()
      }
      await rename(temporary, target)
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {})
      throw ioError('write', target, error)
    }
    const before = [...this.#files.values()].find(file => file.path === target)
    if (before && before.id !== manifestId(manifest)) await this.#drop(before.id)
    const old = this.#files.get(manifestId(manifest))
    const file = await this.#note({ manifest, path: null, group, chunks })
    if (old && old.group !== null && old.path !== target) await rm(old.path, { force: true })
    return file
  }

  /** Forgets a file, and removes it where it is the store's. */
  async remove({ id, group, path: file }: StoredFile): Promise<void> {
    await this.#drop(id)
    if (group !== null) await rm(file, { force: true })
  }

  async #drop(id: string): Promise<void> {
    this.#forget(id)
    await rm(this.#noteOf(id), { force: true })
  }

  async #note(note: Note): Promise<StoredFile> {
    const id = manifestId(note.manifest)
    await writeFileAtomic(this.#noteOf(id), [Buffer.from(JSON.stringify(note))])
    return this.#keep(id, note, Date.now())
  }

  /** Notes that a file is in use. */
  async touch(file: StoredFile): Promise<void> {
    file.used = Date.now()
    const now = new Date(file.used)
    await utimes(this.#noteOf(file.id), now, now).catch(() => {})
  }

  async #load(id: string, noteFile: string): Promise<void> {
    try {
      const note = (await readJson(noteFile)) as Note
      const manifest = parseManifest(note.manifest)
      const isKnown = (index: unknown): boolean =>
        Number.isSafeInteger(index) && (index as number) >= 0 && (index as number) < manifest.chunks.length
      const isPlaced = typeof note.path === 'string' ? note.group === null : isGroup(note.group)
      if (!note.chunks.every(isKnown) || !isPlaced || manifestId(manifest) !== id)
        throw new Error(`${noteFile} is damaged`)
      const { mtimeMs } = await stat(noteFile)
      const file = this.#keep(id, { ...note, manifest }, mtimeMs)
      if (!(await isThere(file.path))) await this.remove(file)
    } catch (error) {
      debug((error as Error).message)
      await rm(noteFile, { force: true })
    }
  }

  #keep(id: string, note: Note, used: number): StoredFile {
    this.#forget(id)
    const { manifest, group, chunks } = note
    const file = {
      id,
      manifest,
      path: note.path ?? this.#pathOf(manifest, group!),
      group,
      used,
      chunks: new Set(chunks),
    }
    this.#files.set(id, file)
    this.#place(file)
    return file
  }

  #place(file: StoredFile): void {
    for (const index of file.chunks) this.#places.set(file.manifest.chunks[index]!, { file, index })
  }

  #forget(id: string): void {
    if (!this.#files.delete(id)) return
    this.#places.clear()
    for (const file of this.#files.values()) this.#place(file)
  }

  #noteOf(id: string): string {
    return path.join(this.#folder, `${id}.json`)
  }
}

/** Bytes of a file; undefined where it has none there. */
async function readRange(file: string, begin: number, length: number): Promise<Uint8Array | undefined> {
  let handle: FileHandle | undefined
  try {
    handle = await openFile(file)
    const bytes = new Uint8Array(length)
    await fill(handle, file, bytes, begin)
    return bytes
  } catch (error) {
    return unlessGone(ioError('read', file, error))
  } finally {
    await handle?.close()
  }
}

async function writeAt(handle: FileHandle, bytes: Uint8Array, begin: number): Promise<void> {
  for (let done = 0; done < bytes.byteLength; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.byteLength - done, begin + done)
    done += bytesWritten
  }
}
