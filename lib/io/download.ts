// download.ts: bytes behind an http: or https: URL.
import { SparkError } from '../core/errors.js'

/** Options of {@link download}. */
export interface DownloadOptions {
  /** Ends the download. */
  readonly signal?: AbortSignal | undefined
  /** Bytes that are accepted at most. */
  readonly maxBytes: number
}

/** A URL for messages, without what may be secret: user, password, query. */
export const shownUrl = ({ origin, pathname }: URL): string => `${origin}${pathname}`

/**
 * The bytes behind a URL. Redirects are followed, but not from https: to http:.
 * @throws SparkError ERR_IO for a connection that fails or ends early, a status other than 2xx, and more than `maxBytes`; the
 * reason of `signal` when it is aborted
 */
export async function download(url: URL, { signal, maxBytes }: DownloadOptions): Promise<Uint8Array> {
  const failed = (why: string, cause?: unknown): SparkError =>
    new SparkError('ERR_IO', `could not download ${shownUrl(url)}: ${why}`, { cause })
  const response = await settled(fetch(url, { signal: signal ?? null }), signal, failed)
  const refuse = async (why: string): Promise<never> => {
    await response.body?.cancel()
    throw failed(why)
  }
  if (!response.ok) return refuse(`the server answered ${response.status} ${response.statusText}`.trim())
  if (url.protocol === 'https:' && !response.url.startsWith('https:'))
    return refuse(`it leads to ${shownUrl(new URL(response.url))}, which is not encrypted`)
  const tooLarge = (bytes: number): string => `it has ${bytes} bytes or more, and maxBytes is ${maxBytes}`
  const announced = Number(response.headers.get('content-length') ?? 0)
  if (announced > maxBytes) return refuse(tooLarge(announced))
  const chunks: Uint8Array[] = []
  let bytes = 0
  const reader = response.body?.getReader()
  for (;;) {
    const { done = true, value } = (await settled(reader?.read(), signal, failed)) ?? {}
    if (done || !value) break
    bytes += value.byteLength
    if (bytes > maxBytes) {
      await reader?.cancel()
      throw failed(tooLarge(bytes))
    }
    chunks.push(value)
  }
  return joined(chunks, bytes)
}

async function settled<T>(
  work: Promise<T> | undefined,
  signal: AbortSignal | undefined,
  failed: (why: string, cause: unknown) => SparkError,
): Promise<T> {
  try {
    return (await work) as T
  } catch (error) {
    signal?.throwIfAborted()
    const { message, cause } = error as Error
    throw failed(cause instanceof Error ? cause.message || message : message, error)
  }
}

function joined(chunks: readonly Uint8Array[], bytes: number): Uint8Array {
  const whole = new Uint8Array(bytes)
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.byteLength
  }
  return whole
}
