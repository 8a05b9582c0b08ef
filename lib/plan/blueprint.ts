// blueprint.ts: the steps of a program as a backend keeps them for all sizes.
import { type ElementArray, elementArrayOf } from '../core/dtype.js'
import type { Size } from '../core/size.js'
import { SizeExpression, type SizeValues } from '../core/size-scope.js'
import type { Kernels, PreparedSteps, Region, StepBlueprint } from '../kernels/kernels.js'
import type { Layout } from './arena.js'
import type { BoundProgram } from './bind.js'
import { type Buffer, Operand, operandsOf, type Program } from './program.js'

/** The steps of a program, read once by a backend: to bind them takes numbers and addresses only. */
export class Blueprint {
  readonly #steps: StepBlueprint
  /** Sizes by their index. */
  readonly #sizes: SizeExpression[] = []
  readonly #indices = new Map<SizeExpression, bigint>()
  readonly #regions = new Map<Buffer, number>()
  /** Buffers of the plan's own. */
  readonly #slots: Buffer[] = []
  /** Buffers in the arena. */
  readonly #parts: Buffer[] = []
  /** What steps are bound to. */
  readonly #bound = new WeakMap<
    PreparedSteps,
    { readonly arrays: readonly ElementArray[]; readonly arena: ArrayBufferLike }
  >()
  #last: { readonly layout: Layout; readonly offsets: Float64Array } | undefined

  /**
   * @param folded - what the setup of the program has made
   * @param kernels - whose {@link Kernels.blueprint} is there
   */
  constructor(program: Program, folded: ReadonlyMap<Buffer, ElementArray>, kernels: Kernels) {
    const regions: Region[] = []
    for (const { args } of program.steps) {
      for (const { buffer } of operandsOf(args)) {
        if (this.#regions.has(buffer)) continue
        this.#regions.set(buffer, regions.length)
        regions.push(this.#region(buffer, folded))
      }
    }
    const steps = program.steps.map(({ op, args, node }) => ({ op, node, args: this.#read(args) as object }))
    this.#steps = kernels.blueprint!(steps, regions)
  }

  /**
   * The steps for some sizes.
   * @param over - steps for other sizes, which become those
   * @throws SparkError ERR_SHAPE for sizes that do not fit together
   */
  bind(
    values: SizeValues,
    { arrayOf, arena, layout }: BoundProgram,
    over: PreparedSteps | undefined,
  ): PreparedSteps {
    const sizes = new Float64Array(this.#sizes.length)
    for (const [i, size] of this.#sizes.entries()) sizes[i] = values.of(size)
    const all = this.#slots.map(arrayOf)
    const arrays = over ? this.#changed(over, all, arena) : all
    const steps = this.#steps.bind(sizes, arrays, arena, this.#offsetsOf(layout), over)
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

  #region(buffer: Buffer, folded: ReadonlyMap<Buffer, ElementArray>): Region {
    const { storage, dtype, count } = buffer
    if (storage === 'arena') {
      this.#parts.push(buffer)
      return { type: new (elementArrayOf(dtype))(0), count: this.#number(count) }
    }
    const made = folded.get(buffer)
    if (made) return { array: made, isPrivate: true }
    const given = storage === 'constant' ? buffer.elements() : undefined
    if (given) return { array: given, isPrivate: false }
    return { slot: this.#slots.push(buffer) - 1 }
  }

  #read(args: unknown): unknown {
    if (typeof args !== 'object' || args === null) return args
    if (args instanceof SizeExpression) return this.#number(args)
    if (args instanceof Operand) {
      const { buffer, offset, count } = args
      return { region: this.#regions.get(buffer)!, offset: this.#number(offset), count: this.#number(count) }
    }
    if (Array.isArray(args)) return args.map(part => this.#read(part))
    return Object.fromEntries(Object.entries(args).map(([name, part]) => [name, this.#read(part)]))
  }

  /** A number, or the index of a size. */
  #number(size: Size): number | bigint {
    if (typeof size === 'number') return size
    const known = this.#indices.get(size)
    if (known !== undefined) return known
    const index = BigInt(this.#sizes.push(size) - 1)
    this.#indices.set(size, index)
    return index
  }
}
