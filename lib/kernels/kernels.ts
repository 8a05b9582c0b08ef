// kernels.ts: an engine, as everything above it sees it.
import type { ElementArray, ElementType } from '../core/dtype.js'
import type { Paced } from '../core/paced.js'
import type { PlanMemory } from '../native.js'
import type { KernelArgs, KernelOp } from './kernel-args.js'

export type * from './kernel-args.js'

/** Where kernels run. */
export type KernelBackend = 'cuda' | 'cpu' | 'js'

/** What an operand is. */
export type HoldableArray = ElementArray

/** A copy of an array that stays where the kernels of a backend read it. */
export interface HeldArray<A extends HoldableArray = HoldableArray> {
  /** The copy, or the original where all memory is as good: its memory can then no longer be transferred, for good. */
  readonly array: A
  /** Frees the copy. */
  dispose(): void
}

/** An array in the memory of a device. JavaScript does not see its elements: it hands it to the kernels of the device. */
export interface DeviceArray extends HeldArray {
  /**
   * Writes bytes from `at` on. Nobody may write or transfer them meanwhile.
   * @throws SparkError ERR_CUDA
   */
  fill(at: number, bytes: Uint8Array): Promise<void>
}

/** The memory that a device reads fastest. */
export interface DeviceMemory {
  /** Tells the devices of a process apart. */
  readonly device: number
  /** Whether it is a part of the machine's memory. */
  readonly isShared: boolean
  /**
   * Memory for an array.
   * @throws SparkError ERR_OUT_OF_MEMORY, with numbers; ERR_CUDA
   */
  allocate(dtype: ElementType, count: number): Promise<DeviceArray>
  /** Frees memory of JavaScript that nobody else has, so that it goes at once. */
  release(buffer: ArrayBuffer): void
}

/** An operation and its operands. */
export interface BoundStep {
  /** Name of the operation. */
  readonly op: KernelOp
  /** Its arguments, of the type that {@link KernelArgs} has for it. */
  readonly args: object
  /** The node that it computes, for errors: its name, or that of its first output. */
  readonly node?: string | undefined
}

/** Operations whose operands are bound, to be run one after another any number of times. */
export interface PreparedSteps {
  /**
   * Runs all of them without holding the JavaScript thread up; undefined when they have run already, because that takes
   * less time than to hand them to another thread (`js` computes on this one, and lets the event loop turn between steps).
   * @param signal - ends a run on the JavaScript thread; another one goes on to its end, and is the last one
   * @param times - how often they run, one run after the other; by default once
   * @throws SparkError ERR_ARGUMENT while a run is in progress, ERR_DISPOSED when an operand has been detached
   */
  run(signal?: AbortSignal | undefined, times?: number): Promise<void> | undefined
  /**
   * Brings the state that the steps keep into its arrays, to be read.
   * @throws SparkError as {@link PreparedSteps.run}
   */
  fetch(): Promise<void>
  /**
   * Hands the state in its arrays, which the caller has written, to the steps.
   * @throws SparkError as {@link PreparedSteps.run}
   */
  store(): Promise<void>
  /**
   * Milliseconds that the last run took on a device, by its events; null before the first run behind the first call, which
   * begins to measure. Backends without devices lack it.
   * @throws SparkError as {@link PreparedSteps.run}
   */
  deviceMs?(): number | null
  /** As {@link PreparedSteps.run}; milliseconds of each step. Backends without a clock for steps lack it. */
  profile?(): Promise<Float64Array>
  /** Lets the operands go. */
  dispose(): void
}

/**
 * Memory that operands of a {@link StepBlueprint} are pieces of: an array that all plans share; the array of a number that a
 * plan is given; or a part of the plan's arena, of elements like those of `type`. A count that is a bigint is the index of a size.
 * `isPrivate`: nobody but the library can reach the array, and so detach its memory between runs.
 */
export type Region =
  | { readonly array: ElementArray; readonly isPrivate: boolean }
  | { readonly slot: number }
  | { readonly type: ElementArray; readonly count: number | bigint }

