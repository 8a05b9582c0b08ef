// staged-decoder.ts: the files of a language model as nodes get them: each the tensors that its layers read.
import path from 'node:path'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { type SplitOptions, splitGraph } from '../../graph/rewrites/split.js'
import { isThere } from '../../io/read-file.js'
import type { StoredTensor } from '../../io/safetensors-folder.js'
import type { WeightSource } from '../../text/architectures/config.js'
import { configuredDecoder } from '../../text/architectures/decoder.js'
import type { OpenedModel } from '../../text/files/model-files.js'
import { type DecoderForm, engineGraph } from '../../text/generation/decoder-engine.js'
import type { FilePart } from '../../weights/file-parts.js'
import { manifestsOf, namesOf, rangesOf, type StagedGraph, type StageParts } from '../stages/staged-model.js'
import type { FileManifest } from '../weights/manifest.js'
import type { WeightStore } from '../weights/weight-store.js'
import { expectDecoder } from './decoder-graph.js'

/** Files of a folder that say what its tensors mean. */
const folderFiles = ['hf_quant_config.json', 'model.safetensors.index.json'] as const

/** A language model whose stages other nodes can get. */
export class StagedDecoder implements StagedGraph {
  readonly graph: Graph
  readonly #form: DecoderForm
  readonly #manifests: ReadonlyMap<string, FileManifest>
  /** Where the tensors of initializers are, by the names of these. */
  readonly #places: ReadonlyMap<string, readonly FilePart[]>

  private constructor(
    graph: Graph,
    form: DecoderForm,
    manifests: ReadonlyMap<string, FileManifest>,
    places: ReadonlyMap<string, readonly FilePart[]>,
  ) {
    this.graph = graph
    this.#form = form
    this.#manifests = manifests
    this.#places = places
  }

  /**
   * Makes the graph of an open model, and lets a store serve its files.
   * @param source - folder or GGUF file that the model was read from
   * @throws SparkError ERR_UNSUPPORTED for what is no decoder in GGUF or safetensors; as `decoderGraph`
   */
  static async open(
    source: string,
    model: OpenedModel,
    form: DecoderForm,
    store: WeightStore,
    signal?: AbortSignal,
  ): Promise<StagedDecoder> {
    const { made } = expectDecoder(model, source)
    const { files, tensors } = await openFiles(path.resolve(source))
    const weights = new RecordedWeights(made.weights)
    const decoder = configuredDecoder(made.config, weights)
    const recorded = { ...decoder, graph: (cache: DecoderForm) => weights.watch(decoder.graph(cache)) }
    const graph = engineGraph(recorded, form)
    const manifests = await manifestsOf(files, store, signal)
    return new StagedDecoder(graph, form, manifests, weights.placesOf(tensors))
  }

