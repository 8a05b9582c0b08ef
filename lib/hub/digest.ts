// digest.ts: hashes of the content of files as hubs name it.
import { createHash } from 'node:crypto'
import { open } from 'node:fs/promises'

/** The hash of a file: SHA-256, or that of git, SHA-1 of the length and the content. */
export interface Digest {
  readonly algorithm: 'sha256' | 'git'
  /** Lower-case hexadecimal digits. */
  readonly hex: string
}

/** Names of algorithms for messages. */
export const digestName = { sha256: 'SHA-256', git: 'git hash' } as const

/** The digest that 64 (SHA-256) or 40 (git) lower-case hexadecimal digits are; undefined for anything else. */
export function parseDigest(text: unknown): Digest | undefined {
  if (typeof text !== 'string' || !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(text)) return undefined
  return { algorithm: text.length === 64 ? 'sha256' : 'git', hex: text }
}

/** The hash of a file in hexadecimal digits. */
export async function digestOf(file: string, algorithm: Digest['algorithm']): Promise<string> {
  const handle = await open(file)
  try {
    const hash = createHash(algorithm === 'git' ? 'sha1' : 'sha256')
    if (algorithm === 'git') hash.update(`blob ${(await handle.stat()).size}\0`)
    for await (const piece of handle.createReadStream({ highWaterMark: 1 << 20, autoClose: false }))
      hash.update(piece as Uint8Array)
    return hash.digest('hex')
  } finally {
    await handle.close()
  }
}