/** Operations whose numbers and operands depend on sizes, to be bound to these many times. */
export interface StepBlueprint {
  /**
   * The steps for some sizes.
   * @param sizes - by their indices
   * @param arrays - by slot; with `over` undefined for one that it has already, if all others and the arena lie in the
   * ArrayBuffers that they were in
   * @param arena - memory for the parts of the arena
   * @param offsets - where in it each of these regions is, in bytes
   * @param over - steps of this blueprint for other sizes, which become those instead of new ones; after an error they
   * can only be disposed of
   * @throws SparkError ERR_SHAPE when an operation would leave an operand
   */
  bind(
    sizes: Float64Array,
    arrays: readonly (ElementArray | undefined)[],
    arena: Uint8Array,
    offsets: Float64Array,
    over?: PreparedSteps,
  ): Paced<PreparedSteps>
  /** Lets the shared arrays go; steps that were bound keep them. */
  dispose(): void
}

/**
 * Hardware support for products of bf16 values: `simd` is a dot-product instruction on vector registers, up to twice as fast as
 * f32; `matrix` is AMX or tensor cores, several times faster. With `none` such products are computed in f32.
 */
export type Bf16Support = 'none' | 'simd' | 'matrix'

/** The operations of one backend. Outputs are typed arrays of the caller's. */
export interface Kernels {
  /** Which backend this is. */
  readonly backend: KernelBackend
  /** Ranks of the communicator that its prepared steps call; undefined without one. */
  readonly world?: number | undefined
  /** What its kernels multiply bf16 with. */
  readonly bf16Support: Bf16Support
  /** Bytes of memory that are free for operands. */
  freeBytes(): number
  /**
   * Where a device computes in the memory of the machine: how fast it reads what {@link Kernels.hold} gives, as a part of what it
   * reads fastest. Missing on others.
   */
  readonly heldSpeed?: number | undefined
  /**
   * The memory of a device for constants that plans read and nobody else. Missing where kernels read that of JavaScript.
   * @internal
   */
  readonly deviceMemory?: DeviceMemory | undefined
  /** Bytes from the start of a buffer to where its kernels read vectors fastest; missing where all offsets are equal. */
  padding?(buffer: ArrayBuffer): number
  /**
   * Frees memory that nobody reads any more. Backends without it leave that to the garbage collector.
   * @internal
   */
  release?(buffer: ArrayBuffer): void
  /** Whether the backend has a kernel for `op`. */
  supports(op: KernelOp): boolean
  /**
   * Performs `op` without blocking the JavaScript thread (`js` computes before it returns). It works on copies of its
   * operands and writes the outputs at the end, so that arrays can be transferred meanwhile. Those that no one can
   * transfer it uses where they are, and they must not be touched until the promise settles: views of a
   * `UnifiedBuffer`, what {@link Kernels.hold} and holdWeight give, arrays on a SharedArrayBuffer.
   * @throws SparkError ERR_UNSUPPORTED when the backend lacks the operation; ERR_DISPOSED for memory that was detached
   * before, and for an output that was detached meanwhile
   */
  run<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): Promise<void>
  /**
   * As {@link Kernels.run}, for operands that nobody else can reach until the promise settles: none is copied.
   * @internal
   */
  runOwned<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): Promise<void>
  /**
   * Performs `op` before it returns.
   * @throws SparkError ERR_UNSUPPORTED when the backend lacks the operation or cannot wait (cuda)
   */
  runSync<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): void
  /**
   * Binds the operands of many operations once, to be run in one call. On a GPU the first run enqueues them, the second
   * records them as a CUDA graph, and later ones replay that. The memory of operands can no longer be transferred, for
   * good.
   * @param memory - what stays on a GPU between runs; of anything else what steps read is copied before each run, and what
   * they wrote after it
   * @throws SparkError ERR_UNSUPPORTED when the backend lacks an operation
   */
  prepare(steps: readonly BoundStep[], memory?: PlanMemory): PreparedSteps
  /**
   * Reads steps whose arguments hold bigints, the indices of sizes, in the place of numbers, and `{ region, offset, count }` in
   * that of arrays. Backends without it bind steps one by one.
   * @internal
   */
  blueprint?(steps: readonly BoundStep[], regions: readonly Region[]): Paced<StepBlueprint>
  /**
   * Puts an operand of many calls, such as a frozen weight, where the kernels read it without a copy in each call.
   * @throws SparkError ERR_OUT_OF_MEMORY
   */
  hold<A extends HoldableArray>(array: A): Promise<HeldArray<A>>
  /**
   * Zeros that the kernels read and write where they are, and the caller, too, between runs. Backends without it work on any array.
   * @throws SparkError ERR_OUT_OF_MEMORY, with numbers
   */
  holdZeros?(dtype: ElementType, count: number): Promise<HeldArray>
}
