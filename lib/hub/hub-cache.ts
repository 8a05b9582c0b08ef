// hub-cache.ts: the cache of models that all tools of the Hugging Face hub share.
//
// models--owner--name/blobs/<hash> has the content, snapshots/<commit>/<path> links to it, refs/<revision> names a commit.
import { randomBytes } from 'node:crypto'
import { copyFile, link, readdir, rename, rm, stat, symlink } from 'node:fs/promises'
import path from 'node:path'
import { ioError, makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { Lock } from '../io/lock.js'
import { readText } from '../io/read-file.js'
import type { Digest } from './digest.js'
import { type HubFile, isCommit } from './hub-repository.js'
import { hubCacheFolder } from './hub-settings.js'

/** A file of a snapshot. */
export interface CachedFile {
  /** Path in the repository, with `/`. */
  readonly name: string
  readonly bytes: number
}

/** Bytes of a file; undefined where there is none. */
async function sizeOf(file: string): Promise<number | undefined> {
  const found = await stat(file).catch(() => undefined)
  return found?.isFile() ? found.size : undefined
}

/** A repository in the cache. */
export class HubCache {
  /** Of the repository. */
  readonly folder: string
  readonly #locks: string

  constructor(repository: string, cache = hubCacheFolder()) {
    const name = `models--${repository.replaceAll('/', '--')}`
    this.folder = path.join(cache, name)
    this.#locks = path.join(cache, '.locks', name)
  }

  /** The folder of a commit. */
  snapshot(commit: string): string {
    return path.join(this.folder, 'snapshots', commit)
  }

  /** Where a file of a commit is, or would be. */
  pathOf(commit: string, name: string): string {
    return path.join(this.snapshot(commit), ...name.split('/'))
  }

  /** Where content is, or would be. */
  blob({ hex }: Digest): string {
    return path.join(this.folder, 'blobs', hex)
  }

  /** Where content is until it is complete. Other tools have names of their own for each process. */
  partial(digest: Digest): string {
    return `${this.blob(digest)}.dgxspark.incomplete`
  }

  /** Makes the folders that a download needs. */
  async prepare(): Promise<void> {
    for (const folder of [path.join(this.folder, 'blobs'), this.#locks]) await makeFolder(folder)
  }

  /**
   * Takes the lock of content. Other tools lock `<hash>.lock`, and leave it.
   * @throws SparkError ERR_BUSY, ERR_IO
   */
  lock(digest: Digest): Promise<Lock> {
    return Lock.take(this.#locks, `dgx-spark.${digest.hex}`, this.blob(digest))
  }

  /** The commit that a revision was when it was pulled last; undefined for one that never was. */
  async commitOf(revision: string): Promise<string | undefined> {
    const ref = await readText(path.join(this.folder, 'refs', ...revision.split('/'))).catch(() => '')
    if (isCommit(ref.trim())) return ref.trim()
    const isSnapshot = isCommit(revision) && (await stat(this.snapshot(revision)).catch(() => undefined))
    return isSnapshot ? revision : undefined
  }

  /** Notes the commit of a revision. */
  async setCommit(revision: string, commit: string): Promise<void> {
    if (revision === commit || (await this.commitOf(revision)) === commit) return
    const file = path.join(this.folder, 'refs', ...revision.split('/'))
    await makeFolder(path.dirname(file))
    await writeFileAtomic(file, [Buffer.from(commit)])
  }

  /** The files of a commit that are there. */
  async list(commit: string): Promise<CachedFile[]> {
    const folder = this.snapshot(commit)
    const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])
    const files: CachedFile[] = []
    for (const entry of entries) {
      const file = path.join(entry.parentPath, entry.name)
      const bytes = await sizeOf(file)
      if (bytes !== undefined)
        files.push({ name: path.relative(folder, file).replaceAll(path.sep, '/'), bytes })
    }
    return files
  }

  /** Whether a file of a commit is there, with its name or only its content. */
  async has(commit: string, { name, bytes, digest }: HubFile): Promise<boolean> {
    const isNamed = (await sizeOf(this.pathOf(commit, name))) === bytes
    return isNamed || (await sizeOf(this.blob(digest))) === bytes
  }

  /** Removes content of another size than it should have: of a disk that was full, a copy that was cut. */
  async dropDamaged({ bytes, digest }: HubFile): Promise<void> {
    const size = await sizeOf(this.blob(digest))
    if (size !== undefined && size !== bytes) await rm(this.blob(digest), { force: true })
  }

  /**
   * Gives content its name in a commit, unless it has it.
   * @throws SparkError ERR_IO
   */
  async name(commit: string, { name, bytes, digest }: HubFile): Promise<void> {
    const file = this.pathOf(commit, name)
    if ((await sizeOf(file)) === bytes) return
    const folder = path.dirname(file)
    const blob = this.blob(digest)
    await makeFolder(folder)
    const temporary = path.join(folder, `.${digest.hex}.${randomBytes(4).toString('hex')}.tmp`)
    try {
      // Windows lets few users make links; some disks have no links at all.
      await symlink(path.relative(folder, blob), temporary)
        .catch(() => link(blob, temporary))
        .catch(() => copyFile(blob, temporary))
      await rename(temporary, file)
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {})
      throw ioError('write', file, error)
    }
  }
}
