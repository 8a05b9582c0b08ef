// hub-repository.ts: repositories of models on the Hugging Face hub: commits, listings, addresses of files.
import { SparkError } from '../core/errors.js'
import { below } from './address.js'
import { type Digest, parseDigest } from './digest.js'
import { fetchJson, malformed } from './fetch-json.js'
import { hubEndpoint } from './hub-settings.js'

/** A file of a repository at a commit. */
export interface HubFile {
  /** Path in the repository, with `/`. */
  readonly name: string
  readonly bytes: number
  /** It is also the ETag, and names the file in the cache. */
  readonly digest: Digest
}

/** A repository at a commit. */
export interface HubListing {
  /** 40 hexadecimal digits. */
  readonly commit: string
  readonly files: readonly HubFile[]
}

/** Whether a text is a commit. */
export const isCommit = (text: unknown): text is string =>
  typeof text === 'string' && /^[0-9a-f]{40}$/.test(text)

/** Options of requests. */
export interface HubRequest {
  readonly token?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** A page of a listing has up to 1,000 files. */
const maxPages = 1000

/** The address of a file at a commit. */
export const fileAddress = (repository: string, commit: string, name: string): URL =>
  below(hubEndpoint(), ...repository.split('/'), 'resolve', commit, ...name.split('/'))

/**
 * The files of a repository at a branch, tag or commit.
 * @throws SparkError ERR_IO, ERR_FORMAT; the reason of the signal
 */
export async function listHub(
  repository: string,
  revision: string,
  options: HubRequest,
): Promise<HubListing> {
  const model = below(hubEndpoint(), 'api', 'models', ...repository.split('/'))
  const request = { ...options, redirects: 'same origin' } as const
  const info = below(model, 'revision', revision)
  const { value } = await fetchJson(info, request)
  const commit = (value as { sha?: unknown } | null)?.sha
  if (!isCommit(commit)) throw malformed(info, 'sha')
  const files: HubFile[] = []
  let page: URL | undefined = below(model, 'tree', commit)
  page.search = '?recursive=true'
  for (let count = 0; page; count++) {
    const url: URL = page
    if (count === maxPages) throw new SparkError('ERR_FORMAT', `${url}: more than ${maxPages} pages of files`)
    const { value, headers } = await fetchJson(url, request)
    if (!Array.isArray(value)) throw malformed(url, 'list of files')
    for (const entry of value) if (entry?.type === 'file') files.push(fileOf(entry, url))
    page = nextPage(headers.get('link'), url)
  }
  return { commit, files }
}

interface Entry {
  readonly path?: unknown
  readonly size?: unknown
  readonly oid?: unknown
  readonly lfs?: { readonly oid?: unknown; readonly size?: unknown } | null
}

function fileOf({ path, size, oid, lfs }: Entry, url: URL): HubFile {
  const bytes = lfs?.size ?? size
  const digest = parseDigest(lfs ? lfs.oid : oid)
  if (typeof path !== 'string' || path.length > 1024) throw malformed(url, 'path')
  if (!Number.isSafeInteger(bytes) || (bytes as number) < 0) throw malformed(url, `size of ${path}`)
  if (!digest) throw malformed(url, `hash of ${path}`)
  return { name: path, bytes: bytes as number, digest }
}

/** The page that a Link header calls the next one; a listing stays on its server. */
function nextPage(link: string | null, url: URL): URL | undefined {
  const [, target] = /<([^>]*)>\s*;\s*rel="?next"?/i.exec(link ?? '') ?? []
  if (target === undefined || !URL.canParse(target, url.href)) return undefined
  const next = new URL(target, url)
  if (next.origin !== url.origin) throw malformed(url, `next page: ${next.origin} is another server`)
  return next
}
