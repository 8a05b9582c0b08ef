// pull-ollama.ts: models of Ollama: read where they are, or pulled into its folder.
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { debug } from '../core/log.js'
import { fetchContent } from './fetch-content.js'
import type { OllamaName } from './model-name.js'
import { MissingModelError, OllamaRegistry } from './ollama-registry.js'
import { type Layer, type Manifest, type OllamaStore, ollamaStores, shownOllamaName } from './ollama-store.js'
import type { PlannedFile, PulledModel, PullOptions } from './pull-options.js'
import { isUnreachable } from './request.js'

/** A model and the folder that has all of it. */
interface Found {
  readonly store: OllamaStore
  readonly manifest: Manifest
}

/**
 * The content of a model of Ollama: of the one on this disk, or of the registry's.
 * @throws SparkError as {@link pullModel}
 */
export async function listOllama(name: OllamaName, options: PullOptions): Promise<PlannedFile[]> {
  let files: readonly PlannedFile[] = []
  await pullOllama(name, {
    ...options,
    dryRun: true,
    onPlan: plan => {
      files = plan.files
    },
  })
  return [...files]
}

/**
 * Pulls a model of Ollama.
 * @throws SparkError as {@link pullModel}
 */
export async function pullOllama(name: OllamaName, options: PullOptions): Promise<PulledModel> {
  const { offline, update, onPlan } = options
  const stores = ollamaStores()
  const local = await findLocal(stores, name)
  const there = (found: Found, isOffline: boolean): PulledModel => {
    onPlan?.({ files: found.manifest.layers.map(layer => planned(layer, true)) })
    return result(name, found, { downloadedBytes: 0, isOffline })
  }
  if (local && (offline || !update)) return there(local, true)
  if (offline)
    throw new SparkError(
      'ERR_IO',
      `${shownOllamaName(name)} is not in ${stores[0]!.folder}, and no request was made (offline)${await near(stores, name)}`,
    )
  const registry = new OllamaRegistry(name, options)
  let manifest: Manifest
  try {
    manifest = await registry.manifest()
  } catch (error) {
    // A model that was made here is in no registry.
    if (local && (isUnreachable(error) || error instanceof MissingModelError)) {
      debug(`${shownOllamaName(name)}: the model on this disk is used: ${(error as Error).message}`)
      return there(local, true)
    }
    if (!(error instanceof MissingModelError)) throw error
    throw new SparkError(error.code, `${error.message}${await near(stores, name)}`, { cause: error })
  }
  modelOf(name, manifest)
  const [store] = stores as [OllamaStore, ...OllamaStore[]]
  for (const other of stores.slice(1))
    if (await other.hasAll(manifest)) return there({ store: other, manifest }, false)
  const downloadedBytes = await fetchLayers(store, manifest, registry, options)
  if (!options.dryRun) await store.write(name, manifest)
  return result(name, { store, manifest }, { downloadedBytes, isOffline: false })
}

async function findLocal(stores: readonly OllamaStore[], name: OllamaName): Promise<Found | undefined> {
  for (const store of stores) {
    const manifest = await store.read(name)
    if (manifest && (await store.hasAll(manifest))) return { store, manifest }
  }
  return undefined
}

/** The end of a message about a model that is not there: the nearest name of one that is. */
async function near(stores: readonly OllamaStore[], name: OllamaName): Promise<string> {
  const names = (await Promise.all(stores.map(store => store.names()))).flat().map(shownOllamaName)
  return didYouMean(shownOllamaName(name), names)
}

const planned = ({ kind, bytes }: Layer, isThere: boolean) => ({ name: kind, bytes, isThere })

/** Downloads what is not there. @returns bytes that were downloaded */
async function fetchLayers(
  store: OllamaStore,
  { layers }: Manifest,
  registry: OllamaRegistry,
  options: PullOptions,
): Promise<number> {
  const plan = await Promise.all(
    layers.map(async layer => ({ ...planned(layer, await store.has(layer)), digest: layer.digest })),
  )
  return fetchContent(
    plan.map(({ name, bytes, isThere, digest }) => ({
      name,
      bytes,
      isThere,
      digest,
      target: store.blob(digest),
      // Ollama removes names that it does not know when it starts, and with them what was interrupted.
      file: `${store.blob(digest)}-partial-dgxspark`,
      lock: () => store.lock(digest),
      fetch: run => registry.authorized(() => run(registry.blob(digest.hex), registry.token)),
    })),
    {
      folder: store.folder,
      remedy: 'set OLLAMA_MODELS to a folder of another disk',
      prepare: () => store.prepare(),
    },
    options,
  )
}

/** @throws SparkError ERR_UNSUPPORTED for a model that is no GGUF file */
function modelOf(name: OllamaName, { layers }: Manifest): Layer {
  const model = layers.find(({ kind }) => kind === 'model')
  if (model) return model
  const kinds = [...new Set(layers.map(({ kind }) => kind))].join(', ')
  throw new SparkError('ERR_UNSUPPORTED', `${shownOllamaName(name)} has no GGUF file, but ${kinds}`)
}

function result(
  name: OllamaName,
  { store, manifest }: Found,
  rest: Pick<PulledModel, 'downloadedBytes' | 'isOffline'>,
): PulledModel {
  return {
    path: store.blob(modelOf(name, manifest).digest),
    format: 'gguf',
    files: manifest.layers.map(({ kind, digest, bytes }) => ({
      name: kind,
      path: store.blob(digest),
      bytes,
    })),
    ...rest,
  }
}
