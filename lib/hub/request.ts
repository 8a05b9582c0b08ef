// request.ts: HTTP requests with redirects, a proxy and tokens from the environment.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { hubEndpoint, hubToken } from './hub-settings.js'

/** A URL for messages, without what may be secret: user, password, query. */
export const shownUrl = ({ origin, pathname }: URL): string => `${origin}${pathname}`

/** Options of {@link request}. */
export interface RequestOptions {
  /** Ends the request and the reading of its body. */
  readonly signal?: AbortSignal | undefined
  /** Beside those that all requests have. */
  readonly headers?: Readonly<Record<string, string>>
  /** For the origin of the URL, in place of the token that the environment has for it. */
  readonly token?: string | undefined
  /** Which redirects are followed. Default: all. */
  readonly redirects?: 'all' | 'same origin'
}

const maxRedirects = 10
const redirects = [301, 302, 303, 307, 308]

/**
 * The response to a GET request. Redirects are followed, but not from https: to http:. HTTP_PROXY, HTTPS_PROXY and NO_PROXY say
 * which proxy is used. A host gets the token that DGX_SPARK_TOKENS (`host=token,host=token`) has for it, the Hugging Face hub that of
 * its own settings; no token goes to another host, or to http:, but for this machine.
 * @throws SparkError ERR_IO for a connection that fails, and for redirects that are not followed; the reason of `signal`
 */
export async function request(
  url: URL,
  { signal, headers = {}, token: given, redirects: followed = 'all' }: RequestOptions,
): Promise<Response> {
  let at = url
  for (let count = 0; count <= maxRedirects; count++) {
    const token = at.origin === url.origin ? tokenOf(at, given) : tokenOf(at)
    const response = await settled(
      send(at, {
        redirect: 'manual',
        signal: signal ?? null,
        headers: { ...headers, ...(token && { authorization: `Bearer ${token}` }) },
      }),
      signal,
      (why, cause) => failed(url, why, cause),
    )
    const location = redirects.includes(response.status) ? response.headers.get('location') : null
    if (location === null) return response
    await response.body?.cancel()
    const next = URL.canParse(location, at.href) ? new URL(location, at) : undefined
    if (!next || !/^https?:$/.test(next.protocol))
      throw new RedirectError(url, 'it leads to no address that can be read')
    if (followed === 'same origin' && next.origin !== url.origin)
      throw new RedirectError(url, `it leads to ${shownUrl(next)}, another server`)
    if (at.protocol === 'https:' && next.protocol === 'http:')
      throw new RedirectError(url, `it leads to ${shownUrl(next)}, which is not encrypted`)
    at = next
  }
  throw new RedirectError(url, `it leads to other addresses more than ${maxRedirects} times`)
}

/** ERR_IO about a URL that cannot be read. */
export const failed = (url: URL, why: string, cause?: unknown): SparkError =>
  new SparkError('ERR_IO', `could not download ${shownUrl(url)}: ${why}`, { cause })

/** ERR_IO about a redirect that is not followed. */
export class RedirectError extends SparkError {
  constructor(url: URL, why: string) {
    super('ERR_IO', failed(url, why).message)
  }
}

/** ERR_IO about a status other than 2xx. */
export class StatusError extends SparkError {
  /** The status of the response. */
  readonly status: number
  /** Its WWW-Authenticate header. */
  readonly challenge: string | null

  constructor(url: URL, response: Response, token?: string) {
    super('ERR_IO', failed(url, explain(response, url, token)).message)
    this.status = response.status
    this.challenge = response.headers.get('www-authenticate')
  }
}

/** Whether an error says that a server did not answer, or has a fault. */
export const isUnreachable = (error: unknown): boolean =>
  error instanceof SparkError &&
  (error instanceof StatusError ? error.status >= 500 : error.code === 'ERR_IO' && error.cause !== undefined)

/**
 * Waits for a request or a part of its body.
 * @throws the reason of `signal`, or what `failure` makes of why it failed
 */
export async function settled<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  failure: (why: string, cause: unknown) => Error,
): Promise<T> {
  try {
    return await work
  } catch (error) {
    signal?.throwIfAborted()
    const { message, cause } = error as Error
    throw failure(cause instanceof Error ? cause.message || message : message, error)
  }
}

/** Characters of a server's own words about an error. */
const maxReason = 300

/** What to do about a status other than 2xx. */
export function explain({ status, statusText, headers }: Response, url: URL, given?: string): string {
  const answer = `the server answered ${status} ${statusText}`.trim()
  if (status !== 401 && status !== 403) return answer
  const reason = headers.get('x-error-message')?.slice(0, maxReason)
  const said = reason ? `${answer}: ${reason}` : answer
  if (tokenOf(url, given) !== undefined) return `${said}: the token is not accepted`
  if (isHub(url)) return `${said}: set HF_TOKEN=<token>, from https://huggingface.co/settings/tokens`
  return `${said}: set DGX_SPARK_TOKENS=${url.host}=<token>`
}

const isHub = ({ host }: URL): boolean => host === 'huggingface.co' || host === hubEndpoint().host

/** The token for a host; `given` wins over those of the environment. */
function tokenOf(url: URL, given?: string): string | undefined {
  const { protocol, host, hostname } = url
  const isLocal = /^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname)
  if (protocol !== 'https:' && !isLocal) return undefined
  const token = given ?? listedToken(host) ?? (isHub(url) ? hubToken() : undefined)
  // An error about a header would show its value.
  if (token === undefined || /^[\x21-\x7e]+$/.test(token)) return token
  throw argumentError(`the token of ${host}`, 'printable ASCII characters', `${token.length} others`)
}

/** The token that DGX_SPARK_TOKENS has for a host. */
function listedToken(host: string): string | undefined {
  for (const entry of (process.env.DGX_SPARK_TOKENS ?? '').split(',')) {
    const [name = '', ...token] = entry.split('=')
    if (name.trim() === host && token.length > 0) return token.join('=').trim()
  }
  return undefined
}

interface Init {
  readonly redirect: 'manual'
  readonly signal: AbortSignal | null
  readonly headers: Record<string, string>
}

async function send(url: URL, init: Init): Promise<Response> {
  const proxy = proxyOf(url)
  if (proxy === undefined) return fetch(url, init)
  const undici = await import('undici')
  const dispatcher = new undici.ProxyAgent(proxy)
  return (await undici.fetch(url, { ...init, dispatcher })) as unknown as Response
}

/** Names of proxies are also known in lower case. */
const proxyVariable = (name: string): string | undefined =>
  process.env[name.toLowerCase()] || process.env[name]

/** The proxy of a URL; undefined where there is none. */
function proxyOf({ protocol, hostname, port }: URL): string | undefined {
  const proxy = proxyVariable(protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY')
  const excluded = (proxyVariable('NO_PROXY') ?? '').split(/[\s,]+/).some(entry => {
    const [, name = '', only] = /^(?:\*?\.)?(.+?)(?::(\d+))?$/.exec(entry) ?? []
    const isPort = only === undefined || only === (port || (protocol === 'https:' ? '443' : '80'))
    return entry === '*' || (name !== '' && isPort && (hostname === name || hostname.endsWith(`.${name}`)))
  })
  return excluded ? undefined : proxy
}
