// blueprint.ts: the steps of a program as a backend keeps them for all sizes.
import { type ElementArray, elementArrayOf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import type { Size } from '../core/size.js'
import { SizeExpression, type SizeValues } from '../core/size-scope.js'
import type { BoundStep, Kernels, PreparedSteps, Region, StepBlueprint } from '../kernels/kernels.js'
import type { Layout } from './arena.js'
import type { BoundProgram } from './bind.js'
import { type Buffer, Operand, type Program, type Step } from './program.js'

/** The steps of a program, read once by a backend: to bind them takes numbers and addresses only. */
export class Blueprint {
  readonly #steps: StepBlueprint
  /** Sizes by their index. */
  readonly #sizes: readonly SizeExpression[]
  /** Buffers of the plan's own. */
  readonly #slots: readonly Buffer[]
  /** Buffers in the arena. */
  readonly #parts: readonly Buffer[]
  /** What steps are bound to. */
  readonly #bound = new WeakMap<
    PreparedSteps,
    { readonly arrays: readonly ElementArray[]; readonly arena: ArrayBufferLike }
  >()
  #last: { readonly layout: Layout; readonly offsets: Float64Array } | undefined

  private constructor(steps: StepBlueprint, { sizes, slots, parts }: StepReader) {
    this.#steps = steps
    this.#sizes = sizes
    this.#slots = slots
    this.#parts = parts
  }

  /**
   * Reads the steps of a program.
   * @param folded - what its setup has made
   * @param kernels - whose {@link Kernels.blueprint} is there
   */
  static *read(
    program: Program,
    folded: ReadonlyMap<Buffer, ElementArray>,
    kernels: Kernels,
  ): Paced<Blueprint> {
    const reader = new StepReader(folded)
    const steps = yield* mapPaced(program.steps, step => reader.step(step))
    return new Blueprint(yield* kernels.blueprint!(steps, reader.regions), reader)
  }

  /**
   * The steps for some sizes.
   * @param over - steps for other sizes, which become those
   * @throws SparkError ERR_SHAPE for sizes that do not fit together
   */
  *bind(
    values: SizeValues,
    { arrayOf, arena, layout }: BoundProgram,
    over: PreparedSteps | undefined,
  ): Paced<PreparedSteps> {
    const sizes = Float64Array.from(yield* mapPaced(this.#sizes, size => values.of(size)))
    const all = yield* mapPaced(this.#slots, arrayOf)
    const arrays = over ? this.#changed(over, all, arena) : all
    const steps = yield* this.#steps.bind(sizes, arrays, arena, this.#offsetsOf(layout), over)
    this.#bound.set(steps, { arrays: all, arena: arena.buffer })
    return steps
  }

  /** The arrays of steps but for those that they have already; all of them when one is in another ArrayBuffer now. */
  #changed(
    steps: PreparedSteps,
    arrays: readonly ElementArray[],
    arena: Uint8Array,
  ): (ElementArray | undefined)[] {
    const before = this.#bound.get(steps)
    const stays =
      before?.arena === arena.buffer && arrays.every((array, i) => array.buffer === before.arrays[i]!.buffer)
    return arrays.map((array, i) => (stays && array === before.arrays[i] ? undefined : array))
  }

  /** Where the parts are in the arena. */
  #offsetsOf(layout: Layout): Float64Array {
    if (this.#last?.layout === layout) return this.#last.offsets
    const offsets = Float64Array.from(this.#parts, buffer => layout.offsets.get(buffer)!)
    this.#last = { layout, offsets }
    return offsets
  }

  /** Lets the weights go: plans that were bound keep them. */
  dispose(): void {
    this.#steps.dispose()
  }
}

/** Steps in the form that {@link Kernels.blueprint} reads. */
class StepReader {
  /** What operands are pieces of. */
  readonly regions: Region[] = []
  /** See {@link Blueprint}. */
  readonly sizes: SizeExpression[] = []
  readonly slots: Buffer[] = []
  readonly parts: Buffer[] = []
  readonly #folded: ReadonlyMap<Buffer, ElementArray>
  readonly #sizeIndices = new Map<SizeExpression, bigint>()
  readonly #regionIndices = new Map<Buffer, number>()

  constructor(folded: ReadonlyMap<Buffer, ElementArray>) {
    this.#folded = folded
  }

  step({ op, args, node }: Step): BoundStep {
    return { op, node, args: this.#read(args) as object }
  }

  #region(buffer: Buffer): Region {
    const { storage, dtype, count } = buffer
    if (storage === 'arena') {
      this.parts.push(buffer)
      return { type: new (elementArrayOf(dtype))(0), count: this.#number(count) }
    }
    const made = this.#folded.get(buffer)
    if (made) return { array: made, isPrivate: true }
    const given = storage === 'constant' ? buffer.elements() : undefined
    if (given) return { array: given, isPrivate: false }
    return { slot: this.slots.push(buffer) - 1 }
  }

  #regionOf(buffer: Buffer): number {
    const known = this.#regionIndices.get(buffer)
    if (known !== undefined) return known
    const index = this.regions.push(this.#region(buffer)) - 1
    this.#regionIndices.set(buffer, index)
    return index
  }

  #read(args: unknown): unknown {
    if (typeof args !== 'object' || args === null) return args
    if (args instanceof SizeExpression) return this.#number(args)
    if (args instanceof Operand) {
      const { buffer, offset, count } = args
      return { region: this.#regionOf(buffer), offset: this.#number(offset), count: this.#number(count) }
    }
    if (Array.isArray(args)) return args.map(part => this.#read(part))
    return Object.fromEntries(Object.entries(args).map(([name, part]) => [name, this.#read(part)]))
  }

  /** A number, or the index of a size. */
  #number(size: Size): number | bigint {
    if (typeof size === 'number') return size
    const known = this.#sizeIndices.get(size)
    if (known !== undefined) return known
    const index = BigInt(this.sizes.push(size) - 1)
    this.#sizeIndices.set(size, index)
    return index
  }
}
