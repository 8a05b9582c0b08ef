// fetch-file.ts: a file, or ranges of it, from other nodes into a store and from there into a file that loaders can open.
import { argumentError, expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import type { SourceReport } from './chunk-transfer.js'
import { attempts, type FetchChunksOptions, fetchChunks } from './fetch-chunks.js'
import { type ByteRange, chunksIn, type FileManifest, manifestId, parseManifest } from './manifest.js'
import type { ChunkSource } from './sources.js'
import { bytesIn, isGroup, type StoredFile } from './stored-files.js'
import { missingIn, type WeightStore } from './weight-store.js'

/** Options of {@link fetchFile}. */
export interface FetchOptions extends FetchChunksOptions {
  /** Fetches only the chunks that hold these bytes; the file has holes elsewhere. Default: the whole file. */
  readonly ranges?: readonly ByteRange[]
  /**
   * Folder of the store that the file lies in, of letters, digits and `-_`: loaders find files of one model beside each other that
   * have the same. Default: one of its own.
   */
  readonly group?: string
}

/** A file that was fetched. Its store does not remove it until it is disposed. */
export interface FetchedFile extends Disposable {
  /** Where it is. */
  readonly path: string
  /** Bytes of it that are there, in whole chunks. */
  readonly bytes: number
  /** Bytes that came from the sources now: 0 where all of it was there. */
  readonly fetched: number
  /** What each source gave, and why it was dropped, where it was. */
  readonly sources: readonly SourceReport[]
}

/**
 * Fetches the chunks of a file that the store does not have yet, from all sources at a time, and makes a file of them. A source
 * that sends wrong bytes, vanishes or stalls is dropped and named in the result; the others go on. After a kill nothing that was
 * verified is sent again.
 * @throws SparkError ERR_ARGUMENT, ERR_FORMAT for a manifest that cannot be; ERR_IO where nobody has a chunk, and where disk or
 * store are full, with numbers; the reason of the signal
 */
export async function fetchFile(
  manifest: FileManifest,
  sources: readonly ChunkSource[],
  store: WeightStore,
  options: FetchOptions = {},
): Promise<FetchedFile> {
  expectKnownOptions('options', options, ['ranges', 'group', 'device', 'stallMs', 'signal', 'onProgress'])
  const { ranges, group, stallMs, signal } = options
  if (stallMs !== undefined) expectInteger('options.stallMs', stallMs, 1)
  expectSignal('options.signal', signal)
  if (group !== undefined && !isGroup(group))
    throw argumentError('options.group', 'letters, digits and -_', group)
  const checked = parseManifest(manifest)
  const wanted = chunksIn(checked, ranges)
  const id = manifestId(checked)
  const held = store.hold(wanted.map(index => checked.chunks[index]!))
  try {
    return await store.inTurn(id, async () => {
      const reports: SourceReport[] = []
      for (let left = attempts; ; left--) {
        const given = await fetchChunks(checked, wanted, sources, store, options)
        reports.push(...given)
        try {
          const file = await store.assemble(id, checked, wanted, group)
          return fetchedFile(file, joined(reports), held)
        } catch (error) {
          // A chunk that was damaged on the disk is missing now.
          const { bytes } = missingIn(store, checked, wanted)
          if (left === 1 || bytes === 0) throw error
        }
      }
    })
  } catch (error) {
    held[Symbol.dispose]()
    throw error
  }
}

function fetchedFile(file: StoredFile, sources: SourceReport[], held: Disposable): FetchedFile {
  return {
    path: file.path,
    bytes: bytesIn(file),
    fetched: sources.reduce((sum, { bytes }) => sum + bytes, 0),
    sources,
    [Symbol.dispose]: () => held[Symbol.dispose](),
  }
}

/** One report for each source. */
function joined(reports: readonly SourceReport[]): SourceReport[] {
  const found = new Map<string, SourceReport>()
  for (const report of reports) {
    const before = found.get(report.name)
    const bytes = report.bytes + (before?.bytes ?? 0)
    found.set(report.name, { name: report.name, bytes, dropped: report.dropped ?? before?.dropped })
  }
  return [...found.values()]
}
