// fetch-tensors.ts: the part of a safetensors or GGUF file that a stage needs: its header and some of its tensors.
import { SparkError } from '../../core/errors.js'
import { HeaderParser } from '../../io/gguf/header.js'
import { headerLength, parseHeader } from '../../io/safetensors-header.js'
import { attempts, fetchChunks } from './fetch-chunks.js'
import { type FetchedFile, type FetchOptions, fetchFile } from './fetch-file.js'
import { type ByteRange, chunksIn, type FileManifest, parseManifest } from './manifest.js'
import type { ChunkSource } from './sources.js'
import type { WeightStore } from './weight-store.js'

/** The first bytes of a file, of which there are at least so many, or all. */
type ReadPrefix = (bytes: number) => Promise<Uint8Array>

/**
 * As {@link fetchFile}, of the header and those tensors of a safetensors or GGUF file that are wanted. The file has its whole length,
 * so loaders open it as usual; the other tensors are holes, which read as zeros.
 * @param wanted - whether a tensor is, by its name
 * @throws SparkError as {@link fetchFile}; ERR_UNSUPPORTED for another kind of file: give its `ranges` to `fetchFile`
 */
export async function fetchTensors(
  manifest: FileManifest,
  sources: readonly ChunkSource[],
  store: WeightStore,
  wanted: (name: string) => boolean,
  options: Omit<FetchOptions, 'ranges'> = {},
): Promise<FetchedFile> {
  const checked = parseManifest(manifest)
  const { onProgress: _, ...quiet } = options
  const readPrefix: ReadPrefix = async bytes => {
    const chunks = chunksIn(checked, [{ begin: 0, end: Math.min(bytes, checked.bytes) }])
    using _held = store.hold(chunks.map(index => checked.chunks[index]!))
    for (let left = attempts; left > 0; left--) {
      await fetchChunks(checked, chunks, sources, store, quiet)
      const read = await Promise.all(chunks.map(index => store.read(checked.chunks[index]!)))
      if (read.every(chunk => chunk !== undefined)) return Buffer.concat(read)
    }
    throw new SparkError(
      'ERR_IO',
      `the start of ${checked.name} is damaged whenever it is read: check the disk`,
    )
  }
  const ranges = await tensorRanges(checked.name, checked.bytes, readPrefix, wanted)
  return fetchFile(checked, sources, store, { ...options, ranges })
}

/**
 * Ranges of the header and of some tensors of a file.
 * @param readPrefix - gives its first bytes
 * @throws SparkError ERR_FORMAT, ERR_UNSUPPORTED
 */
export async function tensorRanges(
  name: string,
  fileBytes: number,
  readPrefix: ReadPrefix,
  wanted: (name: string) => boolean,
): Promise<ByteRange[]> {
  const start = await readPrefix(8)
  if (Buffer.from(start.subarray(0, 4)).toString('latin1') === 'GGUF')
    return ggufRanges(name, fileBytes, readPrefix, wanted)
  if (!name.endsWith('.safetensors'))
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${name} is no safetensors or GGUF file: give ranges of its bytes`,
    )
  const data = 8 + headerLength(name, start, fileBytes)
  const { tensors } = parseHeader(name, (await readPrefix(data)).subarray(8, data), fileBytes - data)
  const found = [...tensors].filter(([tensor]) => wanted(tensor))
  const ranges = found.map(([, { begin, end }]) => ({ begin: data + begin, end: data + end }))
  return [{ begin: 0, end: data }, ...ranges]
}

async function ggufRanges(
  name: string,
  fileBytes: number,
  readPrefix: ReadPrefix,
  wanted: (name: string) => boolean,
): Promise<ByteRange[]> {
  const parser = new HeaderParser(name, fileBytes)
  let prefix = await readPrefix(1)
  for (;;) {
    const header = parser.parse(prefix)
    if (typeof header === 'object') {
      const found = header.tensors.filter(tensor => wanted(tensor.name))
      const ranges = found.map(({ begin, byteLength }) => ({ begin, end: begin + byteLength }))
      const first = Math.min(fileBytes, ...header.tensors.map(({ begin }) => begin))
      return [{ begin: 0, end: first }, ...ranges]
    }
    prefix = await readPrefix(Math.min(fileBytes, Math.max(header, 2 * prefix.byteLength)))
  }
}
