// atomic-write.ts: files appear whole or not at all.
import { randomBytes } from 'node:crypto'
import { type FileHandle, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../core/errors.js'

/** Names of temporary files; {@link writeFileAtomic} leaves one behind where the process is killed while it writes. */
export const temporaryName = (name: string, unique: string): string => `.${name}.${unique}.tmp`

/**
 * Writes `chunks` to a temporary name in the folder of `file`, flushes it to the disk and renames it to `file`; where that
 * is a link, to what it links to. On failure the temporary file is removed and an older `file` stays as it was.
 * @throws SparkError ERR_IO, also for what is no ordinary file, such as /dev/null: the renamed file would replace it
 */
export async function writeFileAtomic(file: string, chunks: Iterable<Uint8Array>): Promise<void> {
  const target = await realpath(file).catch(() => file)
  const found = await stat(target).catch(() => undefined)
  if (found && !found.isFile() && !found.isDirectory()) {
    throw new SparkError('ERR_IO', `could not write ${file}: it is no ordinary file`)
  }
  const unique = randomBytes(6).toString('hex')
  const temporary = path.join(path.dirname(target), temporaryName(path.basename(target), unique))
  try {
    const handle = await open(temporary, 'wx')
    try {
      for (const chunk of chunks) await writeAll(handle, chunk)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, target)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw ioError('write', file, error)
  }
}

/**
 * Makes a folder and those that it is in, unless they are there.
 * @throws SparkError ERR_IO
 */
export async function makeFolder(folder: string): Promise<void> {
  try {
    await makeFolders(path.resolve(folder))
  } catch (error) {
    throw ioError('write', folder, error)
  }
}

/** mkdir's own recursion never ends where the system says ENOENT in a folder that is there, as /proc does. */
async function makeFolders(folder: string): Promise<void> {
  const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code
  const isFolder = async (): Promise<boolean> =>
    (await stat(folder).catch(() => undefined))?.isDirectory() ?? false
  try {
    await mkdir(folder)
  } catch (error) {
    if (await isFolder()) return
    const parent = path.dirname(folder)
    if (codeOf(error) !== 'ENOENT' || parent === folder) throw error
    await makeFolders(parent)
    // Somebody else may have made it meanwhile.
    await mkdir(folder).catch(async again => {
      if (!(await isFolder())) throw again
    })
  }
}

/** What error codes of the system mean. */
const reasons: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full, free some space',
  EDQUOT: 'the disk is full, free some space',
  EACCES: 'no permission',
  EPERM: 'no permission',
  EROFS: 'the file system is read-only',
  EFBIG: 'the file is larger than this process may write (ulimit -f)',
  ENOENT: 'no such file or folder',
  EISDIR: 'it is a folder',
  EEXIST: 'it is a file, not a folder',
  ENOTDIR: 'a part of the path is a file',
}

/** An ERR_IO that says which file, what the system answered, and what to do about the usual causes. */
export function ioError(action: 'read' | 'write', file: string, error: unknown): SparkError {
  if (error instanceof SparkError) return error
  const { code, message } = error as NodeJS.ErrnoException
  const reason = reasons[code ?? ''] ?? message
  return new SparkError('ERR_IO', `could not ${action} ${file}: ${reason}`, { cause: error })
}

/** One write call takes at most 2^31 − 1 bytes. */
const maxChunk = 1 << 30

async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let start = 0; start < bytes.byteLength; ) {
    const { bytesWritten } = await handle.write(bytes, start, Math.min(maxChunk, bytes.byteLength - start))
    start += bytesWritten
  }
}
