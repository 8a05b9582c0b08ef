// fetch-json.ts: JSON documents of servers.
import { SparkError } from '../core/errors.js'
import { bodyOf } from './download-bytes.js'
import { failed, type RequestOptions, shownUrl } from './request.js'
import { Interrupted, requestOk, retry } from './retry.js'

/** A document. */
export interface JsonDocument {
  readonly value: unknown
  /** As it was sent. */
  readonly bytes: Uint8Array
  readonly headers: Headers
}

/** Bytes of a document. */
const maxBytes = 1 << 26

/** A server that does not answer is given up sooner than one that sends a file. */
const attempts = 3

/**
 * Requests a document.
 * @throws SparkError ERR_IO; ERR_FORMAT for what is no JSON; the reason of the signal
 */
export async function fetchJson(url: URL, options: RequestOptions): Promise<JsonDocument> {
  const { signal } = options
  return retry(
    async () => {
      const response = await requestOk(url, options)
      const bytes = await bodyOf(response, url, { signal, maxBytes }).catch(error => {
        throw error instanceof SparkError && error.cause !== undefined ? new Interrupted(error) : error
      })
      return { value: parsed(url, bytes), bytes, headers: response.headers }
    },
    { attempts, signal },
  )
}

function parsed(url: URL, bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch (error) {
    const message = failed(url, 'the answer is no JSON', error).message
    throw new SparkError('ERR_FORMAT', message, { cause: error })
  }
}

/** An ERR_FORMAT about a document with other fields than expected. */
export const malformed = (url: URL, what: string): SparkError =>
  new SparkError('ERR_FORMAT', `${shownUrl(url)}: the answer has no valid ${what}`)
