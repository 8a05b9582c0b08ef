// program.ts: a compiled graph: a flat list of kernel calls whose operands are pieces of buffers.
import type { ElementArray, ElementType } from '../core/dtype.js'
import type { KernelArgs, KernelOp } from '../kernels/kernels.js'
import type { KernelType } from '../kernels/precision-args.js'

/**
 * Where a buffer lives. `arena`: in memory that buffers share over the time of a run. `folded`: of its own, filled once
 * from constants. `constant`: in the weights of the model. `state`: kept from run to run. `input`, `output`: the area
 * through which a caller hands values in and out.
 */
export type Storage = 'arena' | 'folded' | 'constant' | 'state' | 'input' | 'output'

/** How a kernel uses an operand. */
export type Access = 'read' | 'write' | 'update'

/** Memory for the elements of one or more values. */
export class Buffer {
  /** Element type. */
  readonly dtype: ElementType
  /** Number of elements. */
  readonly count: number
  /** Where it lives. */
  storage: Storage
  /** What is in it at first: constants and state. */
  readonly initial: (() => ElementArray) | undefined
  /** Offset in the arena, in bytes. */
  offset = 0
  #merged: Buffer | undefined
  #start = 0

  /** A buffer of `count` elements. */
  constructor(dtype: ElementType, count: number, storage: Storage, initial?: () => ElementArray) {
    this.dtype = dtype
    this.count = count
    this.storage = storage
    this.initial = initial
  }

  /** The buffer that this one became a part of, or itself. */
  get root(): Buffer {
    this.#shorten()
    return this.#merged ?? this
  }

  /** Where the elements start in {@link Buffer.root}. */
  get start(): number {
    this.#shorten()
    return this.#start
  }

  /** Lets the buffers from here to the root, which may be thousands, point at the root itself. */
  #shorten(): void {
    const path: Buffer[] = []
    let root: Buffer = this
    for (; root.#merged; root = root.#merged) path.push(root)
    for (let i = path.length - 2; i >= 0; i--) {
      path[i]!.#start += path[i + 1]!.#start
      path[i]!.#merged = root
    }
  }

  /** Lets another buffer of at least this size hold the elements, too, from its element `start` on. */
  mergeInto(buffer: Buffer, start = 0): void {
    this.#merged = buffer
    this.#start = start
  }

  /** An operand that is read: `count` elements from `offset` on, by default all. */
  read(offset = 0, count = this.count - offset): Operand {
    return new Operand(this, 'read', offset, count)
  }

  /** An operand that is written. */
  write(offset = 0, count = this.count - offset): Operand {
    return new Operand(this, 'write', offset, count)
  }

  /** An operand that is read and written. */
  update(): Operand {
    return new Operand(this, 'update', 0, this.count)
  }
}

/** A piece of a buffer in the arguments of a kernel. */
export class Operand {
  /** What it is a piece of, before merging. */
  readonly #buffer: Buffer
  /** How it is used. */
  readonly access: Access
  readonly #offset: number
  /** Number of elements. */
  readonly count: number

  /** Made by {@link Buffer.read} and its like. */
  constructor(buffer: Buffer, access: Access, offset: number, count: number) {
    this.#buffer = buffer
    this.access = access
    this.#offset = offset
    this.count = count
  }

  /** First element. */
  get offset(): number {
    return this.#offset + this.#buffer.start
  }

  /** What it is a piece of. */
  get buffer(): Buffer {
    return this.#buffer.root
  }
}

/** The type T with operands in the place of arrays. */
export type Symbolic<T> = T extends ArrayBufferView
  ? Operand
  : T extends object
    ? { [K in keyof T]: Symbolic<T[K]> }
    : T

/** One kernel call, and the node that it computes: its name, or that of its first output. */
export type Step = {
  [Op in KernelOp]: { readonly op: Op; readonly args: Symbolic<KernelArgs[Op]>; readonly node?: string }
}[KernelOp]

/** A value that a caller hands in or gets. */
export interface Binding {
  /** Its name in the graph. */
  readonly name: string
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
  /** Where its elements are. */
  readonly buffer: Buffer
}

/** A compiled graph. */
export interface Program {
  /** Run once: what depends on constants only. */
  readonly setup: readonly Step[]
  /** Run each time. */
  readonly steps: readonly Step[]
  readonly inputs: readonly Binding[]
  readonly outputs: readonly Binding[]
  /** Values that are kept from run to run. */
  readonly state: readonly Binding[]
  /** Bytes of the arena. */
  readonly arenaBytes: number
  /** The most bytes that are alive in the arena at once: no layout can be smaller. */
  readonly lowerBound: number
  /** Bytes of weights and other constants that the steps read. */
  readonly constantBytes: number
}

/** The operands of a step. */
export function* operandsOf(args: unknown): Generator<Operand> {
  if (args instanceof Operand) yield args
  else if (typeof args === 'object' && args !== null)
    for (const part of Object.values(args)) yield* operandsOf(part)
}

/** Copies the elements of a buffer to another of the same size. */
export function copyStep(dtype: KernelType, from: Buffer, to: Buffer): Step {
  const sides = { srcOffset: 0, dstOffset: 0, srcStrides: [1], dstStrides: [1] }
  return {
    op: 'copyStrided',
    args: { dtype, shape: [from.count], ...sides, src: from.read(), dst: to.write() },
  }
}
