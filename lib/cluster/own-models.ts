// own-models.ts: models that programs of this machine put on the cluster through the node that runs here.
import path from 'node:path'
import { Cluster } from './cluster.js'
import type { FrameStream } from './links/frame-stream.js'
import type { ClusterNode } from './node/cluster-node.js'
import { askOwnNode, namesOf, type OwnModelOptions, outOfTurn, type Served, tellEvents } from './own-link.js'
import type { Message, NamedTensors } from './stages/messages.js'
import type { Pipeline, PipelineEvent } from './stages/pipeline.js'
import type { StagePlan } from './stages/stage-place.js'

/** A part of a model, and the name of the node that has it. */
export interface NamedStage {
  readonly node: string
  readonly from: number
  readonly end: number
  /** What several nodes that share the part sum over. */
  readonly sums?: StagePlan['sums']
}

/** The stages of a model with the names of their nodes. */
export function namedStages({ stages }: Pipeline, node: ClusterNode): NamedStage[] {
  const nameOf = namesOf(node)
  return stages.map(({ nodeId, group = [nodeId], from, end, sums }) => ({
    ...{ node: group.map(nameOf).join('+'), from, end },
    ...(sums && { sums }),
  }))
}

/** A model of a program, on the node that has put it on the cluster. */
export class ServedModel implements Served {
  readonly #node: ClusterNode
  readonly #link: FrameStream
  #model: Pipeline | undefined

  constructor(node: ClusterNode, link: FrameStream) {
    this.#node = node
    this.#link = link
  }

  async answer(question: Message, signal: AbortSignal): Promise<Message> {
    const { words, tensors } = question
    if (words.op === 'load' && !this.#model) {
      this.#model = await new Cluster(this.#node).load(words.file as string, {
        ...(words.options as OwnModelOptions),
        onEvent: tellEvents(this.#link),
        signal,
      })
      if (signal.aborted) await this.dispose()
      return { words: { stages: namedStages(this.#model, this.#node) }, tensors: {} }
    }
    if (words.op === 'run' && this.#model)
      return { words: {}, tensors: await this.#model.run(tensors, { signal }) }
    throw outOfTurn(question)
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
 * @throws SparkError as {@link askOwnNode}; as `Cluster.load`
 */
export async function loadThroughOwnNode(
  folder: string,
  file: string,
  options: OwnModelOptions,
  onEvent: (event: PipelineEvent) => void,
): Promise<OwnModel> {
  const words = { op: 'load', file: path.resolve(file), options }
  const link = await askOwnNode(folder, words, onEvent)
  return {
    stages: link.words.stages as NamedStage[],
    run: async feeds => (await link.ask({ words: { op: 'run' }, tensors: feeds })).tensors,
    close: () => link.close(),
  }
}
