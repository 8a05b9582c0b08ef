// bind.ts: gives the operands of a program their memory.
import { type ElementArray, elementArrayOf } from '../../core/dtype.js'
import type { BoundStep } from '../kernels.js'
import { type Buffer, Operand, type Program, type Step } from './program.js'

/** A program whose operands are typed arrays. */
export interface BoundProgram {
  /** Run once, before the steps. */
  readonly setup: readonly BoundStep[]
  /** Run each time. */
  readonly steps: readonly BoundStep[]
  /** The elements of a buffer. */
  arrayOf(buffer: Buffer): ElementArray
  /** Memory that only the steps touch once the setup has run: the arena and what is constant. */
  resident(): ArrayBufferLike[]
}

/** Options of {@link bind}. */
export interface BindOptions {
  /** Hold all f32 values as f64, which the TypeScript kernels then compute with: for checks of formulas. */
  readonly double?: boolean
}

/**
 * Binds a program to new memory: the arena, the packed constants, the state and the areas of inputs and outputs.
 * Constants stay where they are.
 */
export function bind(program: Program, { double = false }: BindOptions = {}): BoundProgram {
  const scale = double ? 2 : 1
  const arena = new ArrayBuffer(program.arenaBytes * scale)
  const arrays = new Map<Buffer, ElementArray>()
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
    if (storage === 'arena') return new type(arena, offset * scale, count)
    const array = new type(count)
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
  const resident = (): ArrayBufferLike[] => {
    const constants = [...arrays].filter(([{ storage }]) => storage === 'constant' || storage === 'packed')
    return [arena, ...new Set(constants.map(([, array]) => array.buffer))]
  }
  return { resident, setup: program.setup.map(bound), steps: program.steps.map(bound), arrayOf }
}
