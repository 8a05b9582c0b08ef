// bind.ts: memory for the operands of a program.
import { arrayBytes, type ElementArray, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { areNumbers } from '../core/size.js'
import { fixedSizes, SizeExpression, type SizeValues } from '../core/size-scope.js'
import { expectFreeBytes } from '../hardware/memory.js'
import { type Allocation, allocate } from '../kernels/aligned.js'
import type { BoundStep, Kernels } from '../kernels/kernels.js'
import type { PlanMemory } from '../native.js'
import { type Layout, layOut } from './arena.js'
import {
  type Binding,
  type Buffer,
  Operand,
  type Program,
  type Step,
  type Storage,
  type SymbolicBinding,
} from './program.js'
import { SharedArena } from './shared-arena.js'

/** A program whose operands are typed arrays. */
export interface BoundProgram {
  /** Steps with their operands. */
  bind(steps: readonly Step[]): Paced<BoundStep[]>
  readonly inputs: readonly Binding[]
  readonly outputs: readonly Binding[]
  readonly state: readonly Binding[]
  readonly layout: Layout
  readonly arena: Uint8Array
  /** The elements of a buffer. */
  arrayOf(buffer: Buffer): ElementArray
  /** The buffers that need not leave a GPU between runs once the sizing has run. */
  memory(): PlanMemory
  /** What the steps read and nobody writes. */
  constants(): ElementArray[]
  /** The memory. */
  readonly arrays: BufferArrays
}

/** What is kept of setups from process to process. */
export interface FoldedStore {
  /**
   * Fills bytes with what is kept under a key.
   * @returns whether there is any of this length; else the bytes may be anything
   */
  read(key: string, bytes: Uint8Array): Promise<boolean>
  /** Keeps bytes that will not change, in the background. */
  write(key: string, bytes: Uint8Array): void
}

/** Options of {@link bind}. */
export interface BindOptions {
  /** Hold all f32 values as f64, which the TypeScript kernels then compute with: for checks of formulas. */
  readonly double?: boolean
  /** Where results of the setup are kept from process to process. */
  readonly store?: FoldedStore | undefined
  /**
   * Arrays of the caller for inputs and outputs, by name, instead of new ones: they must have the type and number of
   * elements of their binding.
   */
  readonly buffers?: ReadonlyMap<string, ElementArray>
}

/** What a program is bound to. */
export interface BindContext {
  /** The values of its sizes. */
  readonly values: SizeValues
  /** What its setup has made. */
  readonly folded: ReadonlyMap<Buffer, ElementArray>
  readonly kernels: Padded
  /** What the arena comes from; without it the program gets its own. */
  readonly arena?: SharedArena | undefined
  /** What inputs and outputs come from, by buffer; without it the program gets its own. */
  readonly areas?: Map<Buffer, SharedArena> | undefined
  /** Memory of the caller for states that are inputs, by name. */
  readonly states?: ReadonlyMap<string, ElementArray> | undefined
  /** The memory of the same program for other sizes, which is used instead of new one. */
  readonly over?: BufferArrays | undefined
}

/** The padding of a backend's memory. */
type Padded = Pick<Kernels, 'padding'>

const nothingFolded: BindContext = { values: fixedSizes, folded: new Map(), kernels: {} }

/**
 * Binds a program to memory: the arena, the state and the areas of inputs and outputs. Constants stay where they are.
 * @throws SparkError ERR_DTYPE or ERR_SHAPE for an array in `buffers` that does not fit, ERR_OUT_OF_MEMORY
 */
export function* bind(
  program: Program,
  options: BindOptions = {},
  context: BindContext = nothingFolded,
): Paced<BoundProgram> {
  const { values } = context
  const layout = yield* layOut(program.steps, values)
  expectMemory(program, layout, options, values)
  const numbered = (binding: SymbolicBinding): Binding =>
    areNumbers(binding.shape)
      ? (binding as Binding)
      : { ...binding, shape: binding.shape.map(size => values.of(size)) }
  const [inputs, outputs, state] = [program.inputs, program.outputs, program.state].map(list =>
    list.map(numbered),
  ) as [Binding[], Binding[], Binding[]]
  const arrays = context.over ?? new BufferArrays(layout, options, context)
  if (context.over) arrays.resize(layout, context)
  for (const binding of [...inputs, ...outputs]) arrays.give(binding, options.buffers?.get(binding.name))
  for (const binding of state) arrays.lend(binding, context.states?.get(binding.name))
  return {
    bind: steps => mapPaced(steps, step => arrays.bind(step)),
    inputs,
    outputs,
    state,
    layout,
    arena: arrays.arena,
    arrayOf: buffer => arrays.of(buffer),
    memory: () => arrays.memory(outputs),
    constants: () => program.constants.map(buffer => arrays.of(buffer)),
    arrays,
  }
}

/** The arrays of a program's buffers, made when somebody asks for them first. */
export class BufferArrays {
  #layout: Layout
  readonly #double: boolean
  #context: BindContext
  #arena: Allocation
  readonly #arrays: Map<Buffer, ElementArray>
  /** States that the caller may read and write between runs. */
  readonly #lent = new Set<Buffer>()
  /** Inputs and outputs in memory that other plans have, too. */
  readonly #shared = new Map<Buffer, Allocation>()

  constructor(layout: Layout, { double = false }: BindOptions, context: BindContext) {
    this.#layout = layout
    this.#double = double
    this.#context = context
    this.#arena = this.#allocateArena()
    this.#arrays = new Map(context.folded)
  }

  /** Takes other sizes, whose arrays lie where those before them do, as far as they fit. */
  resize(layout: Layout, context: BindContext): void {
    this.#layout = layout
    this.#context = context
    this.#arena = this.#allocateArena()
    for (const [buffer, array] of this.#arrays) {
      if (buffer.storage === 'arena' || this.#shared.has(buffer)) this.#arrays.delete(buffer)
      else if (!this.#lent.has(buffer) && (typeof buffer.count !== 'number' || buffer.storage === 'sized'))
        this.#arrays.set(buffer, this.#filled(buffer, this.#resized(buffer, array)))
    }
  }

  /** Takes an array of the caller for an input or output. */
  give(binding: Binding, array: ElementArray | undefined): void {
    if (!array || this.#arrays.has(binding.buffer)) return
    expectFit(binding, array)
    this.#arrays.set(binding.buffer, array)
  }

  /** Takes memory of the caller for a state, which need not be that of other sizes. */
  lend(binding: Binding, array: ElementArray | undefined): void {
    if (!array) return
    expectFit(binding, array)
    this.#lent.add(binding.buffer)
    this.#arrays.set(binding.buffer, array)
  }

  /** The elements of a buffer. */
  of(buffer: Buffer): ElementArray {
    const known = this.#arrays.get(buffer)
    if (known) return known
    const array = this.#make(buffer)
    this.#arrays.set(buffer, array)
    return array
  }

  /** Bytes that some buffers have for themselves. */
  bytesOf(buffers: readonly Buffer[]): number {
    return buffers.reduce(
      (sum, buffer) => sum + (this.#shared.has(buffer) ? 0 : this.of(buffer).byteLength),
      0,
    )
  }

  /** Whether memory that it shares is better let go: plans for larger sizes have more. */
  get isOutgrown(): boolean {
    const { arena, areas } = this.#context
    const shared = [...this.#shared].some(([buffer, memory]) => areas?.get(buffer)?.hasOutgrown(memory))
    return shared || arena?.hasOutgrown(this.#arena) === true
  }

  /** A step with arrays in the place of operands and numbers in that of sizes. */
  bind({ op, args, node }: Step): BoundStep {
    return { op, node, args: this.#resolve(args) as object }
  }

  /** See {@link BoundProgram.memory}. */
  memory(outputs: readonly Binding[]): PlanMemory {
    // What is handed out does not stay, even where it shares an ArrayBuffer.
    const handedOut = new Set(outputs.map(({ buffer }) => buffer))
    const arraysOf = (...storages: readonly Storage[]): ElementArray[] =>
      [...this.#arrays]
        .filter(
          ([buffer]) =>
            storages.includes(buffer.storage) && !handedOut.has(buffer) && !this.#lent.has(buffer),
        )
        .map(([, array]) => array)
    return {
      scratch: [this.#arena.buffer],
      constant: arraysOf('sized'),
      shared: arraysOf('constant', 'folded'),
      state: arraysOf('state'),
    }
  }

  /** The arena. */
  get arena(): Uint8Array {
    const { buffer, offset } = this.#arena
    return new Uint8Array(buffer, offset, this.#layout.arenaBytes * this.#scale)
  }

  #resolve(args: unknown): unknown {
    if (typeof args !== 'object' || args === null) return args
    if (args instanceof SizeExpression) return this.#context.values.of(args)
    if (args instanceof Operand) return this.#operand(args)
    if (Array.isArray(args)) return args.map(part => this.#resolve(part))
    return Object.fromEntries(Object.entries(args).map(([name, part]) => [name, this.#resolve(part)]))
  }

  #operand(operand: Operand): ElementArray {
    const { values } = this.#context
    const array = this.of(operand.buffer) as Float32Array
    const [offset, count] = [values.of(operand.offset), values.of(operand.count)]
    return count === array.length ? array : array.subarray(offset, offset + count)
  }

  /** Bytes of an element by those that it is planned with. */
  get #scale(): number {
    return this.#double ? 2 : 1
  }

  #allocateArena(): Allocation {
    const { arena, kernels } = this.#context
    return allocated(this.#layout.arenaBytes * this.#scale, bytes =>
      arena ? arena.allocate(bytes, kernels) : allocate(bytes, kernels),
    )
  }

  #memoryFor(buffer: Buffer, bytes: number): Allocation {
    const { areas, kernels } = this.#context
    if (!areas || buffer.storage === 'folded') return allocate(bytes, kernels)
    const area = areas.get(buffer) ?? new SharedArena()
    areas.set(buffer, area)
    const memory = area.allocate(bytes, kernels)
    this.#shared.set(buffer, memory)
    return memory
  }

  /** An array for a buffer whose size may have changed, on the memory of the one before or twice as much as it needs. */
  #resized({ count: size }: Buffer, array: ElementArray): ElementArray {
    const count = this.#context.values.of(size)
    if (count === array.length) return array
    const { buffer, byteOffset, BYTES_PER_ELEMENT: width } = array
    const type = array.constructor as Float32ArrayConstructor
    const bytes = count * width
    if (byteOffset + bytes <= buffer.byteLength) return new type(buffer as ArrayBuffer, byteOffset, count)
    return allocated(bytes, () => new type(new ArrayBuffer(2 * bytes), 0, count))
  }

  /** The array with what is in its buffer at first. */
  #filled(buffer: Buffer, array: ElementArray): ElementArray {
    const initial = buffer.elements(this.#context.values)
    if (initial) (array as Float64Array).set(initial as Float64Array)
    return array
  }

  #make(buffer: Buffer): ElementArray {
    const { dtype, storage } = buffer
    const type = this.#double && dtype === 'f32' ? Float64Array : elementArrayOf(dtype)
    if (storage === 'constant') {
      const array = buffer.elements()!
      return this.#double && array instanceof Float32Array ? Float64Array.from(array) : array
    }
    const count = this.#context.values.of(buffer.count)
    if (storage === 'arena') {
      const offset = this.#layout.offsets.get(buffer)! * this.#scale
      return new type(this.#arena.buffer, this.#arena.offset + offset, count)
    }
    const array = allocated(count * type.BYTES_PER_ELEMENT, bytes => {
      if (!['folded', 'input', 'output'].includes(storage)) return new type(count)
      const memory = this.#memoryFor(buffer, bytes)
      return new type(memory.buffer, memory.offset, count)
    })
    return this.#filled(buffer, array)
  }
}

/** Refuses what is not there: Linux grants it, and ends the process that writes it. */
function expectMemory(
  { own, inputs, outputs }: Program,
  { arenaBytes }: Layout,
  { double = false, buffers }: BindOptions,
  values: SizeValues,
): void {
  const ends = [...inputs, ...outputs].filter(({ name }) => buffers?.has(name))
  const given = new Set(ends.map(({ buffer }) => buffer))
  const bytesOf = ({ dtype, count }: Buffer): number => arrayBytes(dtype, values.of(count))
  const made = own.filter(buffer => !given.has(buffer))
  const bytes = made.reduce((sum, buffer) => sum + bytesOf(buffer), arenaBytes)
  expectFreeBytes('the plan needs', bytes * (double ? 2 : 1))
}

function allocated<T>(bytes: number, make: (bytes: number) => T): T {
  try {
    return make(bytes)
  } catch (cause) {
    const message = `the plan needs an array of ${bytes} bytes, which this process cannot have`
    throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause })
  }
}

function expectFit({ name, dtype, shape }: Binding, given: ElementArray): void {
  const kind = elementArrayOf(dtype)
  if (!(given instanceof kind)) {
    throw new SparkError(
      'ERR_DTYPE',
      `'${name}' needs a ${kind.name} for ${dtype}, got ${given.constructor.name}`,
    )
  }
  if (given.length !== numel(shape)) {
    const wanted = `[${shape.join(', ')}] has ${numel(shape)} elements`
    throw new SparkError('ERR_SHAPE', `'${name}': ${wanted}, but the array has ${given.length}`)
  }
}
