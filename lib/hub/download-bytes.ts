// download-bytes.ts: bytes behind an http: or https: URL.
import { failed, request, StatusError, settled } from './request.js'

/** Options of {@link download}. */
export interface DownloadOptions {
  /** Ends the download. */
  readonly signal?: AbortSignal | undefined
  /** Bytes that are accepted at most. */
  readonly maxBytes: number
}

/**
 * The bytes behind a URL. Redirects are followed, but not from https: to http:.
 * @throws SparkError ERR_IO for a connection that fails or ends early, a status other than 2xx, and more than `maxBytes`; the
 * reason of `signal` when it is aborted
 */
export async function download(url: URL, { signal, maxBytes }: DownloadOptions): Promise<Uint8Array> {
  const response = await request(url, { signal })
  if (response.ok) return bodyOf(response, url, { signal, maxBytes })
  await response.body?.cancel()
  throw new StatusError(url, response)
}

/**
 * The bytes of a response to the request of a URL.
 * @throws SparkError ERR_IO when it ends early, and for more than `maxBytes`; the reason of `signal` when it is aborted
 */
export async function bodyOf(
  response: Response,
  url: URL,
  { signal, maxBytes }: DownloadOptions,
): Promise<Uint8Array> {
  const tooLarge = async (bytes: number): Promise<never> => {
    await response.body?.cancel()
    throw failed(url, `it has ${bytes} bytes or more, and maxBytes is ${maxBytes}`)
  }
  const announced = Number(response.headers.get('content-length') ?? 0)
  if (announced > maxBytes) return tooLarge(announced)
  const chunks: Uint8Array[] = []
  let bytes = 0
  const reader = response.body?.getReader()
  for (;;) {
    if (!reader) break
    const { done, value } = await settled(reader.read(), signal, (why, cause) => failed(url, why, cause))
    if (done) break
    bytes += value.byteLength
    if (bytes > maxBytes) {
      reader.releaseLock()
      return tooLarge(bytes)
    }
    chunks.push(value)
  }
  return joined(chunks, bytes)
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
