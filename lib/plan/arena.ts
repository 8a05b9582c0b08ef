// arena.ts: layout of buffers in the arena by their live ranges. A buffer is alive from the step that first writes it to the last that uses it.
import { arrayBytes } from '../core/dtype.js'
import { atOnce, type Paced } from '../core/paced.js'
import { contiguousStrides } from '../core/shape.js'
import { roundUp, type Size } from '../core/size.js'
import { fixedSizes, type SizeValues } from '../core/size-scope.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

/** Buffers start on cache lines. */
const alignment = 64

/** The steps over which a buffer is alive. */
interface LiveRange {
  readonly buffer: Buffer
  readonly first: number
  last: number
}

/** Where the buffers of an arena are. */
export interface Layout {
  /** Offsets in bytes. */
  readonly offsets: ReadonlyMap<Buffer, number>
  /** Bytes of the arena. */
  readonly arenaBytes: number
  /** The most bytes that are alive at once: no layout can be smaller. */
  readonly lowerBound: number
}

/** What is known of the buffers of some steps, whatever their sizes. */
interface Liveness {
  /** In the order of their first steps. */
  readonly ranges: readonly LiveRange[]
  /** By range, those of the ranges before it that last until it begins; undefined where they are too many. */
  readonly earlier: readonly (readonly number[])[] | undefined
}

/** What was found for steps that are laid out for one set of sizes after another. */
const latest = new WeakMap<
  readonly Step[],
  { readonly liveness: Liveness; readonly sizes: Float64Array; readonly layout: Layout }
>()

/** When each buffer of the arena is alive, by that buffer, in the order of their first steps. */
function* liveRangesOf(steps: readonly Step[]): Paced<Map<Buffer, LiveRange>> {
  const ranges = new Map<Buffer, LiveRange>()
  for (const [at, step] of steps.entries()) {
    yield
    for (const { buffer } of operandsOf(step.args)) {
      if (buffer.storage !== 'arena') continue
      const range = ranges.get(buffer)
      if (range) range.last = at
      else ranges.set(buffer, { buffer, first: at, last: at })
    }
  }
  return ranges
}

/** Operands that the contract of an operation lets its result lie over. */
function replaceable(step: Step): Operand[] {
  if (step.op === 'binary') return contiguousOperands(step)
  if ((step.op === 'norm' || step.op === 'linear') && !step.args.y) return []
  if (step.op === 'unary' || step.op === 'softmax' || step.op === 'batchNorm' || step.op === 'norm')
    return [step.args.x]
  if (step.op !== 'conv' && step.op !== 'linear') return []
  const { x, residual } = step.args
  const { gate } = step.op === 'linear' ? step.args : {}
  return [residual, gate].filter(operand => operand !== undefined).filter(({ buffer }) => buffer !== x.buffer)
}

/** Whether the contract of a step lets its result lie over a buffer. */
export const mayOverwrite = (step: Step, buffer: Buffer): boolean =>
  replaceable(step).some(operand => operand.buffer === buffer)

/**
 * Lets elementwise steps write their result over an operand that nobody reads later. Changes the buffers.
 */
export function* shareInPlace(steps: readonly Step[]): Paced<void> {
  const ranges = yield* liveRangesOf(steps)
  for (const [at, step] of steps.entries()) {
    yield
    const candidates = replaceable(step)
    if (candidates.length === 0) continue
    const y = (step.args as { readonly y: Operand }).y.buffer
    const range = ranges.get(y)
    if (!range || range.first !== at) continue
    const over = candidates.find(({ buffer }) => {
      const ends = ranges.get(buffer)?.last === at
      return ends && buffer.count === y.count && buffer.dtype === y.dtype
    })
    if (!over) continue
    ranges.get(over.buffer)!.last = range.last
    y.mergeInto(over.buffer)
  }
}

function contiguousOperands({ args }: Extract<Step, { op: 'binary' }>): Operand[] {
  const { shape, a, b, aStrides, bStrides } = args
  const contiguous = contiguousStrides(shape)
  const matches = (strides: readonly Size[]): boolean =>
    strides.every((stride, i) => stride === contiguous[i])
  const [over, beside] = [matches(aStrides), matches(bStrides)]
  if (a.buffer === b.buffer && !(over && beside)) return []
  return [...(over ? [a] : []), ...(beside ? [b] : [])]
}

/**
 * Gives each buffer of the arena its offset. Buffers whose size is a symbol get up to an eighth more than they need.
 * @param values - of the sizes
 * @param most - up to how many pairs of buffers that are alive at once are compared
 */
