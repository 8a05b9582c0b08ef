// copies.ts: copies of contiguous pieces that need not be made. The parts of a concatenation are computed where they end
// up; a slice is read where it lies.
import type { Paced } from '../core/paced.js'
import { add, hintOf, type Size } from '../core/size.js'
import { mayOverwrite } from './arena.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

type Copy = Extract<Step, { op: 'copyStrided' }>

interface Piece {
  readonly src: Operand
  readonly dst: Operand
  readonly srcStart: Size
  readonly dstStart: Size
  readonly count: Size
}

/** What a step copies, when it is one contiguous piece. */
function pieceOf({ op, args }: Step): Piece | undefined {
  if (op !== 'copyStrided') return undefined
  const { shape, srcStrides, dstStrides, src, dst, srcOffset, dstOffset } = args as Copy['args']
  const line = shape.length === 0 || (shape.length === 1 && srcStrides[0] === 1 && dstStrides[0] === 1)
  if (!line || src.buffer.dtype !== dst.buffer.dtype || src.buffer === dst.buffer) return undefined
  const [srcStart, dstStart] = [add(src.offset, srcOffset), add(dst.offset, dstOffset)]
  return { src, dst, srcStart, dstStart, count: shape[0] ?? 1 }
}

/** How the steps use a buffer. */
interface Use {
  /** Steps that write it, by their place. */
  readonly writes: number[]
  /** The last step that reads it, or -1. */
  lastRead: number
  updated: boolean
}

function* usesOf(steps: readonly Step[]): Paced<Map<Buffer, Use>> {
  const uses = new Map<Buffer, Use>()
  for (const [at, step] of steps.entries()) {
    yield
    for (const { buffer, access } of operandsOf(step.args)) {
      const use = uses.get(buffer) ?? { writes: [], lastRead: -1, updated: false }
      uses.set(buffer, use)
      if (access === 'write') use.writes.push(at)
      else use.lastRead = at
      use.updated ||= access === 'update'
    }
  }
  return uses
}

/** Drops copies whose source can lie in the target, or the other way round. Changes the buffers. */
export function* elideCopies(steps: readonly Step[]): Paced<Step[]> {
  const uses = yield* usesOf(steps)
  const isFixed = (buffer: Buffer): boolean => uses.get(buffer)?.updated === false
  /** Whether each element of a buffer is written by one copy of a piece. */
  const isConcatenation = (buffer: Buffer): boolean => {
    const pieces = uses.get(buffer)!.writes.map(at => pieceOf(steps[at]!))
    const sorted = pieces
      .filter(piece => piece !== undefined)
      .sort((a, b) => hintOf(a.dstStart) - hintOf(b.dstStart))
    let end: Size = 0
    for (const { dstStart, count } of sorted) {
      if (dstStart !== end) return false
      end = add(end, count)
    }
    return sorted.length === pieces.length && end === buffer.count
  }
  /** Whether a step may write over what a state had before. */
  const isFree = (state: Buffer, at: number): boolean => {
    const { lastRead } = uses.get(state)!
    return lastRead < at || (lastRead === at && mayOverwrite(steps[at]!, state))
  }
  // Decided before anything moves: uses are known by the buffers as they were.
  const concatenations = new Set<Buffer>()
  for (const buffer of uses.keys()) {
    if (isFixed(buffer) && isConcatenation(buffer)) concatenations.add(buffer)
    yield
  }
  const isMade = (step: Step, at: number): boolean => {
    const piece = pieceOf(step)
    if (!piece) return true
    const [from, to] = [piece.src.buffer, piece.dst.buffer]
    const whole = piece.count === from.count && from.storage === 'arena' && isFixed(from)
    if (
      whole &&
      concatenations.has(to) &&
      (to.storage !== 'state' || isFree(to, uses.get(from)!.writes[0]!))
    ) {
      from.mergeInto(to, piece.dstStart)
      return false
    }
    const isSlice = piece.count === to.count && to.storage === 'arena' && uses.get(to)?.writes.length === 1
    const settled = isFixed(from) && (uses.get(from)?.writes.at(-1) ?? -1) < at
    if (!isSlice || !settled || !isFixed(to)) return true
    to.mergeInto(from, piece.srcStart)
    return false
  }
  const kept: Step[] = []
  for (const [at, step] of steps.entries()) {
    if (isMade(step, at)) kept.push(step)
    yield
  }
  return kept
}
