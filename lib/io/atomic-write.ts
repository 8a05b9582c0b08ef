// atomic-write.ts: files appear whole or not at all.
import { randomBytes } from 'node:crypto'
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../core/errors.js'

/**
 * Writes `chunks` to a temporary name in the folder of `file`, flushes it to the disk and renames it to `file`. On
 * failure the temporary file is removed and an older `file` stays as it was.
 * @throws SparkError ERR_IO
 */
export async function writeFileAtomic(file: string, chunks: Iterable<Uint8Array>): Promise<void> {
  const temporary = path.join(
    path.dirname(file),
    `.${path.basename(file)}.${randomBytes(6).toString('hex')}.tmp`,
  )
  try {
    const handle = await open(temporary, 'wx')
    try {
      for (const chunk of chunks) await writeAll(handle, chunk)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, file)
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
    await mkdir(folder, { recursive: true })
  } catch (error) {
    throw ioError('write', folder, error)
  }
}

/** What error codes of the system mean. */
const reasons: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full, free some space',
  EDQUOT: 'the disk is full, free some space',
  EACCES: 'no permission',
  EPERM: 'no permission',
  EROFS: 'no permission',
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
