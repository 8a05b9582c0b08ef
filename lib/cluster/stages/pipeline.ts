// pipeline.ts: a model whose stages are on several nodes. What goes from stage to stage passes here, so that a stage whose node
// has gone can be built again elsewhere.
import { randomUUID } from 'node:crypto'
import { expectKnownOptions, expectSignal } from '../../core/checks.js'
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { namedStates } from '../../graph/edit.js'
import { cutGraph, stageEnds } from '../../graph/rewrites/cut.js'
import type { SplitOptions } from '../../graph/rewrites/split.js'
import { Tensor } from '../../memory/tensor.js'
import { copyFeeds, type Feeds } from '../../model/feeds.js'
import { GroupPlace } from './group-place.js'
import type { NamedTensors } from './messages.js'
import { PipelineSequence } from './sequence.js'
import {
  isLoss,
  type LoadedStage,
  type Place,
  type Seat,
  StagePlace,
  type StagePlan,
  type StageProgress,
} from './stage-place.js'
import type { StagedGraph } from './staged-model.js'

/** What happens to a pipeline. */
export interface PipelineEvent {
  /** A file comes to a node; a node has loaded its stage; nodes have gone; all are back; stages went to other nodes; a GPU failed, and the CPU has its stage. */
  readonly type: 'fetching' | 'loaded' | 'lost' | 'returned' | 'moved' | 'failed'
  /** Names of the nodes. */
  readonly nodes: readonly string[]
  /** Of `fetching`: what comes, and for which device. */
  readonly progress?: StageProgress
  /** Of `lost`: the parts of the model that are missing. */
  readonly stages?: readonly Pick<StagePlan, 'from' | 'end'>[]
  /** Of `loaded`: bytes of the stage's files. */
  readonly bytes?: number
  /** Of `loaded`: those that came over the network now. */
  readonly fetched?: number
  /** Of `lost` and `failed`: why, in words. */
  readonly why?: string
  /** Of `returned` and `moved`: milliseconds since the first of them was missed. */
  readonly ms?: number
}

/** What a {@link Pipeline} needs of its cluster. */
export interface PipelineParts {
  readonly model: StagedGraph
  readonly plans: readonly StagePlan[]
  readonly seat: (nodeId: string) => Seat | undefined
  /** Where stages go when nodes have gone: those that can stay stay. */
  readonly replan: (current: readonly StagePlan[], signal: AbortSignal) => Promise<readonly StagePlan[]>
  /** How long a node that has gone is waited for, ms. */
  readonly graceMs: number
  readonly onEvent: (event: PipelineEvent) => void
}

/** How often a run is tried again after nodes have gone. */
const maxTries = 8
const pollMs = 50

/**
 * A model on several nodes, with the `run` of a model on one. Several runs at a time keep all stages busy. The results are those of one
 * machine, bit for bit, where all nodes compute alike. Made by `Cluster.load`.
 * @example
 * const model = await cluster.load('model.onnx')
 * const results = await Promise.all(batches.map(image => model.run({ image })))
 * await model.dispose()
 */
export class Pipeline {
  readonly #parts: PipelineParts
  readonly #id = randomUUID().slice(0, 18)
  readonly #states: ReadonlyMap<string, string>
  #stages: readonly Place[]
  #mending: Promise<void> | undefined
  /** Ends loading, and the wait for nodes that have gone. */
  readonly #stop = new AbortController()
  #isDisposed = false

  /** @internal */
  constructor(parts: PipelineParts) {
    this.#parts = parts
    const { inputs, outputs } = parts.model.graph
    this.#states = namedStates(inputs, outputs)
    this.#stages = this.#placed(parts.plans)
  }

  /** Names of the inputs. */
  get inputs(): readonly string[] {
    return this.#parts.model.graph.inputs.map(({ name }) => name)
  }

  /** Names of the outputs. */
  get outputs(): readonly string[] {
    return this.#parts.model.graph.outputs.map(({ name }) => name)
  }

  /** Outputs by the inputs that they replace in the next run. @internal */
  get states(): ReadonlyMap<string, string> {
    return this.#states
  }

  /** Where the stages are now. */
  get stages(): readonly StagePlan[] {
    return this.#stages.map(({ agreed }) => agreed)
  }

