// stage-host.ts: the stages that a node has for others: models that are parts of theirs, and the states of their sequences.
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { Model } from '../../model/model.js'
import type { ModelOptions } from '../../model/model-options.js'
import type { StatefulModel } from '../../model/stateful-model.js'
import { Fabric } from '../links/fabric.js'
import type { Grant } from '../trust/token-gate.js'
import type { FetchProgress } from '../weights/fetch-chunks.js'
import type { ChunkSource } from '../weights/sources.js'
import type { WeightStore } from '../weights/weight-store.js'
import { GroupRank } from './group-rank.js'
import { type StateShapes, shapesOf } from './group-states.js'
import type { Message, NamedTensors } from './messages.js'
import {
  checkQuestion,
  type GroupQuestion,
  type LoadQuestion,
  modelOptionsOf,
  type RunQuestion,
} from './questions.js'
import type { RankChannels } from './rank-channels.js'
import type { Listener } from './stage-link.js'
import { fetchStage } from './staged-model.js'

/** Stages are kept for so long after their owner has gone, so that nothing is loaded again when it comes back, ms. */
const graceMs = 30_000
/** Stages and sequences of one owner. */
const maxStages = 256
/** A file that comes is told of so often at most, ms. */
const tellMs = 1000
const maxSequences = 4096

/** What a {@link StageHost} needs of its node. */
export interface StageHostOptions {
  /** Where stages have their files. */
  readonly folder: string
  readonly store: WeightStore
  /** Nodes that may have chunks. */
  readonly sources: () => readonly ChunkSource[]
  /** What ranks of a group send to another node; undefined where there is no link to it. */
  readonly ranks: (nodeId: string) => RankChannels | undefined
  /** Networks that may carry plaintext. Default: this machine's loopback only. */
  readonly fabric?: Fabric
  /** The GPU, by the id that tokens name it by, that a model with these options runs on; undefined for the processor. */
  readonly gpuOf?: (options: ModelOptions) => Promise<string | undefined>
  /** Hears what is loaded, computed and freed for whom. */
  readonly onUse?: (use: StageUse) => void
}

/** What a node did for another. */
export interface StageUse {
  readonly op: 'load' | 'compute' | 'free' | 'transfer'
  /** The node that asked, or that gave weights. */
  readonly who: string
  /** Id of the token. */
  readonly jti?: string
  /** Of weights, of tensors, or that were freed or fetched. */
  readonly bytes: number
  /** `ok`, or what went wrong. */
  readonly result: string
}

/** A sequence of runs whose outputs become inputs of the next. */
interface Sequence {
  readonly model: StatefulModel
  /** Runs that are done. */
  step: number
  /** The results of the last one: who did not get them asks again. */
  last: NamedTensors
  /** The run before: of two that are asked for at a time the second sees what the first has done. */
  turn: Promise<unknown>
}

/** Says what the holder of a token may do. @throws SparkError ERR_DENIED, ERR_BUSY */
export type Admission = (token: string) => Promise<Grant>

/** Who asks, beside its question. */
export interface Asker {
  /** Checks tokens; this node itself needs none. */
  readonly admit?: Admission
  /** Hears of files that come for a stage. */
  readonly tell?: Listener
}

interface Loaded {
  /** Undefined for a rank that has joined no group. */
  readonly model: Model | undefined
  /** Of a stage that several nodes share. */
  readonly rank: GroupRank | undefined
  /** Of the token that it was loaded with. */
  readonly grant: Grant | undefined
  /** Undefined for the processor. */
  readonly gpu: string | undefined
  /** Its bytes count no more. */
  readonly release: () => void
  /** Inputs that are states, and the outputs that replace them. */
  readonly states: readonly (readonly [string, string])[]
  /** Sizes of the states. */
  readonly shapes: StateShapes
  readonly bytes: number
  /** Weights are read from here when they are needed. */
  readonly folder: string
  readonly sequences: Map<string, Sequence>
}

/** Has stages, runs them, keeps their states. */
export class StageHost {
  readonly #options: StageHostOptions
  readonly #stages = new Map<string, Loaded | Promise<Loaded>>()
  readonly #leaving = new Map<string, NodeJS.Timeout>()
  #folders = 0

  constructor(options: StageHostOptions) {
    this.#options = options
  }

  /** Stages by owner: how many, and the bytes of their weights. */
  get stages(): { owner: string; bytes: number }[] {
    return [...this.#stages].flatMap(([key, stage]) =>
      stage instanceof Promise ? [] : [{ owner: key.slice(0, key.indexOf('/')), bytes: stage.bytes }],
    )
  }

