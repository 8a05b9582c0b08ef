// read-file.ts: reading whole files, or ranges of them.
import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { SparkError } from '../core/errors.js'
import { ioError } from './atomic-write.js'

/** O_NONBLOCK: opening a pipe without a writer returns at once, so it can be rejected, instead of blocking. */
export const readFlags = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)

/**
 * Opens a file for reading.
 * @throws SparkError ERR_IO, also for anything but an ordinary file, such as a pipe, which has no size
 */
export async function openFile(file: string): Promise<FileHandle> {
  let handle: FileHandle | undefined
  try {
    handle = await open(file, readFlags)
    const found = await handle.stat()
    if (found.isFile()) return handle
    const reason = found.isDirectory() ? 'it is a folder' : 'it is no ordinary file'
    throw new SparkError('ERR_IO', `could not read ${file}: ${reason}`)
  } catch (error) {
    await handle?.close()
    throw ioError('read', file, error)
  }
}

/** One read call takes at most 2^31 − 1 bytes. */
const maxChunk = 1 << 30

/**
 * Reads bytes of a file from a place on.
 * @throws SparkError ERR_FORMAT when it has not as many
 */
export async function fill(
  handle: FileHandle,
  file: string,
  bytes: Uint8Array,
  begin: number,
): Promise<void> {
  for (let done = 0; done < bytes.byteLength; ) {
    const length = Math.min(maxChunk, bytes.byteLength - done)
    const { bytesRead } = await handle.read(bytes, done, length, begin + done)
    if (bytesRead === 0)
      throw new SparkError('ERR_FORMAT', `${file}: the file became shorter while it was read`)
    done += bytesRead
  }
}

/**
 * The bytes of a file.
 * @throws SparkError as {@link openFile}, ERR_FORMAT when the file changes meanwhile
 */
export async function readBytes(file: string): Promise<Uint8Array> {
  const handle = await openFile(file)
  try {
    const bytes = new Uint8Array((await handle.stat()).size)
    await fill(handle, file, bytes, 0)
    return bytes
  } catch (error) {
    throw ioError('read', file, error)
  } finally {
    await handle.close()
  }
}

/**
 * The text of a file in UTF-8.
 * @throws SparkError as {@link readBytes}
 */
export async function readText(file: string): Promise<string> {
  const { buffer, byteOffset, byteLength } = await readBytes(file)
  return Buffer.from(buffer, byteOffset, byteLength).toString('utf8')
}

/**
 * The parsed JSON of a file.
 * @throws SparkError as {@link readBytes}, ERR_FORMAT when it is no JSON
 */
export async function readJson(file: string): Promise<unknown> {
  const text = await readText(file)
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new SparkError('ERR_FORMAT', `${file} is no JSON: ${(cause as Error).message}`, { cause })
  }
}

/** Whether there is something at a path. */
export const isThere = (file: string): Promise<boolean> =>
  stat(file).then(
    () => true,
    () => false,
  )
