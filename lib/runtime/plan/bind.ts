// bind.ts: gives the operands of a program their memory.
import { type ElementArray, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { PlanMemory } from '../../native.js'
import { allocateRoom } from '../aligned.js'
import type { BoundStep, Kernels } from '../kernels.js'
import {
  type Buffer,
  Operand,
  operandsOf,
  type Port,
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
  releaseSetup(): void
  /** What the steps read and nobody writes. */
  constants(): ElementArray[]
}

/** Options of {@link bind}. */
export interface BindOptions {
  /** Hold all f32 values as f64, which the TypeScript kernels then compute with: for checks of formulas. */
  readonly double?: boolean
  /**
   * Arrays of the caller for inputs and outputs, by name, instead of new ones: they must have the type and number of
   * elements of their port.
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
export function bind(
  program: Program,
  { double = false, buffers }: BindOptions = {},
  kernels: Padded = {},
): BoundProgram {
  const scale = double ? 2 : 1
  const arena = allocated(program.arenaBytes * scale, bytes => allocateRoom(bytes, kernels))
  const arrays = new Map<Buffer, ElementArray>()
  for (const port of [...program.inputs, ...program.outputs]) {
    const given = buffers?.get(port.name)
    if (!given || arrays.has(port.buffer)) continue
    expectFit(port, given)
    arrays.set(port.buffer, given)
  }
  const wide = (array: ElementArray): ElementArray =>
    double && array instanceof Float32Array ? Float64Array.from(array) : array

  const arrayOf = (buffer: Buffer): ElementArray => {
    const known = arrays.get(buffer)
    if (known) return known
    const array = makeArray(buffer)
    arrays.set(buffer, array)
    return array
  }
  const makeArray = (buffer: Buffer): ElementArray => {
    const { dtype, count, storage, initial, offset } = buffer
    const type = double && dtype === 'f32' ? Float64Array : elementArrayOf(dtype)
    if (storage === 'constant') return wide(initial!())
    if (storage === 'arena') return new type(arena.buffer, arena.offset + offset * scale, count)
    const array = allocated(count * type.BYTES_PER_ELEMENT, bytes => {
      if (storage !== 'packed') return new type(count)
      const room = allocateRoom(bytes, kernels)
      return new type(room.buffer, room.offset, count)
    })
    if (initial) (array as Float64Array).set(initial() as Float64Array)
    return array
  }
  const resolve = (args: unknown): unknown => {
    if (args instanceof Operand) {
      const array = arrayOf(args.buffer) as Float32Array
      return args.count === array.length ? array : array.subarray(args.offset, args.offset + args.count)
    }
    if (typeof args !== 'object' || args === null || Array.isArray(args)) return args
    return Object.fromEntries(Object.entries(args).map(([name, part]) => [name, resolve(part)]))
  }
  const bound = ({ op, args }: Step): BoundStep => ({ op, args: resolve(args) as object })
  const handedOut = new Set(program.outputs.map(({ buffer }) => buffer))
  const buffersOf = (...storages: readonly Storage[]): ArrayBufferLike[] => {
    const known = [...arrays].filter(
      ([buffer]) => storages.includes(buffer.storage) && !handedOut.has(buffer),
    )
    return [...new Set(known.map(([, array]) => array.buffer))]
  }
  const memory = (): PlanMemory => ({
    scratch: [arena.buffer],
    constant: buffersOf('constant', 'packed'),
    state: buffersOf('state'),
  })
  const constants = (): ElementArray[] =>
    Array.from(arrays)
      .filter(([{ storage }]) => storage === 'constant' || storage === 'packed')
      .map(([, array]) => array)
  const setup = program.setup.map(bound)
  const releaseSetup = (): void => {
    setup.length = 0
    const operands = program.steps.flatMap(({ args }) => [...operandsOf(args)])
    const ports = [...program.inputs, ...program.outputs, ...program.state]
    const used = new Set([...operands, ...ports].map(({ buffer }) => buffer))
    for (const buffer of arrays.keys()) if (!used.has(buffer)) arrays.delete(buffer)
  }
  return { memory, constants, setup, releaseSetup, steps: program.steps.map(bound), arrayOf }
}

function allocated<T>(bytes: number, make: (bytes: number) => T): T {
  try {
    return make(bytes)
  } catch (cause) {
    const message = `the plan needs an array of ${bytes} bytes, which this process cannot have`
    throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause })
  }
}

function expectFit({ name, dtype, shape, buffer }: Port, given: ElementArray): void {
  const kind = elementArrayOf(dtype)
  if (!(given instanceof kind)) {
    const wanted = (kind as unknown as { name: string }).name
    throw new SparkError(
      'ERR_DTYPE',
      `'${name}' needs a ${wanted} for ${dtype}, got ${given.constructor.name}`,
    )
  }
  if (given.length !== buffer.count) {
    const wanted = `[${shape.join(', ')}] has ${buffer.count} elements`
    throw new SparkError('ERR_SHAPE', `'${name}': ${wanted}, but the array has ${given.length}`)
  }
}
