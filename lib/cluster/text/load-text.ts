// load-text.ts: puts the decoder of a language model on the nodes of a cluster, and gives the model that runs there.
import { Pacer } from '../../core/paced.js'
import { decoderCuts } from '../../text/architectures/decoder.js'
import type { ModelFiles } from '../../text/files/model-files.js'
import { DecoderEngine, layerBytes } from '../../text/generation/decoder-engine.js'
import type { SchedulerLimits } from '../../text/generation/scheduler.js'
import { expectDecoderOptions, pulledPath, TextModel } from '../../text/text-model.js'
import type { TextModelOptions } from '../../text/text-options.js'
import { layerRange, type ModelCosts } from '../placement/costs.js'
import type { PlaceOptions } from '../placement/place.js'
import type { Pipeline } from '../stages/pipeline.js'
import type { StagePlan } from '../stages/stage-place.js'
import type { StagedGraph } from '../stages/staged-model.js'
import type { WeightStore } from '../weights/weight-store.js'
import { expectDecoder } from './decoder-graph.js'
import { StagedDecoder } from './staged-decoder.js'
import { StagedRunner } from './staged-runner.js'

/** Options of a language model on several nodes that one on this machine has as well. */
export type StagedTextOptions = Pick<
  TextModelOptions,
  | 'contextLength'
  | 'cacheTokens'
  | 'cacheType'
  | 'maxSequences'
  | 'batchTokens'
  | 'activations'
  | 'chatTemplate'
  | 'offline'
  | 'onProgress'
  | 'signal'
>

/** Names of {@link StagedTextOptions} that are not those of `Cluster.load`. */
export const stagedTextOptions: readonly (keyof StagedTextOptions)[] = [
  ...(['contextLength', 'cacheTokens', 'cacheType', 'maxSequences', 'batchTokens'] as const),
  ...(['activations', 'chatTemplate', 'offline', 'onProgress'] as const),
]

/** Layers of a language model on a node. */
export interface TextStage {
  /** Node that has them; of a group the first. */
  readonly nodeId: string
  /** All nodes of a group that shares them. */
  readonly group?: readonly string[]
  /** In words: `embedding, layers 0-10`. */
  readonly layers: string
  /** What a group sums over. */
  readonly sums?: StagePlan['sums']
}

/**
 * A language model on several nodes. Made by `Cluster.loadText`.
 * @example
 * const text = await cluster.loadText('model.gguf', { strategy: 'pipeline', nodes: 2 })
 * for await (const piece of text.model.generate('Once upon a time')) console.log(piece)
 * await text.dispose()
 */
export class ClusterText {
  /**
   * The model: all that one on this machine has, but that sessions are saved without keys and values, which are computed again.
   */
  readonly model: TextModel
  readonly #opened: Opened

  /** @internal */
  constructor(model: TextModel, opened: Opened) {
    this.model = model
    this.#opened = opened
  }

  /** Where the layers are now, first to last. */
  get stages(): TextStage[] {
    const { pipeline, costs } = this.#opened
    const behind = (end: number): number => costs.layers.findIndex(layer => layer.end === end) + 1
    return pipeline.stages.map(({ nodeId, group, from, end, sums }) => ({
      nodeId,
      ...(group && { group }),
      ...(sums && { sums }),
      layers: layerRange(costs, from === 0 ? 0 : behind(from), behind(end)),
    }))
  }

  /** Ends all texts with ERR_DISPOSED, and frees the stages on their nodes. */
  async dispose(): Promise<void> {
    await this.#opened.engine.close()
  }

  /** As {@link ClusterText.dispose}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose()
  }
}

/** What a {@link ClusterText} is made of. */
interface Opened {
  readonly engine: DecoderEngine
  readonly pipeline: Pipeline
  readonly costs: ModelCosts
}

/** Puts a graph on nodes, and loads it there. */
export type OpenPipeline = (model: StagedGraph, costs: ModelCosts, load: PlaceOptions) => Promise<Pipeline>

/**
 * Loads a language model whose layers are on several nodes.
 * @throws SparkError as `TextModel.load`; what `openPipeline` throws
 */
export async function loadText(
  source: string,
  options: StagedTextOptions,
  store: WeightStore,
  openPipeline: OpenPipeline,
): Promise<ClusterText> {
  expectDecoderOptions(options)
  const { readModelFiles } = await import('../../text/files/model-files.js')
  const path = await pulledPath(source, options)
  const files = await readModelFiles(path, new Pacer(options.signal))
  let opened: Opened | undefined
  const model = await TextModel.ofDecoder(files, options, async () => {
    opened = await openEngine(path, files, options, store, openPipeline)
    return opened.engine
  })
  return new ClusterText(model, opened!)
}

async function openEngine(
  source: string,
  { model }: ModelFiles,
  options: StagedTextOptions,
  store: WeightStore,
  openPipeline: OpenPipeline,
): Promise<Opened> {
  let parts: Omit<Opened, 'engine'> | undefined
  const { decoder } = expectDecoder(model, source)
  const engine = await DecoderEngine.open(decoder, options, {
    // Placement counts the memory of each node.
    availableBytes: async () => Number.POSITIVE_INFINITY,
    open: async (_, form, limits) => {
      const staged = await StagedDecoder.open(source, model, form, store, options.signal)
      const costs = await costsOf(
        source,
        staged,
        decoder.sizes.layers.map(layer => layerBytes(layer, form.cacheType)),
      )
      const pipeline = await openPipeline(staged, costs, loadOf(limits))
      parts = { pipeline, costs }
      const [first] = pipeline.stages
      const backend = first!.options.backend as 'cpu'
      const nodes = new Set(pipeline.stages.flatMap(({ nodeId, group = [nodeId] }) => group))
      const reason = `layers are on nodes of a cluster: ${nodes.size}`
      return new StagedRunner(pipeline, pipeline.states.values(), { name: backend, reason })
    },
  })
  return { engine, ...parts! }
}

/** Sequences that placement takes; no memory has room for as many. */
const mostSequences = 1e6

/** Tokens that nodes have memory for, as sequences of the whole context. */
function loadOf({ blocks, blockSize, context }: SchedulerLimits): PlaceOptions {
  const tokens = blocks * blockSize
  const length = Math.min(context, tokens)
  return { context: length, sequences: Math.min(Math.ceil(tokens / length), mostSequences) }
}

/** What the layers cost, with the places where the graph is cut behind them. */
async function costsOf(
  source: string,
  { graph }: StagedGraph,
  cacheBytes: readonly number[],
): Promise<ModelCosts> {
  const { modelCosts } = await import('../placement/model-costs.js')
  const costs = await modelCosts(source)
  const ends = decoderCuts(
    graph,
    Array.from({ length: costs.layers.length - 1 }, (_, i) => i),
  )
  const layers = costs.layers.map((layer, i) => {
    const stateBytes = cacheBytes[i - 1] ?? 0
    return { ...layer, end: ends[i] ?? graph.nodes.length, stateBytes, window: Number.POSITIVE_INFINITY }
  })
  return { ...costs, layers }
}
