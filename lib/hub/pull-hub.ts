// pull-hub.ts: models of the Hugging Face hub, in the cache that its tools share.
import { SparkError } from '../core/errors.js'
import { debug } from '../core/log.js'
import { readText } from '../io/read-file.js'
import { type Content, fetchContent } from './fetch-content.js'
import { HubCache } from './hub-cache.js'
import { fileAddress, type HubFile, type HubListing, listHub } from './hub-repository.js'
import { isHubOffline } from './hub-settings.js'
import { expectRevision, type HubName, isSafePath } from './model-name.js'
import type { PlannedFile, PulledModel, PullOptions } from './pull-options.js'
import { isUnreachable } from './request.js'
import { type Selection, selectFiles } from './select-files.js'

/** What is asked of the hub. */
interface HubQuery {
  /** For messages: hf:owner/name. */
  readonly label: string
  readonly revision: string
}

/** The name with the revision that is asked for. */
function hubQuery(name: HubName, options: PullOptions): HubQuery {
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
 * The files of a repository of the hub; offline those in the cache.
 * @throws SparkError ERR_ARGUMENT, ERR_IO, ERR_FORMAT; the reason of the signal
 */
export async function listHubFiles(name: HubName, options: PullOptions): Promise<PlannedFile[]> {
  const { label, revision } = hubQuery(name, options)
  const cache = new HubCache(name.repository)
  if (options.offline ?? isHubOffline()) {
    const files = await cache.list(await cachedCommit(cache, revision, label))
    return files.map(file => ({ ...file, isThere: true }))
  }
  const { commit, files } = await listHub(name.repository, revision, options)
  const listed: PlannedFile[] = []
  for (const file of files)
    listed.push({
      name: file.name,
      bytes: file.bytes,
      isThere: isSafePath(file.name) && (await cache.has(commit, file)),
    })
  return listed
}

/**
 * Pulls a model of the hub.
 * @throws SparkError as {@link pullModel}
 */
export async function pullHub(name: HubName, options: PullOptions): Promise<PulledModel> {
  const { repository, file } = name
  const { label, revision } = hubQuery(name, options)
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
  if (!options.dryRun) await cache.setCommit(revision, commit)
  return result(cache, commit, selection, { downloadedBytes, isOffline: false })
}

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
  const contents: Content[] = []
  for (const file of files) {
    const { name, digest } = file
    if (!isSafePath(name))
      throw new SparkError('ERR_FORMAT', `hf:${repository} has a file that no folder can have: '${name}'`)
    contents.push({
      ...file,
      isThere: await cache.has(commit, file),
      target: cache.blob(digest),
      file: cache.partial(digest),
      lock: () => cache.lock(digest),
      async fetch(run) {
        await cache.dropDamaged(file)
        return run(fileAddress(repository, commit, name), options.token)
      },
      onThere: () => cache.name(commit, file),
    })
  }
  const remedy = 'set HF_HUB_CACHE to a folder of another disk'
  return fetchContent(contents, { folder: cache.folder, remedy, prepare: () => cache.prepare() }, options)
}

/** @throws SparkError ERR_IO for a revision that was never pulled */
async function cachedCommit(cache: HubCache, revision: string, label: string): Promise<string> {
  const commit = await cache.commitOf(revision)
  if (commit !== undefined) return commit
  throw new SparkError(
    'ERR_IO',
    `${label}@${revision} is not in the cache of the hub, and no request was made (offline): pull it first`,
  )
}

/** A model that is in the cache. */
async function cached(
  cache: HubCache,
  revision: string,
  file: string | undefined,
  label: string,
): Promise<PulledModel> {
  const commit = await cachedCommit(cache, revision, label)
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
