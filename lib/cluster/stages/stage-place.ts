// stage-place.ts: a stage of a pipeline and the node that has it.
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import type { StageEnds } from '../../graph/rewrites/cut.js'
import type { GroupSums } from './group-sums.js'
import type { Message, NamedTensors } from './messages.js'
import type { StageOptions } from './questions.js'
import type { Listener } from './stage-link.js'
import type { StageParts } from './staged-model.js'

/** A node as pipelines see it. */
export interface Seat {
  readonly nodeId: string
  /** What people call it. */
  readonly name: string
  /** Asks it about stages. @throws SparkError ERR_IO when it goes away */
  ask(question: Message, signal?: AbortSignal, onTold?: Listener): Promise<Message>
}

/** Files of a stage that come to a node. */
export interface StageProgress {
  /** What people call the node. */
  readonly node: string
  /** Name of the file. */
  readonly file: string
  /** The device that it is for: the id of a GPU, or `cpu`. */
  readonly device: string
  /** Bytes that are there, of those that the stage reads. */
  readonly bytes: number
  /** Those that it reads, in whole chunks. */
  readonly total: number
  /** Bytes per second. */
  readonly rate: number
}

/** Hears of files that come. */
export type OnProgress = (progress: StageProgress) => void

/** Neighbouring layers on a node, or on a group of nodes that share each of them. */
export interface StagePlan {
  /** Node that has them; of a group the first. */
  readonly nodeId: string
  /** All nodes of a group, by rank. */
  readonly group?: readonly string[]
  /** Number of the first node of the canonical graph. */
  readonly from: number
  /** One behind that of the last. */
  readonly end: number
  /** Which of the node's backends. */
  readonly options: StageOptions
  /** What a group sums over, once its nodes have agreed. */
  readonly sums?: GroupSums['sums']
}

/** What a node says of a stage that it has loaded. */
export interface LoadedStage {
  /** Of the files of the stage. */
  readonly bytes: number
  /** Those that came over the network now. */
  readonly fetched: number
}

/** A stage, and where it is. */
export interface Place {
  readonly plan: StagePlan
  /** The plan, and what its nodes have agreed on. */
  readonly agreed: StagePlan
  readonly ends: StageEnds
  readonly graph: Graph
  /** Its nodes: what people call them, and whether all are there. */
  readonly nodes: readonly { readonly name: string; readonly isThere: boolean }[]
  /** Whether it is the same part of the model on the same nodes. */
  equals(plan: StagePlan): boolean
  /**
   * Lets its nodes fetch what they lack and open the stage. What they have already is not opened again.
   * @throws SparkError what a node answers; ERR_IO where one is not there; the reason of the signal
   */
  load(signal: AbortSignal, onProgress: OnProgress, again?: boolean): Promise<LoadedStage>
  /** @throws SparkError what a node answers; ERR_IO where one is not there */
  ask(words: Message['words'], tensors?: NamedTensors, signal?: AbortSignal): Promise<Message>
}

/** A stage on one node. */
export class StagePlace implements Place {
  readonly plan: StagePlan
  readonly ends: StageEnds
  readonly graph: Graph
  readonly #key: string
  /** Of the node, also when it has gone. */
  readonly #name: string
  readonly #parts: () => StageParts
  readonly #seat: (nodeId: string) => Seat | undefined
  #loaded: Promise<Message> | undefined

  constructor(
    pipeline: string,
    plan: StagePlan,
    stage: { readonly graph: Graph; readonly ends: StageEnds; readonly parts: () => StageParts },
    seat: (nodeId: string) => Seat | undefined,
  ) {
    this.plan = plan
    this.graph = stage.graph
    this.ends = stage.ends
    this.#key = `${pipeline}.${plan.from}-${plan.end}`
    this.#parts = stage.parts
    this.#seat = seat
    this.#name = seat(plan.nodeId)?.name ?? plan.nodeId
  }

  get agreed(): StagePlan {
    return this.plan
  }

  get nodes(): Place['nodes'] {
    return [{ name: this.#name, isThere: this.#seat(this.plan.nodeId) !== undefined }]
  }

  equals({ nodeId, group, from, end, options }: StagePlan): boolean {
    const { plan } = this
    const isSame = !group && plan.nodeId === nodeId && plan.from === from && plan.end === end
    return isSame && plan.options.backend === options.backend
  }

  async load(signal: AbortSignal, onProgress: OnProgress, again = false): Promise<LoadedStage> {
    const { words } = await this.tell(signal, onProgress, again)
    return { bytes: Number(words.bytes), fetched: Number(words.fetched) }
  }

  /** As `load`; the answer of the node. */
  tell(signal: AbortSignal, onProgress: OnProgress, again = false): Promise<Message> {
    if (again) this.#loaded = undefined
    const question = { op: 'load', parts: this.#parts(), options: this.plan.options }
    const onTold = ({ file, device, bytes, total, rate }: Message['words']): void =>
      onProgress({
        ...{ node: this.#name, file: String(file), device: String(device) },
        ...{ bytes: Number(bytes), total: Number(total), rate: Number(rate) },
      })
    this.#loaded ??= this.ask(question, {}, signal, onTold).catch(error => {
      this.#loaded = undefined
      throw error
    })
    return this.#loaded
  }

  async ask(
    words: Message['words'],
    tensors: NamedTensors = {},
    signal?: AbortSignal,
    onTold?: Listener,
  ): Promise<Message> {
    const { nodeId } = this.plan
    const seat = this.#seat(nodeId)
    if (!seat) throw new SparkError('ERR_IO', `node ${nodeId} is not there`)
    return seat.ask({ words: { ...words, stage: this.#key }, tensors }, signal, onTold)
  }
}

/** Whether the node that was asked has gone, or has lost what it had. */
export const isLoss = (error: unknown): boolean =>
  error instanceof SparkError && (error.code === 'ERR_IO' || error.code === 'ERR_DISPOSED')