export function* layOut(
  steps: readonly Step[],
  values: SizeValues = fixedSizes,
  most = maxPairs,
): Paced<Layout> {
  const known = latest.get(steps)
  const liveness = known?.liveness ?? (yield* livenessOf(steps, most))
  const { ranges, earlier } = liveness
  const sizes = Float64Array.from(ranges, ({ buffer }) => sizeOf(buffer, values))
  if (known?.sizes.every((bytes, i) => bytes === sizes[i])) return known.layout
  const placed = yield* earlier ? layOutLargest(ranges, earlier, sizes) : layOutInOrder(ranges, sizes)
  const offsets = new Map(ranges.map(({ buffer }, i) => [buffer, placed[i]!]))
  const arenaBytes = placed.reduce((end, offset, i) => Math.max(end, offset + sizes[i]!), 0)
  const layout = { offsets, arenaBytes, lowerBound: mostAlive(ranges, sizes) }
  latest.set(steps, { liveness, sizes, layout })
  return layout
}

function* livenessOf(steps: readonly Step[], most: number): Paced<Liveness> {
  const ranges = [...(yield* liveRangesOf(steps)).values()]
  const earlier: number[][] = []
  let [alive, pairs] = [[] as number[], 0]
  for (const [i, { first }] of ranges.entries()) {
    yield
    alive = alive.filter(j => ranges[j]!.last >= first)
    pairs += alive.length
    if (pairs > most) return { ranges, earlier: undefined }
    earlier.push(alive)
    alive = [...alive, i]
  }
  return { ranges, earlier }
}

function sizeOf({ dtype, count }: Buffer, values: SizeValues): number {
  const bytes = arrayBytes(dtype, values.of(count))
  return typeof count === 'number' ? roundUp(bytes, alignment) : withSpare(bytes)
}

/** Up to an eighth more than is needed, so that sizes which follow each other closely have one layout. */
const withSpare = (bytes: number): number =>
  roundUp(bytes, Math.max(alignment, 2 ** (Math.floor(Math.log2(Math.max(bytes, 1))) - 3)))

/** Bytes of the arena of steps whose sizes are numbers. */
export function arenaBytesOf(steps: readonly Step[]): number {
  return atOnce(layOut(steps)).arenaBytes
}

/** The most bytes that are alive at once. */
function mostAlive(ranges: readonly LiveRange[], sizes: Float64Array): number {
  const end = ranges.reduce((end, { last }) => Math.max(end, last + 1), 0)
  const change = new Float64Array(end + 1)
  for (const [i, { first, last }] of ranges.entries()) {
    change[first]! += sizes[i]!
    change[last + 1]! -= sizes[i]!
  }
  let alive = 0
  return change.reduce((most, bytes) => {
    alive += bytes
    return Math.max(most, alive)
  }, 0)
}

/** More pairs would take megabytes and seconds. */
const maxPairs = 2 ** 21

/** Large ones first, each at the lowest offset that is free during its live range. */
function* layOutLargest(
  ranges: readonly LiveRange[],
  earlier: Liveness['earlier'] & object,
  sizes: Float64Array,
): Paced<Float64Array> {
  const offsets = new Float64Array(ranges.length).fill(Number.NaN)
  const largest = Uint32Array.from(ranges.keys()).sort((a, b) => sizes[b]! - sizes[a]! || a - b)
  for (const i of largest) {
    const neighbours = earlier[i]!.filter(j => !Number.isNaN(offsets[j]!))
    for (let j = i + 1; j < ranges.length && ranges[j]!.first <= ranges[i]!.last; j++)
      if (!Number.isNaN(offsets[j]!)) neighbours.push(j)
    neighbours.sort((a, b) => offsets[a]! - offsets[b]!)
    let offset = 0
    for (const j of neighbours) {
      if (offset + sizes[i]! <= offsets[j]!) break
      offset = Math.max(offset, offsets[j]! + sizes[j]!)
    }
    offsets[i] = offset
    yield
  }
  return offsets
}

/** In the order of their live ranges, each at the last offset that a buffer of its size left, or else behind all others. */
function* layOutInOrder(ranges: readonly LiveRange[], sizes: Float64Array): Paced<Float64Array> {
  const offsets = new Float64Array(ranges.length)
  const free = new Map<number, number[]>()
  const ending = [...ranges.keys()].sort((a, b) => ranges[a]!.last - ranges[b]!.last)
  let [ended, arenaBytes] = [0, 0]
  for (const [i, { first }] of ranges.entries()) {
    for (; ranges[ending[ended]!]!.last < first; ended++) {
      const j = ending[ended]!
      const left = free.get(sizes[j]!)
      if (left) left.push(offsets[j]!)
      else free.set(sizes[j]!, [offsets[j]!])
    }
    const reused = free.get(sizes[i]!)?.pop()
    offsets[i] = reused ?? arenaBytes
    if (reused === undefined) arenaBytes += sizes[i]!
    yield
  }
  return offsets
}
