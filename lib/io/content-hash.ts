// content-hash.ts: hashes of the content of files, which are remembered for files that have not changed.
import { createHash } from 'node:crypto'
import type { BigIntStats } from 'node:fs'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import type { Pacer } from '../core/paced.js'
import { makeFolder, writeFileAtomic } from './atomic-write.js'
import { KeptFile } from './kept-file.js'
import { readText } from './read-file.js'

/** Milliseconds in which a file may change without another time of change. */
const clockTick = 2000

/** What changes with a file; undefined for one that has changed just now, and where there is none. */
export async function fileIdentity(file: string): Promise<string | undefined> {
  let found: BigIntStats
  try {
    found = await stat(file, { bigint: true })
  } catch {
    return undefined // reading it says why
  }
  const { dev, ino, size, mtimeNs, ctimeNs, ctimeMs } = found
  if (Date.now() - Number(ctimeMs) < clockTick) return undefined
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
}

/** Bytes that are hashed between two turns of the event loop. */
const pieceBytes = 2 ** 22

/**
 * The SHA-256 of a file, in hexadecimal digits.
 * @param identity - what {@link fileIdentity} says of it
 * @param folder - where hashes are remembered
 * @throws SparkError when the file cannot be read
 */
export async function contentHash(
  file: string,
  identity: string,
  folder: string,
  pacer: Pacer,
): Promise<string> {
  const note = path.join(folder, `${digest(identity)}.sha256`)
  const known = await readText(note).catch(() => '')
  if (/^[0-9a-f]{64}$/.test(known)) return known
  const kept = await KeptFile.open(file)
  const hash = createHash('sha256')
  for (let at = 0; at < kept.byteLength; at += pieceBytes) {
    hash.update(await kept.load(at, Math.min(pieceBytes, kept.byteLength - at)))
    await pacer.pause()
  }
  const found = hash.digest('hex')
  await makeFolder(folder)
  await writeFileAtomic(note, [Buffer.from(found)])
  return found
}

/** The SHA-256 of a text, in hexadecimal digits. */
export const digest = (text: string): string => createHash('sha256').update(text).digest('hex')
