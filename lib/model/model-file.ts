// model-file.ts: where a model comes from: a path, a URL, or bytes.
import { fileURLToPath } from 'node:url'
import { argumentError, expectAttached, expectInteger, expectObject } from '../core/checks.js'
import type { Pacer } from '../core/paced.js'
import { makeUntransferable } from '../core/untransferable.js'
import type { Graph } from '../graph/graph.js'
import { download } from '../hub/download-bytes.js'
import { shownUrl } from '../hub/request.js'
import { fileIdentity } from '../io/content-hash.js'
import { readOnnx } from '../io/onnx/read.js'
import type { EngineOptions } from './engine.js'
import { sharedGraph } from './shared-files.js'
import { WeightCache } from './weight-cache.js'

/** Where a model comes from: a path; a `file:`, `http:` or `https:` URL; or its bytes. */
export type ModelFile = string | URL | Uint8Array | ArrayBuffer

/** How a model is read. */
export interface SourceOptions {
  /**
   * Bytes of files that a model has beside it, by their names in the model. Default: none, and the files themselves for a
   * model that comes from one.
   */
  externalData?: Readonly<Record<string, Uint8Array | ArrayBuffer>>
  /** Bytes that are downloaded at most. Default: 2 GiB, the most that an ONNX file can have. */
  maxBytes?: number
}

/** The most that an ONNX file can have: its lengths are 31 bits. */
const maxFileBytes = 2 ** 31

/**
 * Reads the graph of a model.
 * @throws SparkError as {@link readOnnx} and {@link download}
 */
export async function readSource(
  source: ModelFile,
  { externalData, maxBytes = maxFileBytes, weightCache }: SourceOptions & Pick<EngineOptions, 'weightCache'>,
  pacer: Pacer,
): Promise<Graph> {
  expectInteger('options.maxBytes', maxBytes, 1)
  const files = filesOf(externalData)
  const held = [...(files?.values() ?? [])]
  const url = urlOf(source)
  let graph: Graph
  if (url) {
    const bytes = await download(url, { signal: pacer.signal, maxBytes })
    graph = await readOnnx(bytes, pacer, { externalData: files, label: shownUrl(url) })
  } else if (isBytes(source)) {
    const bytes = bytesOf('source', source)
    held.push(bytes)
    graph = await readOnnx(bytes, pacer, { externalData: files })
  } else {
    const read = (): Promise<Graph> => readOnnx(source as string | URL, pacer, { externalData: files })
    const file = files ? undefined : pathOf(source)
    graph = file === undefined ? await read() : await readFile(file, read, weightCache, pacer)
  }
  for (const { buffer } of held) if (buffer instanceof ArrayBuffer) makeUntransferable(buffer)
  return graph
}

/** The graph of a file; a cache of weights gets to know what is in it. */
async function readFile(
  file: string,
  read: () => Promise<Graph>,
  weightCache: EngineOptions['weightCache'],
  pacer: Pacer,
): Promise<Graph> {
  const cache = await WeightCache.open(weightCache)
  const identity = cache && (await fileIdentity(file))
  const graph = await sharedGraph(file, read)
  if (cache && identity !== undefined) await cache.identify(file, identity, graph, pacer)
  return graph
}

/** The path of a file; undefined for what is none. */
function pathOf(source: unknown): string | undefined {
  if (source instanceof URL) return source.protocol === 'file:' ? fileURLToPath(source) : undefined
  if (typeof source !== 'string' || source === '') return undefined
  return /^file:\/\//i.test(source) ? fileURLToPath(source) : source
}

/** The URL of a model that is to be downloaded. */
function urlOf(source: unknown): URL | undefined {
  if (source instanceof URL) return /^https?:$/.test(source.protocol) ? source : undefined
  if (typeof source !== 'string' || !/^https?:\/\//i.test(source)) return undefined
  if (URL.canParse(source)) return new URL(source)
  throw argumentError('source', 'a URL', source)
}

const isBytes = (value: unknown): value is ArrayBuffer | ArrayBufferView =>
  value instanceof ArrayBuffer || ArrayBuffer.isView(value)

/** @throws SparkError ERR_DISPOSED for bytes in memory that was detached */
function bytesOf(name: string, source: ArrayBuffer | ArrayBufferView): Uint8Array {
  const buffer = ArrayBuffer.isView(source) ? source.buffer : source
  // A DataView of detached memory does not even tell its length.
  expectAttached(name, { buffer, byteLength: buffer.byteLength, byteOffset: 0 })
  return ArrayBuffer.isView(source)
    ? new Uint8Array(buffer, source.byteOffset, source.byteLength)
    : new Uint8Array(buffer)
}

function filesOf(files: SourceOptions['externalData']): ReadonlyMap<string, Uint8Array> | undefined {
  if (files === undefined) return undefined
  expectObject('options.externalData', 'an object with the bytes of files by their names', files)
  return new Map(
    Object.entries(files).map(([name, bytes]) => {
      const what = `options.externalData['${name}']`
      if (isBytes(bytes)) return [name, bytesOf(what, bytes)]
      throw argumentError(what, 'a Uint8Array or an ArrayBuffer', bytes)
    }),
  )
}
