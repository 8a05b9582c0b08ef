// model-name.ts: names of models: hf:owner/name, ollama:name:tag, https: addresses.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { hubEndpoint } from './hub-settings.js'

/** A repository of the Hugging Face hub. */
export interface HubName {
  readonly kind: 'hub'
  /** owner/name; a few old ones are a name only. */
  readonly repository: string
  /** Branch, tag or commit. */
  readonly revision: string | undefined
  /** A file, a folder, or a quantization. */
  readonly file: string | undefined
}

/** A model of a registry that speaks the protocol of Ollama. */
export interface OllamaName {
  readonly kind: 'ollama'
  /** With the port, where there is one. */
  readonly host: string
  readonly namespace: string
  readonly model: string
  readonly tag: string
}

/** A file on a server. */
export interface UrlName {
  readonly kind: 'url'
  readonly url: URL
}

/** What a name of a model names. */
export type ModelName = HubName | OllamaName | UrlName

/** Whether a text is the name of a model that can be pulled, and no path. */
export const isModelName = (text: string): boolean => /^(hf:|ollama:|https?:\/\/)/i.test(text)

const expected =
  'hf:owner/name[@revision][:file or quantization], ollama:name[:tag], or an http: or https: URL'

/**
 * Reads the name of a model. Addresses of pages of the hub count as hf: names.
 * @throws SparkError ERR_ARGUMENT
 */
export function parseModelName(text: unknown): ModelName {
  if (typeof text !== 'string' || !isModelName(text)) throw argumentError('uri', expected, text)
  if (/^hf:/i.test(text)) return parseHubName(text)
  if (/^ollama:/i.test(text)) return parseOllamaName(text)
  if (!URL.canParse(text)) throw argumentError('uri', 'a URL', text)
  const url = new URL(text)
  return hubPage(url) ?? { kind: 'url', url }
}

const nameError = (text: string, why: string): SparkError =>
  new SparkError('ERR_ARGUMENT', `${text}: ${why}; expected ${expected}`)

function parseHubName(text: string): HubName {
  const [, repository = '', revision, file] =
    /^hf:(?:\/\/)?([^@:]*)(?:@([^:]*))?(?::(.*))?$/is.exec(text) ?? []
  return hubName(text, repository, revision, file)
}

function hubName(
  text: string,
  repository: string,
  revision: string | undefined,
  file: string | undefined,
): HubName {
  const parts = repository.split('/')
  const isPart = (part: string): boolean =>
    /^[a-z0-9_]([\w.-]{0,94}[a-z0-9_])?$/i.test(part) && !/--|\.\./.test(part)
  if (parts.length > 2 || !parts.every(isPart))
    throw nameError(text, `'${repository}' is no name of a repository`)
  if (revision !== undefined) expectRevision(text, revision)
  if (file !== undefined && !isSafePath(file)) throw nameError(text, `'${file}' is no name of a file`)
  return { kind: 'hub', repository, revision, file }
}

/**
 * Returns for a name that a revision can have.
 * @throws SparkError ERR_ARGUMENT
 */
export function expectRevision(text: string, revision: string): void {
  if (!/^\w[\w./+-]{0,200}$/.test(revision) || !isSafePath(revision))
    throw nameError(text, `'${revision}' is no branch, tag or commit`)
}

/** Whether a path from elsewhere stays below the folder that it is joined to, on all systems. */
export const isSafePath = (name: string): boolean =>
  name.length <= 1024 &&
  !/[\\\p{Cc}]|^[a-z]:/iu.test(name) &&
  name.split('/').every(part => part !== '' && part !== '.' && part !== '..')

/** The repository, revision and file that an address of the hub's pages has; undefined for other addresses. */
function hubPage(url: URL): HubName | undefined {
  const isHub = [hubEndpoint().host, 'huggingface.co', 'hf.co'].includes(url.host)
  if (!isHub || /%(?![0-9a-f]{2})/i.test(url.pathname)) return undefined
  const [owner, name, view, ...rest] = url.pathname.split('/').filter(Boolean).map(decodeURIComponent)
  if (!owner || !name || ['datasets', 'spaces', 'api', 'v2'].includes(owner)) return undefined
  const repository = `${owner}/${name}`
  if (view === undefined) return hubName(url.href, repository, undefined, undefined)
  if (!['tree', 'blob', 'resolve', 'raw'].includes(view) || rest.length === 0) return undefined
  const [revision, ...file] = rest
  return hubName(url.href, repository, revision, file.length > 0 ? file.join('/') : undefined)
}

function parseOllamaName(text: string): OllamaName {
  const [, rest = '', tag = 'latest'] = /^ollama:(?:\/\/)?(.*?)(?::([^:/]*))?$/is.exec(text) ?? []
  const parts = rest.split('/')
  const [model = '', namespace = 'library', host = 'registry.ollama.ai'] = parts.toReversed()
  const isPart = (part: string): boolean => /^\w[\w.-]{0,79}$/.test(part)
  if (parts.length > 3 || ![model, namespace, tag].every(isPart) || !/^\w[\w.-]{0,250}(:\d+)?$/.test(host))
    throw nameError(text, `'${text.slice('ollama:'.length)}' is no name of a model`)
  return { kind: 'ollama', host, namespace, model, tag }
}
