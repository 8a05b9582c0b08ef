// ollama-store.ts: the folder where Ollama keeps models: manifests by name, content by hash.
import { readdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { Lock } from '../io/lock.js'
import { readBytes } from '../io/read-file.js'
import { type Digest, parseDigest } from './digest.js'
import { pathOf } from './hub-settings.js'
import type { OllamaName } from './model-name.js'

/** Content that a manifest names. */
export interface Layer {
  /** What it is of the model: model, template, params, ...; config. */
  readonly kind: string
  readonly digest: Digest
  readonly bytes: number
}

/** A manifest. */
export interface Manifest {
  readonly layers: readonly Layer[]
  /** As a registry sent it. */
  readonly document: Uint8Array
}

const kindPrefix = 'application/vnd.ollama.image.'

/** Reads a manifest; undefined for a document that is none. */
export function parseManifest(document: Uint8Array): Manifest | undefined {
  let parsed: unknown
  try {
    parsed = JSON.parse(new TextDecoder().decode(document))
  } catch {
    return undefined
  }
  const { layers, config } = (parsed ?? {}) as { layers?: unknown; config?: object }
  if (!Array.isArray(layers)) return undefined
  const read = [...layers, ...(config ? [{ ...config, mediaType: `${kindPrefix}config` }] : [])].map(layerOf)
  return read.includes(undefined) ? undefined : { layers: read as Layer[], document }
}

function layerOf(value: unknown): Layer | undefined {
  const { mediaType, digest, size } = (value ?? {}) as Readonly<Record<string, unknown>>
  const hash = typeof digest === 'string' ? parseDigest(digest.replace(/^sha256[:-]/, '')) : undefined
  if (typeof mediaType !== 'string' || hash?.algorithm !== 'sha256') return undefined
  if (!Number.isSafeInteger(size) || (size as number) < 0) return undefined
  return { kind: mediaType.replace(kindPrefix, ''), digest: hash, bytes: size as number }
}

/** Folders with models of Ollama. The first one is written to; the last one is that of its service on Linux. */
export function ollamaStores(): OllamaStore[] {
  const own = pathOf('OLLAMA_MODELS') ?? path.join(homedir(), '.ollama', 'models')
  return [own, '/usr/share/ollama/.ollama/models'].map(folder => new OllamaStore(folder))
}

/** A folder with models of Ollama. */
export class OllamaStore {
  readonly folder: string

  constructor(folder: string) {
    this.folder = folder
  }

  #manifestPath({ host, namespace, model, tag }: OllamaName): string {
    return path.join(this.folder, 'manifests', host, namespace, model, tag)
  }

  /** Where content is, or would be. */
  blob({ hex }: Digest): string {
    return path.join(this.folder, 'blobs', `sha256-${hex}`)
  }

  /** The manifest of a model; undefined where there is none that can be read. */
  async read(name: OllamaName): Promise<Manifest | undefined> {
    const document = await readBytes(this.#manifestPath(name)).catch(() => undefined)
    return document && parseManifest(document)
  }

  /** Writes the manifest of a model whose content is there. */
  async write(name: OllamaName, { document }: Manifest): Promise<void> {
    const file = this.#manifestPath(name)
    await makeFolder(path.dirname(file))
    await writeFileAtomic(file, [document])
  }

  /** Whether content is there. */
  async has({ digest, bytes }: Layer): Promise<boolean> {
    const found = await stat(this.blob(digest)).catch(() => undefined)
    return found?.isFile() === true && found.size === bytes
  }

  /** Whether all content of a model is there. */
  async hasAll({ layers }: Manifest): Promise<boolean> {
    for (const layer of layers) if (!(await this.has(layer))) return false
    return true
  }

  /** Makes the folders that a download needs. */
  async prepare(): Promise<void> {
    for (const name of ['blobs', '.locks']) await makeFolder(path.join(this.folder, name))
  }

  /**
   * Takes the lock of content.
   * @throws SparkError ERR_BUSY, ERR_IO
   */
  lock(digest: Digest): Promise<Lock> {
    return Lock.take(path.join(this.folder, '.locks'), digest.hex, this.blob(digest))
  }

  /** Names of all models, as `ollama:` names have them. */
  async names(): Promise<OllamaName[]> {
    const root = path.join(this.folder, 'manifests')
    const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => [])
    return entries.flatMap(entry => {
      if (!entry.isFile()) return []
      const parts = path.relative(root, path.join(entry.parentPath, entry.name)).split(path.sep)
      const [host, namespace, model, tag] = parts
      if (parts.length !== 4 || !host || !namespace || !model || !tag) return []
      return [{ kind: 'ollama', host, namespace, model, tag } as const]
    })
  }
}

/** A name as users write it. */
export function shownOllamaName({ host, namespace, model, tag }: OllamaName): string {
  const isDefault = host === 'registry.ollama.ai'
  const owner = isDefault ? (namespace === 'library' ? '' : `${namespace}/`) : `${host}/${namespace}/`
  return `ollama:${owner}${model}:${tag}`
}
