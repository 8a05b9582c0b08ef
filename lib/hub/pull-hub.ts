// pull-hub.ts: models of the Hugging Face hub, in the cache that its tools share.
import { SparkError } from '../core/errors.js'
import { debug } from '../core/log.js'
import { readText } from '../io/read-file.js'
import { expectSpace } from './disk-space.js'
import { fetchAll } from './fetch-all.js'
import { HubCache } from './hub-cache.js'
import { fileAddress, type HubFile, type HubListing, listHub } from './hub-repository.js'
import { isHubOffline } from './hub-settings.js'
import { expectRevision, type HubName, isSafePath } from './model-name.js'
import type { PulledModel, PullOptions } from './pull-options.js'
import { StatusError } from './request.js'
import { type Selection, selectFiles } from './select-files.js'
import { transfer, usualAttempts } from './transfer.js'

/** What is asked of the hub. */
export interface HubRequestName {
  /** For messages: hf:owner/name. */
  readonly label: string
  readonly revision: string
}

/** The name with the revision that is asked for. */
export function hubRequest(name: HubName, options: PullOptions): HubRequestName {
  const label = `hf:${name.repository}`
  const { revision = name.revision ?? 'main' } = options
  if (options.revision !== undefined && name.revision !== undefined && options.revision !== name.revision)
    throw new SparkError(
      'ERR_ARGUMENT',
      `${label}@${name.revision}: options.revision is ${options.revision}; give one of them`,
    )
  expectRevision(label, revision)
  return { label, revision }
}

/**
 * Pulls a model of the hub.
 * @throws SparkError as {@link pullModel}
 */
export async function pullHub(name: HubName, options: PullOptions): Promise<PulledModel> {
  const { repository, file } = name
  const { label, revision } = hubRequest(name, options)
  const cache = new HubCache(repository)
  if (options.offline ?? isHubOffline()) return cached(cache, revision, file, label)
  let listing: HubListing
  try {
    listing = await listHub(repository, revision, options)
  } catch (error) {
    if (!isUnreachable(error) || (await cache.commitOf(revision)) === undefined) throw error
    debug(`${label}: the copy in the cache is used: ${(error as Error).message}`)
    return cached(cache, revision, file, label)
  }
  const { commit, files } = listing
  const selection = selectFiles(files, file, label)
  const downloadedBytes = await fetchSelection(cache, { repository, commit, selection }, options)
  await cache.setCommit(revision, commit)
  return result(cache, commit, selection, { downloadedBytes, isOffline: false })
}

/** Whether the hub does not answer, or has a fault. */
const isUnreachable = (error: unknown): boolean =>
  error instanceof SparkError &&
  (error instanceof StatusError ? error.status >= 500 : error.code === 'ERR_IO' && error.cause !== undefined)

interface Wanted {
  readonly repository: string
  readonly commit: string
  readonly selection: Selection<HubFile>
}

/** Downloads what is not there. @returns bytes that were downloaded */
async function fetchSelection(
  cache: HubCache,
  { repository, commit, selection: { files } }: Wanted,
  options: PullOptions,
): Promise<number> {
  const { token, signal, onPlan, onProgress } = options
  const plan: (HubFile & { isThere: boolean })[] = []
  for (const file of files) {
    if (!isSafePath(file.name))
      throw new SparkError(
        'ERR_FORMAT',
        `hf:${repository} has a file that no folder can have: '${file.name}'`,
      )
    plan.push({ ...file, isThere: await cache.has(commit, file) })
  }
  onPlan?.({ files: plan.map(({ name, bytes, isThere }) => ({ name, bytes, isThere })) })
  const missing = plan.filter(({ isThere }) => !isThere)
  if (missing.length === 0) return 0
  await cache.prepare()
  const arrived = new Map<string, number>()
  for (const { name, digest } of missing) arrived.set(name, await cache.arrived(digest))
  const sum = (values: Iterable<number>): number => [...values].reduce((a, b) => a + b, 0)
  const total = sum(plan.map(({ bytes }) => bytes))
  const before = total - sum(missing.map(({ bytes }) => bytes))
  const needed = total - before - sum(arrived.values())
  await expectSpace(cache.folder, needed, 'set HF_HUB_CACHE to a folder of another disk')
  let downloaded = 0
  await fetchAll(missing, signal, async ({ name, bytes, digest }, signal) => {
    const start = arrived.get(name)!
    const isNew = await transfer({
      url: fileAddress(repository, commit, name),
      target: cache.blob(digest),
      file: cache.partial(digest),
      digest,
      isNamedByDigest: true,
      size: bytes,
      lock: () => cache.lock(digest),
      attempts: usualAttempts,
      token,
      signal,
      onProgress(progress) {
        arrived.set(name, progress.bytes)
        onProgress?.({ bytes: before + sum(arrived.values()), total, file: name })
      },
    })
    if (isNew) downloaded += bytes - start
    await cache.name(commit, name, digest)
  })
  return downloaded
}

/** A model that is in the cache. */
async function cached(
  cache: HubCache,
  revision: string,
  file: string | undefined,
  label: string,
): Promise<PulledModel> {
  const commit = await cache.commitOf(revision)
  if (commit === undefined)
    throw new SparkError(
      'ERR_IO',
      `${label}@${revision} is not in the cache of the hub, and no request was made (offline): pull it first`,
    )
  const selection = selectFiles(await cache.list(commit), file, `${label} in the cache`)
  await expectShards(cache, commit, selection, label)
  return result(cache, commit, selection, { downloadedBytes: 0, isOffline: true })
}

/** @throws SparkError ERR_IO when the index of a folder names files that are not there */
async function expectShards(
  cache: HubCache,
  commit: string,
  { format, files }: Selection<{ readonly name: string }>,
  label: string,
): Promise<void> {
  const index = files.find(({ name }) => name.endsWith('.safetensors.index.json'))
  if (format !== 'safetensors' || !index) return
  const text = await readText(cache.pathOf(commit, index.name))
  let shards: unknown[] = []
  try {
    shards = Object.values(JSON.parse(text).weight_map)
  } catch {
    // Who opens the model says what is wrong with its index.
  }
  const there = new Set<unknown>(files.map(({ name }) => name))
  const missing = [...new Set(shards)].filter(shard => !there.has(shard))
  if (missing.length === 0) return
  throw new SparkError(
    'ERR_IO',
    `${label}: the cache lacks ${missing.slice(0, 10).join(', ')}, and no request was made: pull it first`,
  )
}

function result(
  cache: HubCache,
  commit: string,
  { format, files, entry }: Selection<{ readonly name: string; readonly bytes: number }>,
  rest: Pick<PulledModel, 'downloadedBytes' | 'isOffline'>,
): PulledModel {
  return {
    path: entry === '' ? cache.snapshot(commit) : cache.pathOf(commit, entry),
    format,
    files: files.map(({ name, bytes }) => ({ name, path: cache.pathOf(commit, name), bytes })),
    commit,
    ...rest,
  }
}
