// sequence.ts: runs of a pipeline that follow each other: what its stages were given is kept, to build the states of one again.
import { randomUUID } from 'node:crypto'
import { expectKnownOptions, expectSignal } from '../../core/checks.js'
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import type { Feeds } from '../../model/feeds.js'
import type { NamedTensors } from './messages.js'
import type { Place } from './stage-place.js'

type Values = Map<string, Tensor<ElementType>>
type RunStage = (stage: Place, own: NamedTensors, outputs: readonly string[]) => Promise<NamedTensors>

/** What a {@link PipelineSequence} needs of its pipeline. */
export interface SequenceParts {
  readonly states: ReadonlyMap<string, string>
  readonly outputs: readonly string[]
  readonly stages: () => readonly Place[]
  readonly valuesOf: (feeds: Feeds) => Values
  readonly pass: (values: Values, run: RunStage) => Promise<void>
}

/** Above this many bytes the states themselves are fetched, and what led to them is forgotten. */
const historyBytes = 256 << 20

/**
 * A sequence of runs, whose states are on the nodes. Made by {@link Pipeline.bindState}.
 * @example
 * const decoder = model.bindState()
 * const { logits } = await decoder.run({ input_ids: tokens })
 * await decoder.dispose()
 */
export class PipelineSequence {
  readonly #parts: SequenceParts
  readonly #name = randomUUID().slice(0, 18)
  /** What went between stages, by step, since the checkpoint. */
  #history: Values[] = []
  #bytes = 0
  #checkpoint: { readonly step: number; readonly states: Values } = { step: 0, states: new Map() }
  /** Stages that have this sequence. */
  #begun = new WeakSet<Place>()
  #turn: Promise<unknown> = Promise.resolve()
  #isDisposed = false

  /** @internal */
  constructor(parts: SequenceParts) {
    this.#parts = parts
  }

  /** Runs that are done. */
  get steps(): number {
    return this.#checkpoint.step + this.#history.length
  }

  /**
   * The next run.
   * @param feeds - a value for each input that is no state
   * @returns the outputs that are no states
   * @throws SparkError as {@link Pipeline.run}
   */
  run(
    feeds: Feeds,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<Record<string, Tensor<ElementType>>> {
    expectKnownOptions('options', options, ['signal'])
    const { signal } = options
    expectSignal('options.signal', signal)
    const done = this.#turn.then(() => this.#run(feeds, signal))
    this.#turn = done.catch(() => {})
    return done
  }

  /** Frees the states on the nodes. */
  async dispose(): Promise<void> {
    if (this.#isDisposed) return
    this.#isDisposed = true
    await this.#turn
    await Promise.allSettled(
      this.#parts.stages().map(stage => stage.ask({ op: 'end', sequence: this.#name })),
    )
  }

  async #run(feeds: Feeds, signal: AbortSignal | undefined): Promise<Record<string, Tensor<ElementType>>> {
    if (this.#isDisposed) throw new SparkError('ERR_DISPOSED', 'the sequence was disposed')
    signal?.throwIfAborted()
    const { outputs, valuesOf, pass } = this.#parts
    const values = valuesOf(feeds)
    const step = this.steps
    try {
      await pass(values, (stage, own, wanted) => this.#runStage(stage, step, own, wanted))
    } catch (error) {
      // Some stages have moved on, others have not.
      this.#begun = new WeakSet()
      throw error
    }
    const results = Object.fromEntries(outputs.map(name => [name, values.get(name)!]))
    await this.#keep(values)
    return results
  }

  async #runStage(
    stage: Place,
    step: number,
    own: NamedTensors,
    outputs: readonly string[],
  ): Promise<NamedTensors> {
    const hasStates = stage.ends.feeds.some(name => this.#parts.states.has(name))
    if (!hasStates) return (await stage.ask({ op: 'run', outputs }, own)).tensors
    try {
      if (!this.#begun.has(stage)) await this.#rebuild(stage)
      this.#begun.add(stage)
      // Not the signal: a stage must not move on while others do not.
      return (await stage.ask({ op: 'run', outputs, sequence: this.#name, step }, own)).tensors
    } catch (error) {
      // Of a link that broke the same question may be asked again; what is no longer there is built again.
      if (!(error instanceof SparkError && error.code === 'ERR_IO')) this.#begun.delete(stage)
      throw error
    }
  }

  /** The states of a stage at the end of what was run, computed again from the checkpoint. */
  async #rebuild(stage: Place): Promise<void> {
    const { feeds, takes, gives, results } = stage.ends
    const own = (values: Values, names: readonly string[]): NamedTensors =>
      Object.fromEntries(names.flatMap(name => (values.has(name) ? [[name, values.get(name)!]] : [])))
    const { states, step: begin } = this.#checkpoint
    const sequence = this.#name
    await stage.ask({ op: 'begin', sequence, step: begin }, own(states, feeds))
    const outputs = [...new Set([...results, ...gives])].filter(name => !this.#isState(name))
    for (const [i, values] of this.#history.entries()) {
      const question = { op: 'run', sequence, step: begin + i, outputs }
      const { tensors } = await stage.ask(question, own(values, [...feeds, ...takes]))
      // Stages behind this one that are built again as well read them.
      for (const name of gives) if (tensors[name]) values.set(name, tensors[name])
    }
  }

  #isState(output: string): boolean {
    return [...this.#parts.states.values()].includes(output)
  }

  /** Keeps what went between stages; what only leaves the model is not needed again. */
  async #keep(values: Values): Promise<void> {
    const needed = new Set(this.#parts.stages().flatMap(({ ends }) => [...ends.feeds, ...ends.takes]))
    for (const name of values.keys()) if (!needed.has(name)) values.delete(name)
    this.#history.push(values)
    for (const { data } of values.values()) this.#bytes += (data as Uint8Array).byteLength
    if (this.#bytes <= historyBytes) return
    try {
      await this.#fetchStates()
    } catch {
      // A node has just gone: what was kept is enough, and the next run tries again.
    }
  }

  async #fetchStates(): Promise<void> {
    const states: Values = new Map()
    for (const stage of this.#parts.stages()) {
      if (!stage.ends.feeds.some(name => this.#parts.states.has(name))) continue
      const { words, tensors } = await stage.ask({ op: 'states', sequence: this.#name })
      if (words.step !== this.steps) return
      for (const [name, tensor] of Object.entries(tensors)) states.set(name, tensor)
    }
    this.#checkpoint = { step: this.steps, states }
    this.#history = []
    this.#bytes = 0
  }
}
