// sources.ts: where chunks come from: other nodes, a file of this machine, a server.
import { expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { bodyOf } from '../../hub/download-bytes.js'
import { failed } from '../../hub/request.js'
import { requestOk, retry } from '../../hub/retry.js'
import { usualAttempts } from '../../hub/transfer.js'
import { KeptFile } from '../../io/kept-file.js'
import { type ByteRange, type FileManifest, rangeOf } from './manifest.js'

/** Where chunks come from. Nothing that it says is trusted: what it sends is checked against the hash that was asked for. */
export interface ChunkSource {
  /** For progress and messages: a node id, a host, a path. */
  readonly name: string
  /** Asked only for chunks that no other source has. Default false. */
  readonly last?: boolean
  /** Which of these chunks it has. */
  have(hashes: readonly string[], signal: AbortSignal): Promise<readonly boolean[]>
  /** A chunk of so many bytes; undefined where it does not have it any more. */
  get(hash: string, bytes: number, signal: AbortSignal): Promise<Uint8Array | undefined>
}

/** A source that knows chunks by their place in a file. */
function rangeSource(
  name: string,
  manifest: FileManifest,
  read: (range: ByteRange, signal: AbortSignal) => Promise<Uint8Array>,
): ChunkSource {
  const places = new Map(manifest.chunks.map((hash, index) => [hash, index]))
  return {
    name,
    last: true,
    have: async hashes => hashes.map(hash => places.has(hash)),
    get: async (hash, _bytes, signal) => {
      const index = places.get(hash)
      return index === undefined ? undefined : read(rangeOf(manifest, index), signal)
    },
  }
}

/**
 * A file of this machine as the last source.
 * @throws SparkError ERR_IO, ERR_FORMAT where it has another length than the manifest
 */
export async function fileSource(file: string, manifest: FileManifest): Promise<ChunkSource> {
  const kept = await KeptFile.open(file)
  if (kept.byteLength !== manifest.bytes) {
    const lengths = `${kept.byteLength} bytes, and the manifest says ${manifest.bytes}`
    throw new SparkError('ERR_FORMAT', `${file} has ${lengths}: it is another file`)
  }
  return rangeSource(file, manifest, ({ begin, end }) => kept.load(begin, end - begin))
}

/**
 * A server, such as a hub, as the last source. It must answer requests for ranges of bytes.
 * @param url - of the file, `http:` or `https:`
 * @param options - `token` for its origin
 * @throws SparkError ERR_ARGUMENT
 */
export function urlSource(
  url: string | URL,
  manifest: FileManifest,
  options: { readonly token?: string } = {},
): ChunkSource {
  expectText('url', String(url))
  const at = new URL(url)
  const read = async ({ begin, end }: ByteRange, signal: AbortSignal): Promise<Uint8Array> => {
    const headers = { 'accept-encoding': 'identity', range: `bytes=${begin}-${end - 1}` }
    const response = await requestOk(at, { signal, headers, token: options.token })
    if (response.status !== 206 && !(begin === 0 && end === manifest.bytes)) {
      await response.body?.cancel()
      throw failed(at, 'the server sends no ranges of bytes')
    }
    return bodyOf(response, at, { signal, maxBytes: end - begin })
  }
  return rangeSource(at.host, manifest, (range, signal) =>
    retry(() => read(range, signal), { attempts: usualAttempts, signal }),
  )
}
