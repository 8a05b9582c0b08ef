// shared-models.ts: models of jobs that come with them: by the hash of what they are, fetched from whichever nodes have them.
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { Model } from '../../model/model.js'
import type { ModelOptions } from '../../model/model-options.js'
import { checkParts } from '../stages/questions.js'
import { fetchStage, type StagedModel } from '../stages/staged-model.js'
import { type BlobReference, fetchBlob } from '../weights/fetch-chunks.js'
import { hashOf, isHash } from '../weights/manifest.js'
import type { JobBlobs } from './blobs.js'
import { type JobValue, pack, unpack } from './pack.js'

/** Models that stay open when no job uses them. */
const maxIdle = 3

/** A model as jobs name it: its files by their hashes, and how it is opened. */
export type SharedModel = BlobReference & {
  readonly backend: 'auto' | 'cpu' | 'js' | 'cuda'
  readonly precision: string
}

/** Lets other nodes fetch a model from the store of this one. @throws SparkError ERR_IO; ERR_RANGE for one of too many chunks */
export async function shareModel(model: StagedModel, { store }: JobBlobs): Promise<BlobReference> {
  const { files, names } = model.partsOf([model.graph], [], 0, new Map())
  const manifests = files.map(({ manifest }) => manifest)
  const bytes = pack({ files: manifests, names } as unknown as JobValue)
  const hash = await hashOf(bytes)
  await store.write(hash, bytes)
  return { hash, bytes: bytes.length }
}

interface Opened {
  readonly model: Promise<Model>
  readonly folder: string
  users: number
}

/** What a {@link SharedModels} needs of its node. */
export interface SharedModelsOptions {
  /** Where models have their files. */
  readonly folder: string
  readonly blobs: JobBlobs
  /** Of each model. Default: one for each core. */
  readonly threads?: number
  /** Hears of bytes that were fetched, and from whom. */
  readonly onFetched?: (from: string, bytes: number) => void
}

/** Models that jobs brought to this node. The least recently used ones are closed. */
export class SharedModels {
  readonly #options: SharedModelsOptions
  /** By what they are, the least recently used first. */
  readonly #opened = new Map<string, Opened>()
  #folders = 0

  constructor(options: SharedModelsOptions) {
    this.#options = options
  }

  /** Does something with a model, which is open meanwhile. @throws SparkError as `Model.load`; ERR_IO where nobody has its files */
  async use<T>(value: JobValue, signal: AbortSignal, act: (model: Model) => Promise<T>): Promise<T> {
    const shared = checkShared(value)
    const key = `${shared.hash} ${shared.backend} ${shared.precision}`
    const opened = this.#opened.get(key) ?? this.#open(shared, signal)
    this.#opened.delete(key)
    this.#opened.set(key, opened)
    opened.users++
    try {
      return await act(await opened.model)
    } catch (error) {
      await opened.model.catch(() => this.#opened.delete(key))
      throw error
    } finally {
      opened.users--
      await this.#closeIdle(maxIdle)
    }
  }

  /** Closes all that no job uses. */
  async close(): Promise<void> {
    await this.#closeIdle(0)
  }

  async #closeIdle(most: number): Promise<void> {
    const idle = [...this.#opened].filter(([, { users }]) => users === 0)
    for (const [key, { model, folder }] of idle.slice(0, Math.max(0, idle.length - most))) {
      this.#opened.delete(key)
      await model.then(
        each => each.dispose(),
        () => {},
      )
      await rm(folder, { recursive: true, force: true })
    }
  }

  #open(shared: SharedModel, signal: AbortSignal): Opened {
    const folder = path.join(this.#options.folder, `${process.pid}-${this.#folders++}`)
    return { model: this.#load(shared, folder, signal), folder, users: 0 }
  }

  async #load(shared: SharedModel, folder: string, signal: AbortSignal): Promise<Model> {
    const { blobs, threads, onFetched } = this.#options
    const { store } = blobs
    const sources = blobs.sources()
    const { hash, bytes, backend, precision } = shared
    const described = unpack(await fetchBlob({ hash, bytes }, sources, store, { signal }))
    const { files, names } = described as unknown as { files: { bytes: number }[]; names: unknown }
    const whole = Array.isArray(files)
      ? files.map(manifest => ({ manifest, ranges: [{ begin: 0, end: manifest.bytes }] }))
      : files
    const parts = checkParts({ files: whole, ends: [], index: 0, states: [], names })
    const { graph } = await fetchStage(parts, sources, store, folder, {
      signal,
      ...(onFetched && { onFetched }),
    })
    const options = { backend, precision, ...(threads !== undefined && { threads }) }
    return Model.fromGraph(graph, options as ModelOptions)
  }
}

function checkShared(value: JobValue): SharedModel {
  const { hash, bytes, backend = 'auto', precision = 'fp32' } = (value ?? {}) as Record<string, unknown>
  expectOneOf('params.model.backend', backend, ['auto', 'cpu', 'js', 'cuda'])
  if (!isHash(hash) || !Number.isSafeInteger(bytes) || typeof precision !== 'string')
    throw new SparkError(
      'ERR_ARGUMENT',
      'params.model names no model: give a name, or what shareModel returns',
    )
  return {
    hash: hash as string,
    bytes: bytes as number,
    backend: backend as SharedModel['backend'],
    precision,
  }
}
