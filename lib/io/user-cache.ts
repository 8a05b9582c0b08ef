// user-cache.ts: small JSON documents in the user's cache folder. What cannot be read is not there, and what cannot be
// written is done without.
import { homedir } from 'node:os'
import path from 'node:path'
import { debug } from '../core/log.js'
import { makeFolder, writeFileAtomic } from './atomic-write.js'
import { readText } from './read-file.js'

/** The path of a document, or null for a user without a home. */
export function cacheFile(name: string): string | null {
  const folder = process.env.XDG_CACHE_HOME
  if (folder && path.isAbsolute(folder)) return path.join(folder, 'dgx-spark', name)
  try {
    return path.join(homedir(), '.cache', 'dgx-spark', name)
  } catch {
    return null
  }
}

/** The content of a document; undefined when it is missing or damaged. */
export async function readCached(name: string): Promise<unknown> {
  const file = cacheFile(name)
  if (!file) return undefined
  try {
    return JSON.parse(await readText(file))
  } catch (error) {
    debug(`${file} is not used: ${(error as Error).message}`)
    return undefined
  }
}

/** Replaces a document. @returns whether it could be written */
export async function writeCached(name: string, value: unknown): Promise<boolean> {
  const file = cacheFile(name)
  if (!file) return false
  try {
    await makeFolder(path.dirname(file))
    await writeFileAtomic(file, [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)])
    return true
  } catch (error) {
    debug((error as Error).message)
    return false
  }
}
