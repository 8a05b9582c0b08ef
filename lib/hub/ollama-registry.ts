// ollama-registry.ts: registries that speak the protocol of Ollama: manifests, addresses of content, tokens.
import { SparkError } from '../core/errors.js'
import { below } from './address.js'
import { fetchJson, malformed } from './fetch-json.js'
import type { OllamaName } from './model-name.js'
import { type Manifest, parseManifest, shownOllamaName } from './ollama-store.js'
import { StatusError } from './request.js'

/** Options of requests. */
interface RegistryRequest {
  readonly token?: string | undefined
  readonly signal?: AbortSignal | undefined
}

const accept = 'application/vnd.docker.distribution.manifest.v2+json'

/** A registry, and the token that it has given. */
export class OllamaRegistry {
  readonly #name: OllamaName
  readonly #base: URL
  readonly #signal: AbortSignal | undefined
  #token: string | undefined

  constructor(name: OllamaName, { token, signal }: RegistryRequest) {
    this.#name = name
    const isLocal = /^(localhost|127\.0\.0\.1)(:|$)/.test(name.host)
    const server = new URL(`${isLocal ? 'http' : 'https'}://${name.host}`)
    this.#base = below(server, 'v2', name.namespace, name.model)
    this.#token = token
    this.#signal = signal
  }

  /** For the origin of the registry. */
  get token(): string | undefined {
    return this.#token
  }

  /** The address of content. */
  blob(hex: string): URL {
    const url = below(this.#base, 'blobs')
    url.pathname += `/sha256:${hex}`
    return url
  }

  /**
   * The manifest of the model.
   * @throws SparkError ERR_IO, also for a model that the registry does not have; ERR_FORMAT
   */
  async manifest(): Promise<Manifest> {
    const url = below(this.#base, 'manifests', this.#name.tag)
    try {
      const { bytes } = await this.authorized(() =>
        fetchJson(url, { signal: this.#signal, token: this.#token, headers: { accept } }),
      )
      const manifest = parseManifest(bytes)
      if (!manifest) throw malformed(url, 'layers')
      return manifest
    } catch (error) {
      if (!(error instanceof StatusError && error.status === 404)) throw error
      const { host, model, tag } = this.#name
      const why = `${host} has no model '${model}' with the tag '${tag}'`
      throw new MissingModelError(`${shownOllamaName(this.#name)}: ${why}`, error)
    }
  }

  /** Does some work; where the registry asks for a token, gets one and does it again. */
  async authorized<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      const isAsked = error instanceof StatusError && error.status === 401
      const realm = isAsked ? realmOf(error.challenge) : undefined
      if (!realm) throw error
      const { value } = await fetchJson(realm, { signal: this.#signal })
      const { token, access_token: other } = (value ?? {}) as Readonly<Record<string, unknown>>
      const given = token ?? other
      if (typeof given !== 'string') throw malformed(realm, 'token')
      this.#token = given
      return work()
    }
  }
}

/** A model that a registry does not have. */
export class MissingModelError extends SparkError {
  constructor(message: string, cause: unknown) {
    super('ERR_IO', message, { cause })
  }
}

/** The address that a Bearer challenge names, with its service and scope. */
function realmOf(challenge: string | null): URL | undefined {
  if (!/^bearer\s/i.test(challenge ?? '')) return undefined
  const fields = new Map(
    [...challenge!.matchAll(/(\w+)="([^"]*)"/g)].map(([, name = '', value = '']) => [name, value]),
  )
  const realm = fields.get('realm') ?? ''
  const url = URL.canParse(realm) ? new URL(realm) : undefined
  if (!url || !/^https?:$/.test(url.protocol)) return undefined
  for (const name of ['service', 'scope']) if (fields.has(name)) url.searchParams.set(name, fields.get(name)!)
  return url
}