  partsOf(
    stages: readonly Graph[],
    ends: readonly number[],
    index: number,
    states: ReadonlyMap<string, string>,
    share?: SplitOptions,
  ): StageParts {
    const stage = stages[index]!
    const own = share ? this.#placesOfRank(stage, share) : this.#placesOf(stage)
    const all = stages.flatMap(each => this.#placesOf(each))
    const files = rangesOf(this.#manifests, own, all)
    const names = namesOf(stage)
    const common = { files, ends, index, states: [...states], names, decoder: this.#form }
    return { ...common, ...(share && { share }) }
  }

  #placesOf({ initializers }: Graph): readonly FilePart[] {
    return [...initializers.keys()].flatMap(name => this.#places.get(name) ?? [])
  }

  /** What a rank reads: its parts of weights that stay in their files, and all of those that do not. */
  #placesOfRank(stage: Graph, share: SplitOptions): readonly FilePart[] {
    const { initializers } = splitGraph(stage, share).graph
    const whole = [...stage.initializers].filter(([, { fileParts }]) => fileParts.length === 0)
    return [
      ...[...initializers.values()].flatMap(({ fileParts }) => fileParts),
      ...whole.flatMap(([name]) => this.#places.get(name) ?? []),
    ]
  }
}

/** Where the elements of matrices are, by their names: a quantized one has several tensors. */
type Places = Map<string, readonly FilePart[]>

/** Where a tensor is that other nodes may lack; vectors are read where a model is opened. */
const matrixPlaces = (tensor: Pick<StoredTensor, 'shape' | 'fileParts'> | undefined): readonly FilePart[] =>
  tensor && tensor.shape.length > 1 ? tensor.fileParts : []

/** The files that a decoder is made of, the one first that says what it is, and where its matrices are. */
async function openFiles(source: string): Promise<{ files: string[]; tensors: Places }> {
  const { isGguf } = await import('../../io/gguf/is-gguf.js')
  if (!(await isFolder(source)) && (await isGguf(source))) {
    const { readGguf } = await import('../../io/gguf/gguf.js')
    const gguf = await readGguf(source)
    const tensors = new Map([...gguf.tensors].map(([name, tensor]) => [name, matrixPlaces(tensor)] as const))
    return { files: [...gguf.parts].map(part => path.resolve(part)), tensors }
  }
  const { openFolderTensors } = await import('../../text/files/folder-weights.js')
  const { stored, matrices } = await openFolderTensors(source)
  const files = [path.join(source, 'config.json')]
  for (const name of folderFiles) {
    const file = path.join(source, name)
    if (await isThere(file)) files.push(file)
  }
  for (const { fileParts } of stored.values()) files.push(...fileParts.map(({ file }) => file))
  const tensors = new Map([...stored].map(([name, tensor]) => [name, matrixPlaces(tensor)] as const))
  for (const [name, { parts }] of matrices)
    tensors.set(
      name,
      parts.flatMap(part => matrixPlaces(stored.get(part))),
    )
  return { files: [...new Set(files)], tensors }
}

async function isFolder(source: string): Promise<boolean> {
  const { stat } = await import('node:fs/promises')
  return (await stat(source)).isDirectory()
}

/** Weights that remember which constants their tensors became. */
class RecordedWeights implements WeightSource {
  readonly #source: WeightSource
  readonly #made = new Map<string, Constant[]>()
  #initializers: ReadonlyMap<string, Constant> = new Map()

  constructor(source: WeightSource) {
    this.#source = source
  }

  get names(): readonly string[] {
    return this.#source.names
  }

  has(name: string): boolean {
    return this.#source.has(name)
  }

  shape(name: string): readonly number[] {
    return this.#source.shape(name)
  }

  constant(name: string, transposed?: boolean): Constant {
    const constant = this.#source.constant(name, transposed)
    this.#record(name, constant)
    return constant
  }

  stack(names: readonly string[]): ReturnType<WeightSource['stack']> {
    const stack = this.#source.stack(names)
    for (const name of names) this.#record(name, stack.weight)
    return stack
  }

  /** Remembers the initializers of a graph. */
  watch(graph: Graph): Graph {
    this.#initializers = graph.initializers
    return graph
  }

  /** Where the elements of initializers are. Tensors that also became something else have no place: all nodes read them. */
  placesOf(tensors: ReadonlyMap<string, readonly FilePart[]>): Places {
    const namesOf = new Map<Constant, string[]>()
    for (const [name, constant] of this.#initializers)
      namesOf.set(constant, [...(namesOf.get(constant) ?? []), name])
    const places = new Map<string, FilePart[]>()
    for (const [tensor, constants] of this.#made) {
      if (!constants.every(constant => namesOf.has(constant))) continue
      for (const name of constants.flatMap(constant => namesOf.get(constant)!))
        places.set(name, [...(places.get(name) ?? []), ...(tensors.get(tensor) ?? [])])
    }
    return places
  }

  #record(name: string, constant: Constant): void {
    this.#made.set(name, [...(this.#made.get(name) ?? []), constant])
  }
}
