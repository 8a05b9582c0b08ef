// program.ts: a compiled graph: a flat list of kernel calls whose operands are pieces of buffers.
import { arrayBytes, type ElementArray, type ElementType } from '../core/dtype.js'
import { add, areNumbers, fixSize, type Size, subtract } from '../core/size.js'
import { fixedSizes, SizeExpression, type SizeValues } from '../core/size-scope.js'
import { Constant } from '../graph/constant.js'
import { unpackedData } from '../graph/packed.js'
import type { KernelArgs, KernelOp } from '../kernels/kernels.js'
import type { KernelType } from '../kernels/precision-args.js'
import type { DeviceCopy } from '../weights/shared-weight.js'

/**
 * Where a buffer lives. `arena`: in memory that buffers share over the time of a run. `folded`: of its own, filled once
 * from constants. `sized`: of its own, filled once for each set of sizes. `constant`: in the weights of the model. `state`:
 * kept from run to run. `input`, `output`: the area through which a caller hands values in and out.
 */
export type Storage = 'arena' | 'folded' | 'sized' | 'constant' | 'state' | 'input' | 'output'

/** How a kernel uses an operand. */
export type Access = 'read' | 'write' | 'update'

/** Memory for the elements of one or more values. */
export class Buffer {
  /** Element type. */
  readonly dtype: ElementType
  /** Number of elements. */
  readonly count: Size
  /** Where it lives. */
  storage: Storage
  /** What is in it at first: a constant, or what a state or a table of sizes begins with. */
  readonly initial: Constant | ((values: SizeValues) => ElementArray) | undefined
  /** What has the memory of a constant; undefined where the garbage collector does. */
  readonly owner: DeviceCopy | undefined
  #merged: Buffer | undefined
  #start: Size = 0

  /** A buffer of `count` elements. */
  constructor(
    dtype: ElementType,
    count: Size,
    storage: Storage,
    initial?: Constant | ((values: SizeValues) => ElementArray),
    owner?: DeviceCopy,
  ) {
    this.dtype = dtype
    this.count = count
    this.storage = storage
    this.initial = initial
    this.owner = owner
  }

  /** What is in it at first; undefined where nothing is. */
  elements(values: SizeValues = fixedSizes): ElementArray | undefined {
    return this.initial instanceof Constant ? unpackedData(this.initial) : this.initial?.(values)
  }

  /** The buffer that this one became a part of, or itself. */
  get root(): Buffer {
    this.#shorten()
    return this.#merged ?? this
  }

  /** Where the elements start in {@link Buffer.root}. */
  get start(): Size {
    this.#shorten()
    return this.#start
  }

  /** Lets the buffers from here to the root, which may be thousands, point at the root itself. */
  #shorten(): void {
    const path: Buffer[] = []
    let root: Buffer = this
    for (; root.#merged; root = root.#merged) path.push(root)
    for (let i = path.length - 2; i >= 0; i--) {
      path[i]!.#start = add(path[i]!.#start, path[i + 1]!.#start)
      path[i]!.#merged = root
    }
  }

  /** Lets another buffer of at least this size hold the elements, too, from its element `start` on. */
  mergeInto(buffer: Buffer, start: Size = 0): void {
    this.#merged = buffer
    this.#start = start
  }

  /** An operand that is read: `count` elements from `offset` on, by default all. */
  read(offset: Size = 0, count: Size = subtract(this.count, offset)): Operand {
    return new Operand(this, 'read', offset, count)
  }

  /** An operand that is written. */
  write(offset: Size = 0, count: Size = subtract(this.count, offset)): Operand {
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
  readonly #offset: Size
  /** Number of elements. */
  readonly count: Size

  /** Made by {@link Buffer.read} and its like. */
  constructor(buffer: Buffer, access: Access, offset: Size, count: Size) {
    this.#buffer = buffer
    this.access = access
    this.#offset = offset
    this.count = count
  }

  /** First element. */
  get offset(): Size {
    return add(this.#offset, this.#buffer.start)
  }

  /** What it is a piece of. */
  get buffer(): Buffer {
    return this.#buffer.root
  }
}

/** The type T with operands in the place of arrays, and sizes in that of numbers. */
export type Symbolic<T> = T extends ArrayBufferView
  ? Operand
  : T extends object
    ? { [K in keyof T]: Symbolic<T[K]> }
    : number extends T
      ? T | Size
      : T

/** One kernel call, and the node that it computes: its name, or that of its first output. */
export type Step = {
  [Op in KernelOp]: { readonly op: Op; readonly args: Symbolic<KernelArgs[Op]>; readonly node?: string }
}[KernelOp]

/** A value that a caller hands in or gets. */
export interface SymbolicBinding {
  /** Its name in the graph. */
  readonly name: string
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions. */
  readonly shape: readonly Size[]
  /** Where its elements are. */
  readonly buffer: Buffer
}

/** The shape that a state has after a run. */
export interface NextShape {
  /** Name of the state. */
  readonly name: string
  /** Sizes of the dimensions. */
  readonly shape: readonly Size[]
  /** Whether the elements that it has before the run stay where they are, as they are. */
  readonly keeps: boolean
}

/** A {@link SymbolicBinding} whose sizes are numbers. */
export interface Binding extends SymbolicBinding {
  readonly shape: readonly number[]
}

/** Whether the arguments of a step are the same for all sizes. */
export function isFixed(args: unknown): boolean {
  if (args instanceof SizeExpression) return false
  if (args instanceof Operand) return areNumbers([args.offset, args.count, args.buffer.count])
  return typeof args !== 'object' || args === null || Object.values(args).every(isFixed)
}

/** A compiled graph, for all sizes for which the guards of its scope hold. */
export interface Program {
  /** Run once: what depends on constants only. */
  readonly setup: readonly Step[]
  /** Run once for each set of sizes: what depends on constants and sizes only. */
  readonly sizing: readonly Step[]
  /** Run each time. */
  readonly steps: readonly Step[]
  readonly inputs: readonly SymbolicBinding[]
  readonly outputs: readonly SymbolicBinding[]
  /** Values that are kept from run to run, with the shapes of their memory. */
  readonly state: readonly SymbolicBinding[]
  /** The shapes of states that are inputs after a run. */
  readonly next: readonly NextShape[]
  /** Buffers that each plan has of its own, outside of its arena. */
  readonly own: readonly Buffer[]
  /** Buffers of weights and other constants that the steps read. */
  readonly constants: readonly Buffer[]
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

/** Bytes of weights and other constants that the steps of a program read. */
export function constantBytesOf({ constants }: Program): number {
  return constants.reduce((bytes, { dtype, count }) => bytes + arrayBytes(dtype, fixSize(count)), 0)
}
