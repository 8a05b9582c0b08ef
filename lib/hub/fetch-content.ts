// fetch-content.ts: downloads content that its hash names into a store, several files at a time.

import { stat } from 'node:fs/promises'
import type { Lock } from '../io/lock.js'
import type { Digest } from './digest.js'
import { expectSpace } from './disk-space.js'
import { fetchAll } from './fetch-all.js'
import type { PullOptions } from './pull-options.js'
import { transfer, usualAttempts } from './transfer.js'

/** Downloads content from a URL, with a token for its origin. */
export type Run = (url: URL, token: string | undefined) => Promise<boolean>

/** Content that a model needs. */
export interface Content {
  /** For plans, progress and messages. */
  readonly name: string
  readonly bytes: number
  readonly digest: Digest
  readonly isThere: boolean
  /** Its path in the store. */
  readonly target: string
  /** Its path until it is complete. */
  readonly file: string
  readonly lock: () => Promise<Lock>
  /** Calls `run` with the address. @returns what it returns */
  readonly fetch: (run: Run) => Promise<boolean>
  /** Is called once it is in the store. */
  readonly onThere?: () => Promise<void>
}

/** Where content goes. */
export interface ContentStore {
  readonly folder: string
  /** What to do about a disk that is full. */
  readonly remedy: string
  /** Makes its folders. */
  readonly prepare: () => Promise<void>
}

/**
 * Downloads what is not there.
 * @returns bytes that were downloaded
 * @throws SparkError ERR_IO, ERR_FORMAT; the reason of the signal
 */
export async function fetchContent(
  contents: readonly Content[],
  { folder, remedy, prepare }: ContentStore,
  { signal, dryRun, onPlan, onProgress }: PullOptions,
): Promise<number> {
  onPlan?.({ files: contents.map(({ name, bytes, isThere }) => ({ name, bytes, isThere })) })
  if (dryRun) return 0
  for (const { isThere, onThere } of contents) if (isThere) await onThere?.()
  const missing = contents.filter(({ isThere }) => !isThere)
  if (missing.length === 0) return 0
  await prepare()
  const arrived = new Map<Content, number>()
  for (const each of missing) arrived.set(each, (await stat(each.file).catch(() => undefined))?.size ?? 0)
  const sum = (values: Iterable<number>): number => [...values].reduce((a, b) => a + b, 0)
  const total = sum(contents.map(({ bytes }) => bytes))
  const before = total - sum(missing.map(({ bytes }) => bytes))
  await expectSpace(folder, total - before - sum(arrived.values()), remedy)
  let downloaded = 0
  await fetchAll(missing, signal, async (content, signal) => {
    const { name, bytes, digest, target, file, lock, onThere } = content
    const start = arrived.get(content)!
    const onFile = (progress: { bytes: number }): void => {
      arrived.set(content, progress.bytes)
      onProgress?.({ bytes: before + sum(arrived.values()), total, file: name })
    }
    const isNew = await content.fetch((url, token) =>
      transfer({
        ...{ url, token, target, file, digest, lock, signal },
        size: bytes,
        isNamedByDigest: true,
        attempts: usualAttempts,
        onProgress: onFile,
      }),
    )
    if (isNew) downloaded += bytes - start
    await onThere?.()
  })
  return downloaded
}