  /**
   * Answers a question of a node about its own stages.
   * @throws SparkError
   */
  async answer(
    owner: string,
    { words, tensors }: Message,
    signal: AbortSignal,
    asker: Asker = {},
  ): Promise<Message> {
    const question = checkQuestion(words)
    const key = `${owner}/${question.stage}`
    if (question.op === 'load') return this.#load(owner, key, question, signal, asker)
    if (question.op === 'unload') {
      await this.#unload(key)
      return said({})
    }
    const stage = await this.#stages.get(key)
    if (!stage)
      throw new SparkError('ERR_DISPOSED', `stage ${question.stage} is not here any more: load it again`)
    if ('group' in question) return this.#group(stage, question, signal)
    if (question.op === 'run') return this.#run(owner, stage, question, tensors, signal)
    if (question.op === 'begin') {
      this.#drop(stage, question.sequence)
      this.#begin(stage, question.sequence, question.step, tensors)
      return said({})
    }
    if (question.op === 'end') {
      this.#drop(stage, question.sequence)
      return said({})
    }
    const sequence = stage.sequences.get(question.sequence)
    if (!sequence) throw lostSequence(question.sequence)
    return { words: { step: sequence.step }, tensors: await sequence.model.states() }
  }

  /** A node has gone; what it has here is freed unless it comes back. */
  lost(owner: string): void {
    this.found(owner)
    const timer = setTimeout(() => {
      this.#leaving.delete(owner)
      for (const key of this.#stages.keys()) if (key.startsWith(`${owner}/`)) void this.#unload(key)
    }, graceMs)
    this.#leaving.set(owner, timer.unref())
  }

  /** A node is there. */
  found(owner: string): void {
    clearTimeout(this.#leaving.get(owner))
    this.#leaving.delete(owner)
  }

  /** Frees all. */
  async close(): Promise<void> {
    for (const timer of this.#leaving.values()) clearTimeout(timer)
    await Promise.all([...this.#stages.keys()].map(key => this.#unload(key)))
  }

  async #load(
    owner: string,
    key: string,
    question: LoadQuestion,
    signal: AbortSignal,
    { admit, tell }: Asker,
  ): Promise<Message> {
    const { token } = question.options
    const grant = token === undefined ? undefined : await admit?.(token)
    grant?.step('model:load')
    const known = this.#stages.get(key)
    if (known) return said({ ...told(await known), fetched: 0 })
    const own = [...this.#stages.keys()].filter(each => each.startsWith(`${owner}/`))
    if (own.length >= maxStages)
      throw new SparkError('ERR_BUSY', `a node has at most ${maxStages} stages here`)
    let fetched = 0
    const loading = this.#open(key, question, signal, { grant, tell }).then(opened => {
      fetched = opened.fetched
      return opened.loaded
    })
    this.#stages.set(key, loading)
    try {
      const loaded = await loading
      this.#stages.set(key, loaded)
      this.#told('load', owner, loaded.bytes, grant)
      return said({ ...told(loaded), fetched })
    } catch (error) {
      this.#stages.delete(key)
      this.#told('load', owner, 0, grant, (error as Error).message)
      throw error
    }
  }

  async #open(
    key: string,
    { parts, options }: LoadQuestion,
    asked: AbortSignal,
    { grant, tell }: { grant: Grant | undefined; tell: Listener | undefined },
  ): Promise<{ loaded: Loaded; fetched: number }> {
    const { store, sources, folder, ranks, fabric = new Fabric() } = this.#options
    const own = path.join(folder, `${process.pid}-${this.#folders++}`)
    const signal = whileGranted(asked, grant)
    let release = (): void => {}
    try {
      const given = modelOptionsOf(options)
      const gpu = await this.#options.gpuOf?.(given)
      const { graph, fetched, bytes } = await fetchStage(parts, sources(), store, own, {
        ...{ signal, device: gpu ?? 'cpu' },
        ...(tell && { onProgress: seldom(tell) }),
        onFetched: (from, count) => this.#told('transfer', from, count, grant),
      })
      const { share } = parts
      release = grant?.allocate(weightBytesOf(graph), gpu, () => this.#erase(key)) ?? release
      const rank = share && new GroupRank({ graph, share, options, channels: ranks, fabric })
      const model = share ? undefined : await Model.fromGraph(graph, { ...given, signal })
      const states = statesOf(graph, parts.states)
      const shapes = shapesOf(graph, new Map(states).keys())
      const made = { model, rank, states, shapes, bytes, folder: own, grant, gpu, release }
      const loaded = { ...made, sequences: new Map() }
      return { loaded, fetched }
    } catch (error) {
      release()
      await rm(own, { recursive: true, force: true })
      throw error
    }
  }

  async #group(stage: Loaded, question: GroupQuestion, signal: AbortSignal): Promise<Message> {
    const { rank, sequences } = stage
    if (!rank) throw new SparkError('ERR_ARGUMENT', `stage ${question.stage} is that of one node`)
    if (question.op === 'abort') {
      rank.abort(question.group, 'another rank failed')
      return said({})
    }
    for (const name of [...sequences.keys()]) this.#drop(stage, name)
    await rank.join(question, signal)
    return said(sumsOf(rank))
  }

  async #run(
    owner: string,
    stage: Loaded,
    question: RunQuestion,
    tensors: NamedTensors,
    signal: AbortSignal,
  ): Promise<Message> {
    const { grant, gpu } = stage
    const { outputs, quiet } = question
    const options = { signal: whileGranted(signal, grant), ...(outputs && { outputs }) }
    const given = (results: NamedTensors): Message => ({ words: {}, tensors: quiet ? {} : results })
    if (question.sequence === undefined) {
      grant?.step('gpu:compute', gpu)
      const results = (await modelOf(stage).run(tensors, options)) as NamedTensors
      this.#told('compute', owner, bytesOf(results), grant)
      return given(results)
    }
    const { sequence: name, step } = question
    const sequence = stage.sequences.get(name)
    if (!sequence) throw lostSequence(name)
    const act = async (): Promise<Message> => {
      grant?.step('gpu:compute', gpu)
      // Who lost its link before the answer came asks again, and the state must not move on twice.
      if (step === sequence.step - 1) return given(sequence.last)
      if (step !== sequence.step)
        throw new SparkError('ERR_CONFLICT', `sequence ${name} is at step ${sequence.step}, not at ${step}`)
      const results = (await sequence.model.run(tensors, options)) as NamedTensors
      sequence.last = results
      sequence.step++
      this.#told('compute', owner, bytesOf(results), grant)
      return given(results)
    }
    const done = sequence.turn.then(act)
    sequence.turn = done.catch(() => {})
    return done
  }

  #begin(stage: Loaded, name: string, step: number, initial: NamedTensors): void {
    if (stage.sequences.size >= maxSequences)
      throw new SparkError('ERR_BUSY', `a stage has at most ${maxSequences} sequences`)
    const model = modelOf(stage).bindState(Object.fromEntries(stage.states), { initial })
    stage.sequences.set(name, { model, step, last: {}, turn: Promise.resolve() })
  }

