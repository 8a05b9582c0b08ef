// staged-model.ts: the files of an ONNX model as nodes get them: each the parts that its stage reads.
import { link, mkdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import type { Graph } from '../../graph/graph.js'
import { canonicalisePaced } from '../../graph/rewrites/canonicalise.js'
import { cutGraph } from '../../graph/rewrites/cut.js'
import { type SplitOptions, splitGraph } from '../../graph/rewrites/split.js'
import { readOnnx } from '../../io/onnx/read.js'
import type { DecoderForm } from '../../text/generation/decoder-engine.js'
import type { FilePart } from '../../weights/file-parts.js'
import type { FetchProgress } from '../weights/fetch-chunks.js'
import { fetchFile } from '../weights/fetch-file.js'
import { type ByteRange, type FileManifest, manifestId, manifestOf } from '../weights/manifest.js'
import type { ChunkSource } from '../weights/sources.js'
import type { WeightStore } from '../weights/weight-store.js'

/** A stage as it is told to the node that has it. */
export interface StageParts {
  /** Files of the model, the ONNX file first, and which bytes of each the stage reads. */
  readonly files: readonly { readonly manifest: FileManifest; readonly ranges: readonly ByteRange[] }[]
  /** Where the canonical graph is cut. */
  readonly ends: readonly number[]
  /** Which of the stages. */
  readonly index: number
  /** Outputs by the inputs that they replace in the next run. */
  readonly states: readonly (readonly [string, string])[]
  /** Of a language model: how its graph is made. Else the first file is the graph. */
  readonly decoder?: DecoderForm
  /** Names of the inputs and outputs of the stage: a node that finds others has another version of this library. */
  readonly names: readonly (readonly string[])[]
  /** Which part of the stage, where several nodes share it. Default: all of it. */
  readonly share?: SplitOptions
}

/** A model whose stages other nodes can get. */
export interface StagedGraph {
  /** As it is cut. */
  readonly graph: Graph
  /** What the node of a stage must know. */
  partsOf(
    stages: readonly Graph[],
    ends: readonly number[],
    index: number,
    states: ReadonlyMap<string, string>,
    share?: SplitOptions,
  ): StageParts
}

/** The canonical graph of an ONNX file. @throws SparkError as `Model.load` */
export async function readCanonical(file: string, signal?: AbortSignal): Promise<Graph> {
  const pacer = new Pacer(signal)
  return pacer.do(canonicalisePaced(await readOnnx(file, pacer)))
}

/** Names of inputs and outputs. */
export const namesOf = ({ inputs, outputs }: Graph): string[][] => [
  inputs.map(({ name }) => name),
  outputs.map(({ name }) => name),
]

/** An ONNX file whose stages other nodes can get. */
export class StagedModel implements StagedGraph {
  /** Canonical. */
  readonly graph: Graph
  /** Path of the ONNX file. */
  readonly file: string
  readonly #manifests: ReadonlyMap<string, FileManifest>

  private constructor(file: string, graph: Graph, manifests: ReadonlyMap<string, FileManifest>) {
    this.file = file
    this.graph = graph
    this.#manifests = manifests
  }

  /**
   * Reads an ONNX file, and lets a store serve its bytes and those of the files beside it.
   * @throws SparkError as `Model.load`; ERR_UNSUPPORTED for weights in another folder than the model
   */
  static async open(file: string, store: WeightStore, signal?: AbortSignal): Promise<StagedModel> {
    const main = path.resolve(file)
    const graph = await readCanonical(main, signal)
    const files = [main, ...placesOf([graph]).map(place => place.file)]
    return new StagedModel(main, graph, await manifestsOf(files, store, signal))
  }

  partsOf(
    stages: readonly Graph[],
    ends: readonly number[],
    index: number,
    states: ReadonlyMap<string, string>,
    share?: SplitOptions,
  ): StageParts {
    const stage = stages[index]!
    const own = share ? splitGraph(stage, share).graph : stage
    const files = rangesOf(this.#manifests, placesOf([own]), placesOf(stages))
    const names = namesOf(stage)
    return { files, ends, index, states: [...states], names, ...(share && { share }) }
  }
}

/**
 * Manifests of files by their paths; the store serves them.
 * @param files - the first says which folder all must be in
 * @throws SparkError ERR_IO; ERR_UNSUPPORTED for one in another folder
 */
export async function manifestsOf(
  files: readonly string[],
  store: WeightStore,
  signal?: AbortSignal,
): Promise<Map<string, FileManifest>> {
  const [main] = files
  const manifests = new Map<string, FileManifest>()
  for (const each of new Set(files)) {
    const name = path.relative(path.dirname(main!), each).replaceAll(path.sep, '/')
    if (name.startsWith('..'))
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${each} is not in the folder of ${main}: write the model anew, with its weights beside it`,
      )
    manifests.set(each, await store.addFile(each, { name, ...(signal && { signal }) }))
  }
  return manifests
}

const placesOf = (graphs: readonly Graph[]): FilePart[] =>
  graphs.flatMap(({ initializers }) => [...initializers.values()].flatMap(({ fileParts }) => fileParts))

/**
 * Which bytes of files a stage, or a rank of one, reads: all but those of tensors that only others read.
 * @param own - what it reads
 * @param all - what is read of the model
 */
export function rangesOf(
  manifests: ReadonlyMap<string, FileManifest>,
  own: readonly FilePart[],
  all: readonly FilePart[],
): StageParts['files'] {
  return [...manifests].map(([file, manifest]) => {
    const inFile = (places: readonly FilePart[]): FilePart[] => places.filter(place => place.file === file)
    const read = inFile(own).map(({ begin, byteLength }) => ({ begin, end: begin + byteLength }))
    return { manifest, ranges: joined([...read, ...without(manifest.bytes, inFile(all))]) }
  })
}

/** Ranges in their order; those that touch are one. */
function joined(ranges: readonly ByteRange[]): ByteRange[] {
  const found: { begin: number; end: number }[] = []
  for (const { begin, end } of [...ranges].sort((a, b) => a.begin - b.begin)) {
    const last = found.at(-1)
    if (last && begin <= last.end) last.end = Math.max(last.end, end)
    else found.push({ begin, end })
  }
  return found
}

/** The bytes of a file but for some. */
function without(bytes: number, places: readonly FilePart[]): ByteRange[] {
  const sorted = [...places].sort((a, b) => a.begin - b.begin)
  const ranges: ByteRange[] = []
  let at = 0
  for (const { begin, byteLength } of sorted) {
    if (begin > at) ranges.push({ begin: at, end: begin })
    at = Math.max(at, begin + byteLength)
  }
  if (at < bytes) ranges.push({ begin: at, end: bytes })
  return ranges
}

/** Where a file is that a user of this machine let the store serve, if it still has that content. */
async function originalOf(
  manifest: FileManifest,
  store: WeightStore,
  signal: AbortSignal,
): Promise<string | undefined> {
  const id = manifestId(manifest)
  const file = store.files.find(each => each.group === null && each.id === id)?.path
  if (file === undefined) return undefined
  const { name, chunkBytes } = manifest
  const now = await manifestOf(file, { name, chunkBytes, signal }).catch(() => undefined)
  signal.throwIfAborted()
  return now && manifestId(now) === id ? file : undefined
}

/** Where the files of a model are, the first one first, if they all lie as a loader looks for them. */
async function originalsOf(
  files: StageParts['files'],
  store: WeightStore,
  signal: AbortSignal,
): Promise<string | undefined> {
  let main: string | undefined
  for (const { manifest } of files) {
    const file = await originalOf(manifest, store, signal)
    main ??= file
    if (main === undefined || file !== path.join(path.dirname(main), manifest.name)) return undefined
  }
  return main
}

/** The graph of the decoder of a language model, whose first file this is. */
async function readDecoder(file: string, form: DecoderForm, signal: AbortSignal): Promise<Graph> {
  const { readDecoderGraph } = await import('../text/decoder-graph.js')
  return readDecoderGraph(file, form, signal)
}

/** Options of {@link fetchStage}. */
export interface FetchStageOptions {
  readonly signal: AbortSignal
  /** That the stage is for, as progress names it. */
  readonly device?: string
  readonly onProgress?: (progress: FetchProgress) => void
  /** Hears of bytes that were fetched, and from whom. */
  readonly onFetched?: (from: string, bytes: number) => void
}

/**
 * The graph of a stage from its files, which are fetched where they are not there. Its weights stay in them.
 * @param folder - of this stage alone; a folder of that name is replaced
 * @throws SparkError as `fetchFile` and `readOnnx`; ERR_CONFLICT where another version of this library cut it
 */
export async function fetchStage(
  { files, ends, index, states, names, decoder, share }: StageParts,
  sources: readonly ChunkSource[],
  store: WeightStore,
  folder: string,
  { signal, device, onProgress, onFetched }: FetchStageOptions,
): Promise<{ graph: Graph; fetched: number; bytes: number }> {
  let [fetched, bytes] = [0, 0]
  let main = await originalsOf(files, store, signal)
  if (main === undefined) {
    await rm(folder, { recursive: true, force: true })
    for (const { manifest, ranges } of files) {
      const options = {
        ranges,
        signal,
        ...(device !== undefined && { device }),
        ...(onProgress && { onProgress }),
      }
      using file = await fetchFile(manifest, sources, store, options)
      // Weights are looked for beside the model; the store has each file in a folder of its own.
      const place = path.join(folder, manifest.name)
      await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
      await link(file.path, place)
      fetched += file.fetched
      for (const { name, bytes: given } of file.sources) if (given > 0) onFetched?.(name, given)
      bytes += file.bytes
    }
    main = path.join(folder, files[0]!.manifest.name)
  } else for (const { ranges } of files) for (const { begin, end } of ranges) bytes += end - begin
  const whole = decoder ? await readDecoder(main, decoder, signal) : await readCanonical(main, signal)
  const graph = cutGraph(whole, ends, { states: new Map(states) })[index]!
  if (JSON.stringify(namesOf(graph)) !== JSON.stringify(names))
    throw new SparkError(
      'ERR_CONFLICT',
      'this node cuts the model elsewhere: both nodes need the same version of dgx-spark',
    )
  return { graph: share ? splitGraph(graph, share).graph : graph, fetched, bytes }
}