  /**
   * Runs the model.
   * @param feeds - as `Model.run` takes them
   * @returns the outputs by name
   * @throws SparkError as `Model.run`; ERR_IO when nodes have gone and no others can hold their stages
   */
  async run(
    feeds: Feeds,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<Record<string, Tensor<ElementType>>> {
    expectKnownOptions('options', options, ['signal'])
    expectSignal('options.signal', options.signal)
    const values = this.#valuesOf(feeds, new Set())
    const run = (stage: Place, wanted: NamedTensors, outputs: readonly string[]) =>
      stage.ask({ op: 'run', outputs }, wanted, options.signal)
    await this.pass(
      values,
      new Set(),
      async (stage, own, outputs) => (await run(stage, own, outputs)).tensors,
    )
    return Object.fromEntries(this.outputs.map(name => [name, values.get(name)!]))
  }

  /**
   * A sequence of runs whose `past…` inputs are the `present…` outputs of the run before, as `Model.bindState` has them. States stay
   * on the nodes of their stages; when one has gone, they are computed again from what its stages were given.
   * @throws SparkError ERR_ARGUMENT for a model without states
   */
  bindState(): PipelineSequence {
    if (this.#states.size === 0)
      throw new SparkError(
        'ERR_ARGUMENT',
        'the model has no outputs that replace inputs, such as present… and past…',
      )
    return new PipelineSequence({
      states: this.#states,
      outputs: this.outputs.filter(name => ![...this.#states.values()].includes(name)),
      stages: () => this.#stages,
      valuesOf: feeds => this.#valuesOf(feeds, new Set(this.#states.keys())),
      pass: (values, run) => this.pass(values, new Set(this.#states.values()), run),
    })
  }

  /** Frees the states of a sequence on all nodes that are there. @internal */
  async endSequence(sequence: string): Promise<void> {
    await Promise.allSettled(this.#stages.map(stage => stage.ask({ op: 'end', sequence })))
  }

  /**
   * Lets all nodes load their stages; where one goes meanwhile, its stage goes elsewhere. A pipeline that was not loaded is disposed.
   * @throws SparkError; the reason of the signal
   * @internal
   */
  async load(signal?: AbortSignal): Promise<void> {
    const aborted = (): void => this.#stop.abort(signal!.reason)
    if (signal?.aborted) aborted()
    signal?.addEventListener('abort', aborted)
    try {
      await this.#surviving(() => this.#load())
    } catch (error) {
      await this.dispose()
      throw error
    } finally {
      signal?.removeEventListener('abort', aborted)
    }
  }

  async #load(): Promise<void> {
    this.#stop.signal.throwIfAborted()
    await Promise.all(
      this.#stages.map(async stage => {
        const { bytes, fetched } = await namingStage(stage, this.#loadStage(stage))
        this.#parts.onEvent({ type: 'loaded', nodes: nodesOf([stage]), bytes, fetched })
      }),
    )
  }

  #loadStage(stage: Place, again = false): Promise<LoadedStage> {
    const onProgress = (progress: StageProgress): void =>
      this.#parts.onEvent({ type: 'fetching', nodes: [progress.node], progress })
    return stage.load(this.#stop.signal, onProgress, again)
  }

  /** Frees the stages on their nodes. */
  async dispose(): Promise<void> {
    if (this.#isDisposed) return
    this.#isDisposed = true
    this.#stop.abort(disposedError())
    await this.#mending?.catch(() => {})
    await Promise.allSettled(this.#stages.map(stage => stage.ask({ op: 'unload' })))
  }

  #valuesOf(feeds: Feeds, leftOut: ReadonlySet<string>): Map<string, Tensor<ElementType>> {
    if (this.#isDisposed) throw disposedError()
    const inputs = this.#parts.model.graph.inputs.filter(({ name }) => !leftOut.has(name))
    const values = new Map<string, Tensor<ElementType>>()
    for (const [i, value] of copyFeeds(inputs, feeds).entries()) {
      const { name } = inputs[i]!
      if (value.kind === 'sequence')
        throw new SparkError('ERR_UNSUPPORTED', `input ${name} is a sequence, which stays on its node`)
      if (value.kind === 'tensor')
        values.set(name, Tensor.of(value.data as never, value.shape, value.dtype as ElementType))
    }
    return values
  }

  /**
   * Runs all stages whose results are not there yet.
   * @param values - by name; those that stages make are added
   * @param leftOut - outputs that stay on the nodes
   * @throws SparkError as {@link Pipeline.run}; what `run` throws
   * @internal
   */
  async pass(
    values: Map<string, Tensor<ElementType>>,
    leftOut: ReadonlySet<string>,
    run: (stage: Place, own: NamedTensors, outputs: readonly string[]) => Promise<NamedTensors>,
  ): Promise<void> {
    return this.#surviving(async () => {
      for (const stage of this.#stages) {
        const { feeds, takes, gives, results } = stage.ends
        const outputs = [...new Set([...results, ...gives])].filter(name => !leftOut.has(name))
        if (outputs.every(name => values.has(name))) continue
        const own = [...feeds, ...takes].flatMap(name =>
          values.has(name) ? [[name, values.get(name)!]] : [],
        )
        const made = await namingStage(stage, run(stage, Object.fromEntries(own), outputs))
        for (const [name, tensor] of Object.entries(made)) values.set(name, tensor)
      }
    })
  }

  /** Does something with all stages, and again when those of nodes that went are back or elsewhere. */
  async #surviving(act: () => Promise<void>): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return await act()
      } catch (error) {
        const failed = error instanceof DeviceFailure ? error : undefined
        const isLast = tries >= maxTries || this.#stop.signal.aborted
        if ((!failed && !isLoss(error)) || isLast) throw failed?.cause ?? error
        this.#mending ??= (failed ? this.#toCpu(failed) : this.#mend(error as Error)).finally(() => {
          this.#mending = undefined
        })
        await this.#mending.catch(again => {
          // Another node has gone meanwhile.
          if (!isLoss(again) && !(again instanceof DeviceFailure)) throw again
        })
      }
    }
  }

  /** A stage whose GPU has failed goes to the CPU of its node. @throws SparkError what the GPU said, where it is there already */
  async #toCpu({ stage, cause }: DeviceFailure): Promise<void> {
    // Another run has met it before.
    if (!this.#stages.includes(stage)) return
    if (stage.agreed.options.backend === 'cpu') throw cause
    this.#parts.onEvent({ type: 'failed', nodes: nodesOf([stage]), why: cause.message })
    await stage.ask({ op: 'unload' }).catch(error => debug((error as Error).message))
    const plans = this.#stages.map(({ plan }) =>
      plan === stage.plan ? { ...plan, options: { ...plan.options, backend: 'cpu' as const } } : plan,
    )
    this.#stages = this.#placed(plans, this.#stages)
    await this.#load()
  }

  /** Waits for nodes that have gone; puts their stages elsewhere when they do not return, or cannot load them. */
  async #mend(error: Error): Promise<void> {
    const { graceMs, onEvent } = this.#parts
    const start = performance.now()
    const ms = (): number => performance.now() - start
    const missing = (): Place[] => this.#stages.filter(stage => !isWhole(stage))
    let isTold = false
    do {
      if (missing().length > 0 && !isTold) {
        const stages = missing().map(({ plan: { from, end } }) => ({ from, end }))
        onEvent({ type: 'lost', nodes: goneOf(missing()), stages, why: error.message })
        isTold = true
      }
      while (missing().length > 0 && ms() < graceMs && !this.#stop.signal.aborted) await pause(pollMs)
      if (missing().length === 0 && (await this.#reload())) {
        onEvent({ type: 'returned', nodes: nodesOf(this.#stages), ms: ms() })
        return
      }
      await pause(pollMs)
    } while (ms() < graceMs && !this.#stop.signal.aborted)
    await this.#move()
    onEvent({ type: 'moved', nodes: nodesOf(this.#stages), ms: ms() })
  }

  /** A node that was restarted has nothing; one whose link broke has all of it. Whether all nodes could be asked. */
  async #reload(): Promise<boolean> {
    this.#stop.signal.throwIfAborted()
    try {
      await Promise.all(this.#stages.map(stage => namingStage(stage, this.#loadStage(stage, true))))
      return true
    } catch (error) {
      if (isLoss(error)) return false
      throw error
    }
  }

  async #move(): Promise<void> {
    const { signal } = this.#stop
    signal.throwIfAborted()
    const before = this.#stages
    const plans = await this.#parts.replan(this.stages, signal)
    signal.throwIfAborted()
    const stages = this.#placed(plans, before)
    this.#stages = stages
    const gone = before.filter(stage => !stages.includes(stage))
    await Promise.allSettled(gone.map(stage => stage.ask({ op: 'unload' })))
    await this.#load()
  }

  #placed(plans: readonly StagePlan[], before: readonly Place[] = []): Place[] {
    const { model, seat } = this.#parts
    const ends = plans.slice(0, -1).map(({ end }) => end)
    const graphs = cutGraph(model.graph, ends, { states: this.#states })
    const described = stageEnds(model.graph, graphs, this.#states)
    return plans.map((plan, i) => {
      const parts = (share?: SplitOptions) => model.partsOf(graphs, ends, i, this.#states, share)
      const stage = { graph: graphs[i]!, ends: described[i]!, parts }
      const Held = plan.group ? GroupPlace : StagePlace
      return before.find(each => each.equals(plan)) ?? new Held(this.#id, plan, stage, seat)
    })
  }
}

const isWhole = ({ nodes }: Place): boolean => nodes.every(({ isThere }) => isThere)

const nodesOf = (stages: readonly Place[]): string[] => [
  ...new Set(stages.flatMap(({ nodes }) => nodes.map(({ name }) => name))),
]

const goneOf = (stages: readonly Place[]): string[] => [
  ...new Set(stages.flatMap(({ nodes }) => nodes.flatMap(({ name, isThere }) => (isThere ? [] : [name])))),
]

/** A stage whose device failed while it ran. */
class DeviceFailure extends Error {
  override readonly cause: SparkError
  readonly stage: Place

  constructor(stage: Place, cause: SparkError) {
    super(cause.message)
    this.stage = stage
    this.cause = cause
  }
}

/** A kernel that ran for too long (CUDA error 702), a GPU that is lost, memory of another one that cannot be reached. */
const namingStage = <T>(stage: Place, asked: Promise<T>): Promise<T> =>
  asked.catch(error => {
    throw error instanceof SparkError && error.code === 'ERR_CUDA' ? new DeviceFailure(stage, error) : error
  })

const disposedError = (): SparkError =>
  new SparkError('ERR_DISPOSED', 'the model on several nodes was disposed')

const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))
