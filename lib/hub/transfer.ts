// transfer.ts: one file from a server to the disk: once for all processes, resumed, retried, verified.
import { stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { SparkError } from '../core/errors.js'
import type { Lock } from '../io/lock.js'
import { Part, type PartOptions } from './part.js'
import { failed } from './request.js'
import { Interrupted, requestOk, retry } from './retry.js'

/** How far a download is. */
export interface DownloadProgress {
  /** Bytes that are there. */
  readonly bytes: number
  /** Bytes of the file; null where the server does not say. */
  readonly total: number | null
}

/** A file to transfer; its folders are there. */
export interface Transfer extends PartOptions {
  readonly url: URL
  /** Takes the lock of the file, or throws ERR_BUSY. */
  readonly lock: () => Promise<Lock>
  /** Attempts without progress. */
  readonly attempts: number
  /** For the origin of the URL. */
  readonly token?: string | undefined
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined
}

/** Attempts without progress, unless a caller says otherwise. */
export const usualAttempts = 5

/** Milliseconds between two looks at a lock. */
const pollEvery = 200

/**
 * Transfers a file, unless it is there.
 * @returns whether it was transferred by this call
 * @throws SparkError ERR_IO, ERR_FORMAT; the reason of the signal
 */
export async function transfer(job: Transfer): Promise<boolean> {
  const { target, signal, attempts } = job
  using lock = await takeLock(job)
  if (lock === undefined || (await isThere(target))) return false
  const part = new Part(job)
  let isPieced = (await part.size()) > 0
  for (let isLast = false; ; isLast = true) {
    let requests = 0
    const next = (): Promise<void> => {
      requests++
      return attempt(job, part)
    }
    await retry(next, { attempts, signal, progress: () => part.size() })
    isPieced ||= requests > 1
    try {
      await part.finish()
      return true
    } catch (error) {
      // Pieces may be of different files, where the server has another one by now.
      const isOther = error instanceof SparkError && error.code === 'ERR_FORMAT'
      if (isLast || !isPieced || !isOther) throw error
    }
  }
}

const isThere = async (file: string): Promise<boolean> =>
  (await stat(file).catch(() => undefined)) !== undefined

/** The lock of a file; undefined once another process has made it. */
async function takeLock({ target, lock, signal }: Transfer): Promise<Lock | undefined> {
  for (;;) {
    signal?.throwIfAborted()
    try {
      return await lock()
    } catch (error) {
      if (!(error instanceof SparkError && error.code === 'ERR_BUSY')) throw error
    }
    await sleep(pollEvery)
    if (await isThere(target)) return undefined
  }
}

/** One request, which goes on where the last one was interrupted. */
async function attempt(job: Transfer, part: Part): Promise<void> {
  const { url, token, signal, size } = job
  const there = await part.resume(String(url))
  if (there !== undefined && there.bytes === size) return
  const headers: Record<string, string> = { 'accept-encoding': 'identity' }
  if (there) headers.range = `bytes=${there.bytes}-`
  if (there?.version) headers['if-range'] = there.version
  const response = await requestOk(url, { signal, headers, token, accepted: [416] })
  const [, from, whole] =
    /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '') ?? []
  const isRest = there !== undefined && response.status === 206 && Number(from) === there.bytes
  if (response.status === 416 || (response.status === 206 && !isRest)) {
    await response.body?.cancel()
    const isComplete = response.status === 416 && there !== undefined && Number(whole) === there.bytes
    if (isComplete) return
    await part.discard()
    throw new Interrupted(failed(url, `the server has no range from byte ${there?.bytes} on`))
  }
  const length = response.headers.get('content-length')
  const start = isRest ? there.bytes : 0
  const total = length === null ? null : start + Number(length)
  if (size !== undefined && total !== null && total !== size) {
    await response.body?.cancel()
    await part.discard()
    throw failed(url, `it has ${total} bytes, but ${size} were announced`)
  }
  if (!isRest) await part.begin({ url: String(url), version: versionOf(response.headers) })
  await part.append(response, { ...job, start, total: total ?? size ?? null })
}

const versionOf = (headers: Headers): string =>
  headers.get('etag')?.replace(/^W\/.*/, '') || headers.get('last-modified') || ''
