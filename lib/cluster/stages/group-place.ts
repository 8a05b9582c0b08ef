// group-place.ts: a stage that several nodes share: each is a rank with its split of the graph, and all run together.
import { randomInt } from 'node:crypto'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import type { StageEnds } from '../../graph/rewrites/cut.js'
import type { SplitOptions } from '../../graph/rewrites/split.js'
import { joinStates, type StateShapes, shareStates, stateShapesOf } from './group-states.js'
import type { GroupSums } from './group-sums.js'
import type { Message, NamedTensors } from './messages.js'
import {
  isLoss,
  type LoadedStage,
  type OnProgress,
  type Place,
  type Seat,
  StagePlace,
  type StagePlan,
} from './stage-place.js'
import type { StageParts } from './staged-model.js'

/** A stage on a group of nodes. What is asked of it goes to all of them in one order; the outputs are those of rank 0. */
export class GroupPlace implements Place {
  readonly plan: StagePlan
  readonly ends: StageEnds
  readonly graph: Graph
  readonly #ranks: readonly StagePlace[]
  /** What the ranks have joined; undefined before, and once a run has failed. */
  #group: number | undefined
  #agreed: StagePlan
  #shapes: readonly StateShapes[] = []
  #loaded: Promise<LoadedStage> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  constructor(
    pipeline: string,
    plan: StagePlan,
    stage: {
      readonly graph: Graph
      readonly ends: StageEnds
      readonly parts: (share: SplitOptions) => StageParts
    },
    seat: (nodeId: string) => Seat | undefined,
  ) {
    this.plan = plan
    this.#agreed = plan
    this.graph = stage.graph
    this.ends = stage.ends
    const { group = [], from, end, options } = plan
    this.#ranks = group.map((nodeId, rank) => {
      const parts = (): StageParts => stage.parts({ rank, world: group.length })
      const key = `${pipeline}.${rank}of${group.length}`
      return new StagePlace(key, { nodeId, from, end, options }, { ...stage, parts }, seat)
    })
  }

  get agreed(): StagePlan {
    return this.#agreed
  }

  get nodes(): Place['nodes'] {
    return this.#ranks.flatMap(({ nodes }) => nodes)
  }

  equals({ group = [], from, end, options }: StagePlan): boolean {
    const { plan } = this
    const isSame = plan.from === from && plan.end === end && `${plan.group}` === `${group}`
    return isSame && plan.options.backend === options.backend
  }

  load(signal: AbortSignal, onProgress: OnProgress, again = false): Promise<LoadedStage> {
    if (again) this.#loaded = undefined
    this.#loaded ??= this.#load(signal, onProgress, again).catch(error => {
      this.#loaded = undefined
      throw error
    })
    return this.#loaded
  }

  ask(words: Message['words'], tensors: NamedTensors = {}, signal?: AbortSignal): Promise<Message> {
    // Not the signal: a rank must not stop while others wait for it.
    const asked = this.#turn.then(() => this.#ask(words, tensors))
    this.#turn = asked.catch(() => {})
    return signal ? untilAborted(asked, signal) : asked
  }

  async #load(signal: AbortSignal, onProgress: OnProgress, again: boolean): Promise<LoadedStage> {
    const answers = await Promise.all(this.#ranks.map(rank => rank.tell(signal, onProgress, again)))
    this.#shapes = answers.map(({ words }) => stateShapesOf(words.shapes))
    const isJoined = (answer: Message): boolean => answer.words.group === this.#group
    if (this.#group === undefined || !answers.every(isJoined)) await this.#join(signal)
    const sum = (name: 'bytes' | 'fetched'): number =>
      answers.reduce((total, { words }) => total + Number(words[name]), 0)
    return { bytes: sum('bytes'), fetched: sum('fetched') }
  }

  async #join(signal: AbortSignal): Promise<void> {
    this.#group = undefined
    const group = randomInt(2 ** 32)
    const peers = this.plan.group!
    const failed = new AbortController()
    const ended = AbortSignal.any([signal, failed.signal])
    const joined = this.#ranks.map(rank => rank.ask({ op: 'join', group, peers }, {}, ended))
    for (const each of joined) each.catch(error => failed.abort(error))
    const [{ words }] = (await all(joined)) as [Message]
    const { sums, backend } = words as unknown as GroupSums
    this.#agreed = { ...this.plan, sums, options: { ...this.plan.options, backend } }
    this.#group = group
  }

  async #ask(words: Message['words'], tensors: NamedTensors): Promise<Message> {
    if (words.op === 'run') return this.#run(words, tensors)
    const shares = words.op === 'begin' ? shareStates(tensors, this.graph, this.#shapes) : []
    const answers = await all(this.#ranks.map((rank, i) => rank.ask(words, shares[i])))
    if (words.op !== 'states') return answers[0]!
    const states = answers.map(answer => answer.tensors)
    return { words: answers[0]!.words, tensors: joinStates(states, this.graph, this.#shapes) }
  }

  async #run(words: Message['words'], tensors: NamedTensors): Promise<Message> {
    const group = this.#group
    if (group === undefined) throw new SparkError('ERR_IO', 'the nodes that share the stage have not joined')
    const failed = (error: Error): void => {
      if (this.#group !== group || isForgotten(error)) return
      this.#group = undefined
      for (const rank of this.#ranks) rank.ask({ op: 'abort', group }).catch(() => {})
    }
    const running = this.#ranks.map((rank, i) => rank.ask({ ...words, quiet: i > 0 }, tensors))
    for (const each of running) each.catch(failed)
    const [first] = await all(running)
    return first!
  }
}

/** All ranks know nothing of a sequence after they have joined anew: nobody has begun to run then. */
const isForgotten = (error: Error): boolean => error instanceof SparkError && error.code === 'ERR_DISPOSED'

/** The answers of all ranks; else, when all have answered, what is wrong with the question rather than what followed from it. */
async function all(asked: readonly Promise<Message>[]): Promise<Message[]> {
  const settled = await Promise.allSettled(asked)
  const errors = settled.flatMap(each => (each.status === 'rejected' ? [each.reason] : []))
  if (errors.length > 0) throw errors.find(error => !isLoss(error)) ?? errors[0]
  return Promise.all(asked)
}

function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason)
    if (signal.aborted) aborted()
    signal.addEventListener('abort', aborted, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted))
  })
}