  #drop({ sequences }: Loaded, name: string): void {
    sequences.get(name)?.model.dispose()
    sequences.delete(name)
  }

  /** The token of a stage has ended: what it computed is zeroed at once, and all of it is freed. */
  #erase(key: string): void {
    const stage = this.#stages.get(key)
    if (stage && !(stage instanceof Promise))
      for (const { last } of stage.sequences.values())
        for (const { data } of Object.values(last)) zero(data as Uint8Array)
    void this.#unload(key)
  }

  async #unload(key: string): Promise<void> {
    const stage = await Promise.resolve(this.#stages.get(key)).catch(() => undefined)
    if (!stage || !this.#stages.delete(key)) return
    for (const { model } of stage.sequences.values()) model.dispose()
    stage.model?.dispose()
    await stage.rank?.leave('the stage is freed')
    stage.release()
    await rm(stage.folder, { recursive: true, force: true })
    this.#told('free', key.slice(0, key.indexOf('/')), stage.bytes, stage.grant)
  }

  #told(op: StageUse['op'], who: string, bytes: number, grant?: Grant, result = 'ok'): void {
    this.#options.onUse?.({ op, who, bytes, result, ...(grant && { jti: grant.claims.jti }) })
  }
}

/** Tells of files that come, each once a second and when all of it is there. */
function seldom(tell: Listener): (progress: FetchProgress) => void {
  const last = new Map<string, number>()
  return progress => {
    const { file, bytes, total, rate } = progress
    const now = performance.now()
    if (rate === 0 || (bytes < total && now - (last.get(file) ?? Number.NEGATIVE_INFINITY) < tellMs)) return
    last.set(file, now)
    tell({ ...progress })
  }
}

/** Aborts when the asker does not want it any more, and when its token ends. */
const whileGranted = (asked: AbortSignal, grant: Grant | undefined): AbortSignal =>
  grant ? AbortSignal.any([asked, grant.signal]) : asked

const zero = ({ buffer, byteOffset, byteLength }: Uint8Array): void => {
  new Uint8Array(buffer, byteOffset, byteLength).fill(0)
}

const said = (words: Message['words']): Message => ({ words, tensors: {} })

const bytesOf = (tensors: NamedTensors): number =>
  Object.values(tensors).reduce((sum, { data }) => sum + (data as Uint8Array).byteLength, 0)

/** What a stage needs in memory, whatever its asker says of its files. */
const weightBytesOf = ({ initializers }: Graph): number =>
  [...initializers.values()].reduce((sum, { byteLength }) => sum + byteLength, 0)

const lostSequence = (name: string): SparkError =>
  new SparkError('ERR_DISPOSED', `sequence ${name} is not here any more: begin it again`)

const told = ({ bytes, rank, shapes }: Loaded): Message['words'] => ({
  bytes,
  ...(rank && { group: rank.group, shapes, ...sumsOf(rank) }),
})

const sumsOf = ({ sums }: GroupRank): Message['words'] =>
  sums ? { sums: sums.sums, backend: sums.backend } : {}

function modelOf({ model, rank }: Loaded): Model {
  const own = model ?? rank?.model
  if (!own) throw new SparkError('ERR_DISPOSED', 'the nodes that share the stage have not joined')
  return own
}

/** Those of the pairs that this stage has. */
function statesOf(
  { inputs }: Graph,
  pairs: readonly (readonly [string, string])[],
): readonly (readonly [string, string])[] {
  const names = new Set(inputs.map(({ name }) => name))
  return pairs.filter(([input]) => names.has(input))
}
