// bind.ts: memory for the operands of a program.
import { arrayBytes, type ElementArray, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { machineMemory } from '../hardware/memory.js'
import { systemRoot } from '../hardware/system-files.js'
import { type Allocation, allocate } from '../kernels/aligned.js'
import type { BoundStep, Kernels } from '../kernels/kernels.js'
import type { PlanMemory } from '../native.js'
import {
  type Binding,
  type Buffer,
  Operand,
  operandsOf,
  type Program,
  type Step,
  type Storage,
} from './program.js'

/** A program whose operands are typed arrays. */
export interface BoundProgram {
  /** Run once, before the steps; empty from {@link BoundProgram.releaseSetup} on. */
  readonly setup: BoundStep[]
  /** Run each time. */
  readonly steps: readonly BoundStep[]
  /** The elements of a buffer. */
  arrayOf(buffer: Buffer): ElementArray
  /** The buffers that need not leave a GPU between runs once the setup has run. */
  memory(): PlanMemory
  /** Forgets the setup and what only it needed. */
  releaseSetup(): Paced<void>
  /** What the steps read and nobody writes. */
  constants(): ElementArray[]
}

/** Options of {@link bind}. */
export interface BindOptions {
  /** Hold all f32 values as f64, which the TypeScript kernels then compute with: for checks of formulas. */
  readonly double?: boolean
  /**
   * Arrays of the caller for inputs and outputs, by name, instead of new ones: they must have the type and number of
   * elements of their binding.
   */
  readonly buffers?: ReadonlyMap<string, ElementArray>
}

/** The padding of a backend's memory. */
type Padded = Pick<Kernels, 'padding'>

/**
 * Binds a program to memory: the arena, the packed constants, the state and the areas of inputs and outputs.
 * Constants stay where they are.
 * @throws SparkError ERR_DTYPE or ERR_SHAPE for an array in `buffers` that does not fit, ERR_OUT_OF_MEMORY
 */
export function* bind(
  program: Program,
  options: BindOptions = {},
  kernels: Padded = {},
): Paced<BoundProgram> {
  yield* expectMemory(program, options)
  const arrays = new BufferArrays(program, options, kernels)
  const bound = ({ op, args, node }: Step): BoundStep => ({
    op,
    node,
    args: arrays.resolve(args) as object,
  })
  const setup = yield* mapPaced(program.setup, bound)
  const steps = yield* mapPaced(program.steps, bound)
  return {
    setup,
    steps,
    arrayOf: buffer => arrays.of(buffer),
    memory: () => arrays.memory(),
    constants: () => arrays.constants(),
    *releaseSetup() {
      setup.length = 0
      yield* arrays.keepUsed()
    },
  }
}

/** The arrays of a program's buffers, made when somebody asks for them first. */
class BufferArrays {
  readonly #program: Program
  readonly #double: boolean
  readonly #kernels: Padded
  readonly #arena: Allocation
  readonly #arrays = new Map<Buffer, ElementArray>()

  constructor(program: Program, { double = false, buffers }: BindOptions, kernels: Padded) {
    this.#program = program
    this.#double = double
    this.#kernels = kernels
    this.#arena = allocated(program.arenaBytes * this.#scale, bytes => allocate(bytes, kernels))
    for (const binding of [...program.inputs, ...program.outputs]) {
      const given = buffers?.get(binding.name)
      if (!given || this.#arrays.has(binding.buffer)) continue
      expectFit(binding, given)
      this.#arrays.set(binding.buffer, given)
    }
  }

  /** The elements of a buffer. */
  of(buffer: Buffer): ElementArray {
    const known = this.#arrays.get(buffer)
    if (known) return known
    const array = this.#make(buffer)
    this.#arrays.set(buffer, array)
    return array
  }

  /** Arguments with arrays in the place of operands. */
  resolve(args: unknown): unknown {
    if (args instanceof Operand) {
      const array = this.of(args.buffer) as Float32Array
      return args.count === array.length ? array : array.subarray(args.offset, args.offset + args.count)
    }
    if (typeof args !== 'object' || args === null || Array.isArray(args)) return args
    return Object.fromEntries(Object.entries(args).map(([name, part]) => [name, this.resolve(part)]))
  }

  /** See {@link BoundProgram.memory}. */
  memory(): PlanMemory {
    return {
      scratch: [this.#arena.buffer],
      constant: this.#memoryOf('constant', 'folded'),
      state: this.#memoryOf('state'),
    }
  }

  /** See {@link BoundProgram.constants}. */
  constants(): ElementArray[] {
    return Array.from(this.#arrays)
      .filter(([{ storage }]) => storage === 'constant' || storage === 'folded')
      .map(([, array]) => array)
  }

  /** Forgets what neither steps nor bindings use. */
  *keepUsed(): Paced<void> {
    const { steps, inputs, outputs, state } = this.#program
    const used = new Set([...inputs, ...outputs, ...state].map(({ buffer }) => buffer))
    for (const { args } of steps) {
      for (const { buffer } of operandsOf(args)) used.add(buffer)
      yield
    }
    for (const buffer of this.#arrays.keys()) if (!used.has(buffer)) this.#arrays.delete(buffer)
  }

  /** Bytes of an element by those that it is planned with. */
  get #scale(): number {
    return this.#double ? 2 : 1
  }

  #make({ dtype, count, storage, initial, offset }: Buffer): ElementArray {
    const type = this.#double && dtype === 'f32' ? Float64Array : elementArrayOf(dtype)
    if (storage === 'constant') {
      const array = initial!()
      return this.#double && array instanceof Float32Array ? Float64Array.from(array) : array
    }
    if (storage === 'arena')
      return new type(this.#arena.buffer, this.#arena.offset + offset * this.#scale, count)
    const array = allocated(count * type.BYTES_PER_ELEMENT, bytes => {
      if (storage !== 'folded') return new type(count)
      const memory = allocate(bytes, this.#kernels)
      return new type(memory.buffer, memory.offset, count)
    })
    if (initial) (array as Float64Array).set(initial() as Float64Array)
    return array
  }

  /** What stays on a GPU of these storages: not what is handed out, even where it shares an ArrayBuffer. */
  #memoryOf(...storages: readonly Storage[]): ElementArray[] {
    const handedOut = new Set(this.#program.outputs.map(({ buffer }) => buffer))
    const known = [...this.#arrays].filter(
      ([buffer]) => storages.includes(buffer.storage) && !handedOut.has(buffer),
    )
    return known.map(([, array]) => array)
  }
}

/** Plans of fewer bytes are made without asking how many are free. */
const smallPlan = 2 ** 30

/** Refuses what is not there: Linux grants it, and ends the process that writes it. */
function* expectMemory(program: Program, { double = false, buffers }: BindOptions): Paced<void> {
  const { setup, steps, inputs, outputs, arenaBytes } = program
  const made = new Set(
    [...inputs, ...outputs].filter(({ name }) => !buffers?.has(name)).map(({ buffer }) => buffer),
  )
  const given = new Set(
    [...inputs, ...outputs].map(({ buffer }) => buffer).filter(buffer => !made.has(buffer)),
  )
  for (const { args } of [...setup, ...steps]) {
    for (const { buffer } of operandsOf(args)) if (!given.has(buffer)) made.add(buffer)
    yield
  }
  const arrays = [...made].filter(({ storage }) => storage !== 'arena' && storage !== 'constant')
  const planned = arrays.reduce((sum, { dtype, count }) => sum + arrayBytes(dtype, count), arenaBytes)
  const bytes = planned * (double ? 2 : 1)
  if (bytes <= smallPlan) return
  const { total, available, source } = machineMemory(systemRoot())
  const free = source === 'os' ? total : available // macOS and Windows do not count their caches as free
  if (bytes > free)
    throw new SparkError('ERR_OUT_OF_MEMORY', `the plan needs ${bytes} bytes, but only ${free} are free`)
}

function allocated<T>(bytes: number, make: (bytes: number) => T): T {
  try {
    return make(bytes)
  } catch (cause) {
    const message = `the plan needs an array of ${bytes} bytes, which this process cannot have`
    throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause })
  }
}

function expectFit({ name, dtype, shape, buffer }: Binding, given: ElementArray): void {
  const kind = elementArrayOf(dtype)
  if (!(given instanceof kind)) {
    throw new SparkError(
      'ERR_DTYPE',
      `'${name}' needs a ${kind.name} for ${dtype}, got ${given.constructor.name}`,
    )
  }
  if (given.length !== buffer.count) {
    const wanted = `[${shape.join(', ')}] has ${buffer.count} elements`
    throw new SparkError('ERR_SHAPE', `'${name}': ${wanted}, but the array has ${given.length}`)
  }
}
