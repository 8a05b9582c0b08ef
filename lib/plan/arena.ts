// arena.ts: layout of buffers in the arena by their live ranges. A buffer is alive from the step that first writes it to the last that uses it.
import { arrayBytes } from '../core/dtype.js'
import { atOnce, type Paced } from '../core/paced.js'
import { contiguousStrides } from '../core/shape.js'
import type { Size } from '../core/size.js'
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

/** A live range of some bytes, and where they are. */
interface Block extends LiveRange {
  readonly bytes: number
  offset: number
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

/** What was found for steps that are laid out for one set of sizes after another. */
const latest = new WeakMap<
  readonly Step[],
  { readonly ranges: readonly LiveRange[]; readonly sizes: readonly number[]; readonly layout: Layout }
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
  if (step.op === 'unary' || step.op === 'softmax' || step.op === 'batchNorm' || step.op === 'norm')
    return [step.args.x]
  const { residual, x } = step.op === 'conv' || step.op === 'linear' ? step.args : {}
  return residual && residual.buffer !== x?.buffer ? [residual] : []
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
 * @param compared - up to how many buffers each is compared with all others
 */
export function* layOut(
  steps: readonly Step[],
  values: SizeValues = fixedSizes,
  compared = maxCompared,
): Paced<Layout> {
  const known = latest.get(steps)
  const ranges = known?.ranges ?? [...(yield* liveRangesOf(steps)).values()]
  const sizes = ranges.map(({ buffer: { dtype, count } }) => {
    const bytes = arrayBytes(dtype, values.of(count))
    return typeof count === 'number' ? roundUp(bytes, alignment) : withSpare(bytes)
  })
  if (known?.sizes.every((bytes, i) => bytes === sizes[i])) return known.layout
  const blocks = ranges.map((range, i): Block => ({ ...range, bytes: sizes[i]!, offset: 0 }))
  const arenaBytes = yield* blocks.length <= compared ? layOutLargest(blocks) : layOutInOrder(blocks)
  const offsets = new Map(blocks.map(({ buffer, offset }) => [buffer, offset]))
  const layout = { offsets, arenaBytes, lowerBound: mostAlive(blocks) }
  latest.set(steps, { ranges, sizes, layout })
  return layout
}

const roundUp = (bytes: number, unit: number): number => Math.ceil(bytes / unit) * unit

/** Up to an eighth more than is needed, so that sizes which follow each other closely have one layout. */
const withSpare = (bytes: number): number =>
  roundUp(bytes, Math.max(alignment, 2 ** (Math.floor(Math.log2(Math.max(bytes, 1))) - 3)))

/** Bytes of the arena of steps whose sizes are numbers. */
export function arenaBytesOf(steps: readonly Step[]): number {
  return atOnce(layOut(steps)).arenaBytes
}

/** The most bytes that are alive at once. */
function mostAlive(blocks: readonly Block[]): number {
  const end = blocks.reduce((end, { last }) => Math.max(end, last + 1), 0)
  const change = new Array<number>(end + 1).fill(0)
  for (const { first, last, bytes } of blocks) {
    change[first]! += bytes
    change[last + 1]! -= bytes
  }
  let alive = 0
  return change.reduce((most, bytes) => {
    alive += bytes
    return Math.max(most, alive)
  }, 0)
}

/** Of more buffers the comparisons would take minutes. */
const maxCompared = 8192

/** Large ones first, each at the lowest offset that is free during its live range. */
function* layOutLargest(blocks: readonly Block[]): Paced<number> {
  /** By their offsets. */
  const placed: Block[] = []
  let arenaBytes = 0
  for (const block of [...blocks].sort((a, b) => b.bytes - a.bytes || a.first - b.first)) {
    let offset = 0
    for (const other of placed) {
      if (other.first > block.last || block.first > other.last) continue
      if (offset + block.bytes <= other.offset) break
      offset = Math.max(offset, other.offset + other.bytes)
    }
    block.offset = offset
    arenaBytes = Math.max(arenaBytes, offset + block.bytes)
    const behind = placed.findIndex(other => other.offset > offset)
    placed.splice(behind < 0 ? placed.length : behind, 0, block)
    yield
  }
  return arenaBytes
}

/** In the order of their live ranges, each at the last offset that a buffer of its size left, or else behind all others. */
function* layOutInOrder(blocks: readonly Block[]): Paced<number> {
  const free = new Map<number, number[]>()
  const ending = [...blocks].sort((a, b) => a.last - b.last)
  let [ended, arenaBytes] = [0, 0]
  // Live ranges are in the order of their first steps.
  for (const block of blocks) {
    for (; ending[ended]!.last < block.first; ended++) {
      const { bytes, offset } = ending[ended]!
      const offsets = free.get(bytes)
      if (offsets) offsets.push(offset)
      else free.set(bytes, [offset])
    }
    const reused = free.get(block.bytes)?.pop()
    block.offset = reused ?? arenaBytes
    if (reused === undefined) arenaBytes += block.bytes
    yield
  }
  return arenaBytes
}
