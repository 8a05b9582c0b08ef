// home.ts: the folder of this node's secrets and records, and files in it that nobody else may read.
import { chmod, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { getConfig } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { ioError, makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { lockFolder, whenFree } from '../../io/lock.js'
import { isThere, readJson } from '../../io/read-file.js'

/**
 * The folder of this node: DGX_SPARK_CLUSTER_HOME, or `dgx-spark/cluster` in the user's data folder.
 * @throws SparkError ERR_IO for a user without a home
 */
export function clusterHome(): string {
  const { clusterHome: given } = getConfig()
  if (given !== null) return given
  const data = process.env.XDG_DATA_HOME
  if (data && path.isAbsolute(data)) return path.join(data, 'dgx-spark', 'cluster')
  try {
    return path.join(homedir(), '.local', 'share', 'dgx-spark', 'cluster')
  } catch (cause) {
    throw new SparkError('ERR_IO', 'this user has no home folder: set DGX_SPARK_CLUSTER_HOME to a folder', {
      cause,
    })
  }
}

/**
 * Makes a folder that only its owner may look into.
 * @throws SparkError ERR_IO
 */
export async function makeSecretFolder(folder: string): Promise<void> {
  await makeFolder(folder)
  try {
    await chmod(folder, 0o700)
  } catch (error) {
    throw ioError('write', folder, error)
  }
}

/**
 * Replaces a JSON document that only its owner may read. The folder has to be there.
 * @throws SparkError ERR_IO
 */
export async function writeSecret(file: string, value: unknown): Promise<void> {
  await writeFileAtomic(file, [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)], 0o600)
}

/**
 * The content of a JSON document that only its owner may read; undefined when there is none.
 * @throws SparkError ERR_DENIED when others may read it, ERR_FORMAT when it is torn, ERR_IO
 */
export async function readSecret(file: string): Promise<unknown> {
  if (!(await isThere(file))) return undefined
  const { mode } = await stat(file).catch(error => {
    throw ioError('read', file, error)
  })
  if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
    const shown = (mode & 0o777).toString(8)
    throw new SparkError(
      'ERR_DENIED',
      `${file} is a secret that others may read (mode ${shown}): chmod 600 it`,
    )
  }
  return readJson(file)
}

/**
 * Does some work while no other process does any in the folder, and waits for its turn.
 * @throws SparkError ERR_BUSY when another process holds the folder for 10 s, and what `work` throws
 */
export async function withLock<T>(folder: string, work: () => Promise<T>): Promise<T> {
  using _lock = await whenFree(() => lockFolder(folder))
  return await work()
}
