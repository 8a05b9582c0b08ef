// own-models.ts: models that programs of this machine put on the cluster through the node that runs here.
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import { Cluster, type ClusterLoadOptions } from './cluster.js'
import { LinkChannels } from './links/channels.js'
import type { FrameStream } from './links/frame-stream.js'
import type { ClusterNode } from './node/cluster-node.js'
import { connectToOwn } from './node/own-links.js'
import type { Message, NamedTensors } from './stages/messages.js'
import type { Pipeline, PipelineEvent } from './stages/pipeline.js'
import { type Answerer, StageLink, stageFrames } from './stages/stage-link.js'

/** A part of a model, and the name of the node that has it. */
export interface NamedStage {
  readonly node: string
  readonly from: number
  readonly end: number
}

/** The options that travel. */
export type OwnModelOptions = Pick<
  ClusterLoadOptions,
  'strategy' | 'pins' | 'nodes' | 'backend' | 'precision' | 'token'
>

/** The stages of a model with the names of their nodes. */
export function namedStages({ stages }: Pipeline, { state }: ClusterNode): NamedStage[] {
  const names = new Map(state.nodes.map(({ id, name }) => [id, name]))
  const nameOf = (nodeId: string): string => names.get(nodeId) ?? nodeId
  return stages.map(({ nodeId, group = [nodeId], from, end }) => ({
    ...{ node: group.map(nameOf).join('+'), from, end },
  }))
}

const askOver = (link: FrameStream, answer: Answerer): StageLink =>
  new StageLink(new LinkChannels(link).open([stageFrames.ask, stageFrames.cancel]), answer)

/** Lets programs of this machine run models through a node: one for each link, until it ends. */
export function serveOwnModels(node: ClusterNode): void {
  node.own.onLink = link => {
    const served = new ServedModel(node, link)
    askOver(link, (question, signal) => served.answer(question, signal))
    void link.closed.then(() => served.dispose())
  }
}

class ServedModel {
  readonly #node: ClusterNode
  readonly #link: FrameStream
  #model: Pipeline | undefined

  constructor(node: ClusterNode, link: FrameStream) {
    this.#node = node
    this.#link = link
  }

  async answer({ words, tensors }: Message, signal: AbortSignal): Promise<Message> {
    if (words.op === 'load' && !this.#model) {
      this.#model = await new Cluster(this.#node).load(words.file as string, {
        ...(words.options as OwnModelOptions),
        onEvent: event => void this.#link.call('model-event', event).catch(() => {}),
        signal,
      })
      if (signal.aborted) await this.dispose()
      return { words: { stages: namedStages(this.#model, this.#node) }, tensors: {} }
    }
    if (words.op === 'run' && this.#model)
      return { words: {}, tensors: await this.#model.run(tensors, { signal }) }
    throw new SparkError('ERR_FORMAT', `a program asks for ${JSON.stringify(words.op)} out of turn`)
  }

  async dispose(): Promise<void> {
    await this.#model?.dispose()
  }
}

/** A model that the node of this machine has put on the cluster. */
export interface OwnModel {
  /** Which node has which part. */
  readonly stages: readonly NamedStage[]
  /** @throws SparkError as `Pipeline.run`; ERR_IO when the node ends */
  run(feeds: NamedTensors): Promise<NamedTensors>
  /** Frees it on all nodes. */
  close(): Promise<void>
}

/**
 * Puts a model on the cluster through the node that runs on this machine.
 * @param folder - of the node
 * @throws SparkError ERR_IO where it does not run or serves no programs; as `Cluster.load`
 */
export async function loadThroughOwnNode(
  folder: string,
  file: string,
  options: OwnModelOptions,
  onEvent: (event: PipelineEvent) => void,
): Promise<OwnModel> {
  const link = await connectToOwn(folder)
  link.handle('model-event', event => onEvent(event as PipelineEvent))
  const stages = askOver(link, () => Promise.reject(new SparkError('ERR_UNSUPPORTED', 'this is no node')))
  try {
    const { words } = await stages.ask({
      words: { op: 'load', file: path.resolve(file), options },
      tensors: {},
    })
    return {
      stages: words.stages as NamedStage[],
      run: async feeds => (await stages.ask({ words: { op: 'run' }, tensors: feeds })).tensors,
      close: () => link.close('the program has ended'),
    }
  } catch (error) {
    await link.close('the model was not loaded')
    throw error
  }
}
