// atomic-write.ts: atomic file writes.
import { randomBytes } from 'node:crypto'
import type { Stats } from 'node:fs'
import { type FileHandle, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { expectAttached } from '../core/checks.js'
import { SparkError } from '../core/errors.js'

/** Names of temporary files; {@link writeFileAtomic} leaves one behind where the process is killed while it writes. */
export const temporaryName = (name: string, unique: string): string => `.${name}.${unique}.tmp`

/**
 * Writes `chunks` to a temporary name in the folder of `file`, flushes it to the disk and renames it to `file`; where that
 * is a link, to what it links to. A file that is replaced hands on its mode and, where the system lets us, its owner. On
 * failure the temporary file is removed and an older `file` stays as it was.
 * @param mode - permissions of a new file, less those that the umask takes: 0o600 for secrets
 * @throws SparkError ERR_IO, also for anything but an ordinary file, such as /dev/null: the renamed file would replace it;
 * ERR_DISPOSED when memory of a chunk was detached before it was written
 */
export async function writeFileAtomic(
  file: string,
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  mode = 0o666,
): Promise<void> {
  const target = await realpath(file).catch(() => file)
  const found = await stat(target).catch(() => undefined)
  if (found && !found.isFile() && !found.isDirectory()) {
    throw new SparkError('ERR_IO', `could not write ${file}: it is no ordinary file`)
  }
  const unique = randomBytes(6).toString('hex')
  const temporary = path.join(path.dirname(target), temporaryName(path.basename(target), unique))
  try {
    // The new file is private until it has the mode of the file that it replaces.
    const handle = await open(temporary, 'wx', found ? 0o600 : mode)
    try {
      for await (const chunk of chunks) await writeAll(handle, chunk)
      if (found) await takeOver(handle, found)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, target)
    await syncFolder(path.dirname(target))
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw ioError('write', file, error)
  }
}

/** Gives a new file the owner and the mode of the one that it replaces. */
async function takeOver(handle: FileHandle, { uid, gid, mode }: Stats): Promise<void> {
  const own = await handle.stat()
  const isGiven = async (user: number): Promise<boolean> =>
    handle.chown(user, gid).then(
      () => true,
      () => false,
    )
  const keepsGroup =
    own.gid === gid && own.uid === uid ? true : (await isGiven(uid)) || (await isGiven(own.uid))
  // Who is in our group instead may do what everybody may.
  const groupBits = keepsGroup ? mode & 0o070 : mode & ((mode & 0o007) << 3)
  await handle.chmod((mode & 0o707) | groupBits)
}

/** Flushes the entries of a folder, without which a file that is new, or has a new name, may be gone after a power cut. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return
  // A folder that may be written but not read cannot be opened; some file systems do not flush folders.
  const handle = await open(folder, 'r').catch(() => undefined)
  await handle
    ?.sync()
    .catch(error => {
      if (error.code !== 'EINVAL' && error.code !== 'ENOTSUP') throw error
    })
    .finally(() => handle.close())
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
  const parent = path.dirname(folder)
  try {
    await mkdir(folder)
  } catch (error) {
    if (await isFolder()) return
    if (codeOf(error) !== 'ENOENT' || parent === folder) throw error
    await makeFolders(parent)
    // Somebody else may have made it meanwhile.
    await mkdir(folder).catch(async again => {
      if (!(await isFolder())) throw again
    })
  }
  await syncFolder(parent)
}

/** Explanations of system error codes. */
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

const pieceBytes = 1 << 22

/** Writes copies of pieces: the system would read what a caller transfers meanwhile, or what lies there then. */
async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  expectAttached('what is written', bytes)
  const { byteLength } = bytes
  const buffer = new Uint8Array(Math.min(pieceBytes, byteLength))
  for (let start = 0; start < byteLength; start += buffer.length) {
    expectAttached('what is written', bytes)
    const piece = buffer.subarray(0, byteLength - start)
    piece.set(bytes.subarray(start, start + piece.length))
    for (let done = 0; done < piece.length; ) {
      const { bytesWritten } = await handle.write(piece, done)
      if (bytesWritten === 0)
        throw new SparkError('ERR_IO', `the system took none of ${byteLength - start - done} bytes`)
      done += bytesWritten
    }
  }
}
