// arena.ts: layout of buffers in the arena by their live ranges. A buffer is alive from the step that first writes it to the last that uses it.
import { arrayBytes } from '../core/dtype.js'
import type { Paced } from '../core/paced.js'
import { contiguousStrides } from '../core/shape.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

/** Buffers start on cache lines. */
const alignment = 64

interface LiveRange {
  readonly buffer: Buffer
  first: number
  last: number
  bytes: number
}

/** When each buffer of the arena is alive. */
function* liveRangesOf(steps: readonly Step[]): Paced<Map<Buffer, LiveRange>> {
  const ranges = new Map<Buffer, LiveRange>()
  for (const [at, step] of steps.entries()) {
    yield
    for (const { buffer } of operandsOf(step.args)) {
      if (buffer.storage !== 'arena') continue
      const range = ranges.get(buffer)
      const bytes = Math.ceil(arrayBytes(buffer.dtype, buffer.count) / alignment) * alignment
      if (range) range.last = at
      else ranges.set(buffer, { buffer, first: at, last: at, bytes })
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
  const matches = (strides: readonly number[]): boolean =>
    strides.every((stride, i) => stride === contiguous[i])
  const [over, beside] = [matches(aStrides), matches(bStrides)]
  if (a.buffer === b.buffer && !(over && beside)) return []
  return [...(over ? [a] : []), ...(beside ? [b] : [])]
}

/**
 * Gives each buffer of the arena its offset.
 * @param compared - up to how many buffers each is compared with all others
 * @returns bytes of the arena, and the most that are alive at once
 */
export function* layOut(
  steps: readonly Step[],
  compared = maxCompared,
): Paced<{ arenaBytes: number; lowerBound: number }> {
  const ranges = [...(yield* liveRangesOf(steps)).values()]
  const arenaBytes = yield* ranges.length <= compared ? layOutLargest(ranges) : layOutInOrder(ranges)
  const change = new Array<number>(steps.length + 1).fill(0)
  for (const { first, last, bytes } of ranges) {
    change[first]! += bytes
    change[last + 1]! -= bytes
  }
  let alive = 0
  let lowerBound = 0
  for (const bytes of change) {
    alive += bytes
    lowerBound = Math.max(lowerBound, alive)
  }
  return { arenaBytes, lowerBound }
}

/** Of more buffers the comparisons would take minutes. */
const maxCompared = 8192

/** Large ones first, each at the lowest place that is free during its live range. */
function* layOutLargest(ranges: readonly LiveRange[]): Paced<number> {
  const placed: LiveRange[] = []
  let arenaBytes = 0
  for (const range of [...ranges].sort((a, b) => b.bytes - a.bytes || a.first - b.first)) {
    const others = placed
      .filter(other => other.first <= range.last && range.first <= other.last)
      .sort((a, b) => a.buffer.offset - b.buffer.offset)
    let offset = 0
    for (const other of others) {
      if (offset + range.bytes <= other.buffer.offset) break
      offset = Math.max(offset, other.buffer.offset + other.bytes)
    }
    range.buffer.offset = offset
    arenaBytes = Math.max(arenaBytes, offset + range.bytes)
    placed.push(range)
    yield
  }
  return arenaBytes
}

/** In the order of their live ranges, each at the last offset that a buffer of its size left, or else behind all others. */
function* layOutInOrder(ranges: readonly LiveRange[]): Paced<number> {
  const free = new Map<number, number[]>()
  const ending = [...ranges].sort((a, b) => a.last - b.last)
  let [ended, arenaBytes] = [0, 0]
  // Live ranges are in the order of their first steps.
  for (const { buffer, first, bytes } of ranges) {
    for (; ending[ended]!.last < first; ended++) {
      const { bytes: size, buffer: old } = ending[ended]!
      const offsets = free.get(size)
      if (offsets) offsets.push(old.offset)
      else free.set(size, [old.offset])
    }
    const reused = free.get(bytes)?.pop()
    buffer.offset = reused ?? arenaBytes
    if (reused === undefined) arenaBytes += bytes
    yield
  }
  return arenaBytes
}
