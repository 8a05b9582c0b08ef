// model-state.ts: values that a model keeps from run to run, in memory that the next run goes on in.
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import type { HeldArray } from '../kernels/kernels.js'
import type { Plan, PlanTemplate } from '../plan/plan.js'
import type { Engine } from './engine.js'
import type { HostTensor } from './values.js'

/** An input and the output that replaces it after a run. */
export interface StatePair {
  /** Name of the input. */
  readonly input: string
  /** Name of the output. */
  readonly output: string
  /** Element type of both. */
  readonly dtype: ElementType
  /** The axis along which they grow; undefined when their size stays. */
  readonly axis: number | undefined
}

/** Where states come from. */
export type StateSource = Pick<Engine, 'holdZeros'>

/** A plan, the sizes that it is bound to, and the memory of each state. */
export interface StatePlan {
  readonly plan: Plan
  readonly key: string
  readonly memories: ReadonlyMap<string, ElementArray>
}

/** What the states of one sequence of runs have in common. */
export class StateGroup {
  /** The plans of each template and what they are bound to, the last one used at the end. */
  readonly plans = new Map<PlanTemplate, StatePlan[]>()

  /** Frees the plans. */
  dispose(): void {
    for (const { plan } of [...this.plans.values()].flat()) plan.dispose()
    this.plans.clear()
  }
}

/** Sizes along the axis of a state that its memory has room for at first. */
const smallestCapacity = 16

/** The value of an input that is kept. A growing one has room behind it along its axis, and its memory doubles when that is full. */
export class ModelState implements HostTensor {
  readonly kind = 'tensor'
  readonly pair: StatePair
  readonly group: StateGroup
  #shape: readonly number[]
  #capacity: number
  readonly #source: StateSource
  #held: HeldArray
  /** The shape after a run that has written it. */
  #next: readonly number[] | undefined
  /** Whether a run that has not ended well has written over it. */
  #isLost = false

  private constructor(pair: StatePair, group: StateGroup, shape: readonly number[], source: StateSource) {
    this.pair = pair
    this.group = group
    this.#shape = shape
    this.#source = source
    this.#capacity = Math.max(smallestCapacity, this.length)
    this.#held = { array: new Uint8Array(0), dispose() {} }
  }

  /**
   * A state of zeros.
   * @throws SparkError ERR_OUT_OF_MEMORY
   */
  static async create(
    pair: StatePair,
    group: StateGroup,
    shape: readonly number[],
    source: StateSource,
  ): Promise<ModelState> {
    const state = new ModelState(pair, group, shape, source)
    state.#held = await state.#allocate(state.#capacity)
    return state
  }

  get dtype(): ElementType {
    return this.pair.dtype
  }

  get shape(): readonly number[] {
    return this.#shape
  }

  /** The elements, row-major: a copy. */
  get data(): ElementArray {
    const array = new (elementArrayOf(this.dtype))(numel(this.#shape))
    this.#move(this.memory, this.#capacity, array, this.length)
    return array
  }

  /** The size along the axis; 1 when it does not grow. */
  get length(): number {
    return this.#sizeOf(this.#shape)
  }

  /** The size along the axis that the memory has room for. */
  get capacity(): number {
    return this.#capacity
  }

  /** What runs read and write. */
  get memory(): ElementArray {
    return this.#held.array
  }

  /** Makes room for a shape; whether the memory is another one now. */
  async reserve(shape: readonly number[]): Promise<boolean> {
    const length = this.#sizeOf(shape)
    if (length <= this.#capacity) return false
    const capacity = Math.max(length, 2 * this.#capacity)
    const held = await this.#allocate(capacity)
    this.#move(this.memory, this.#capacity, held.array, capacity)
    this.#replace(held, capacity)
    return true
  }

  /** Whether what it holds is unknown, because a run that has not ended well has written over it. */
  get isLost(): boolean {
    return this.#isLost
  }

  /**
   * A run is about to write into the memory.
   * @param shape - afterwards
   * @param keeps - whether what the state holds now stays
   */
  begin(shape: readonly number[], keeps: boolean): void {
    this.#next = shape
    this.#isLost ||= !keeps
  }

  /** Takes what a run gave for the output: this state itself where it was written in place. */
  async commit(value: HostTensor): Promise<void> {
    if (value !== this) await this.assign(value)
    else if (this.#next) this.#shape = this.#next
    this.#next = undefined
    this.#isLost = false
  }

  /** Becomes a copy of a value. */
  async assign({ shape, data }: HostTensor): Promise<void> {
    const fits = shape.every((size, i) => i === this.pair.axis || size === this.#shape[i])
    const length = this.#sizeOf(shape)
    if (!fits || length > this.#capacity) {
      this.#shape = shape
      const capacity = Math.max(length, smallestCapacity)
      this.#replace(await this.#allocate(capacity), capacity)
    }
    this.#shape = shape
    this.#move(data as ElementArray, length, this.memory, this.#capacity)
  }

  /** Forgets what lies behind `length` along the axis. */
  truncate(length: number): void {
    this.#shape = this.#shape.map((size, i) => (i === this.pair.axis ? Math.min(size, length) : size))
  }

  /** Frees the memory; what was compiled for the state still refers to it. */
  dispose(): void {
    this.#held.dispose()
    this.#held = { array: new (elementArrayOf(this.dtype))(0), dispose() {} }
  }

  #replace(held: HeldArray, capacity: number): void {
    this.#held.dispose()
    this.#held = held
    this.#capacity = capacity
  }

  /** Copies the elements between memories with room for different sizes along the axis. */
  #move(from: ElementArray, fromCapacity: number, to: ElementArray, toCapacity: number): void {
    const { axis } = this.pair
    const [outer, inner] =
      axis === undefined
        ? [1, numel(this.#shape)]
        : [numel(this.#shape.slice(0, axis)), numel(this.#shape.slice(axis + 1))]
    const count = this.length * inner
    for (let i = 0; i < outer; i++) {
      const start = i * fromCapacity * inner
      ;(to as Float64Array).set(from.subarray(start, start + count) as Float64Array, i * toCapacity * inner)
    }
  }

  #sizeOf(shape: readonly number[]): number {
    return this.pair.axis === undefined ? 1 : shape[this.pair.axis]!
  }

  async #allocate(capacity: number): Promise<HeldArray> {
    const count = numel(this.#shape.map((size, i) => (i === this.pair.axis ? capacity : size)))
    if (this.#source.holdZeros) return this.#source.holdZeros(this.dtype, count)
    try {
      return { array: new (elementArrayOf(this.dtype))(count), dispose() {} }
    } catch (cause) {
      const message = `the state '${this.pair.input}' needs an array of ${count} elements, which this process cannot have`
      throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause })
    }
  }
}
