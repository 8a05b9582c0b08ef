// disk-space.ts: whether files fit.
import { statfs } from 'node:fs/promises'
import { SparkError } from '../core/errors.js'

/**
 * Returns when a folder has space for bytes, or its disk does not say.
 * @param remedy - what else to do about a lack of space
 * @throws SparkError ERR_IO
 */
export async function expectSpace(folder: string, bytes: number, remedy: string): Promise<void> {
  if (bytes <= 0) return
  const disk = await statfs(folder).catch(() => undefined)
  if (disk === undefined || disk.blocks === 0) return
  const free = disk.bavail * disk.bsize
  if (free >= bytes) return
  throw new SparkError(
    'ERR_IO',
    `${folder}: ${bytes} bytes are to be downloaded, and the disk has ${free} left: free some space, or ${remedy}`,
  )
}
