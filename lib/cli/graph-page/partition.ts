// partition.ts: the ranks of a diagram, its parts that are laid out one by one, and the edges that are not drawn.
import type { Diagram, Edge } from './diagram.js'

/** A diagram in parts. */
export interface Partition {
  /** Parts from top to bottom: indices of boxes. */
  readonly parts: readonly (readonly number[])[]
  /** Edges inside of a part, or from a part to the next. */
  readonly drawn: readonly Edge[]
  /** Edges that are too long: the box at their end names where they come from. */
  readonly references: readonly Edge[]
}

/** Readers from which on a value is one that is read all over the graph, and the span that is far for its edges. */
const [manyReaders, farSpan] = [3, 8]
/** Ranks that any edge may span. */
const longestSpan = 48
/** Ranks that all drawn edges together may span, per box. */
const spanPerBox = 4
/** Boxes from which on a part ends where a single value goes on, and at which it ends anyway. */
const [softSize, hardSize] = [8, 250]

/** Divides a diagram where few values go on, and leaves out edges that would cross most of the drawing. */
export function partition({ boxes, edges }: Diagram): Partition {
  const ranks = ranksOf(boxes.length, edges)
  const near = nearEdges(boxes.length, edges, ranks)
  const ends = endsOf(ranks, near)
  const partOf = ranks.map(rank => ends.findIndex(end => rank < end))
  const parts: number[][] = ends.map(() => [])
  for (const [box, part] of partOf.entries()) parts[part]!.push(box)
  const drawn = new Set(near.filter(({ from, to }) => partOf[to]! - partOf[from]! <= 1))
  return { parts, drawn: [...drawn], references: edges.filter(edge => !drawn.has(edge)) }
}

/** The rank of each box: as early as possible, or later where that does not make edges longer in sum. */
function ranksOf(count: number, edges: readonly Edge[]): number[] {
  const ranks = new Array<number>(count).fill(0)
  const [sources, targets] = [ranks, ranks].map(list => list.map((): number[] => []))
  for (const { from, to } of edges) {
    sources![to]!.push(from)
    targets![from]!.push(to)
  }
  for (let box = 0; box < count; box++) {
    for (const source of sources![box]!) ranks[box] = Math.max(ranks[box]!, ranks[source]! + 1)
  }
  for (let box = count - 1; box >= 0; box--) {
    const later = targets![box]!
    if (later.length === 0 || later.length < sources![box]!.length) continue
    ranks[box] = later.reduce((min, target) => Math.min(min, ranks[target]! - 1), Number.POSITIVE_INFINITY)
  }
  return ranks
}

/** The edges that do not lead too far. */
function nearEdges(boxes: number, edges: readonly Edge[], ranks: readonly number[]): Edge[] {
  const readers = new Array<number>(boxes).fill(0)
  for (const { from } of edges) readers[from]!++
  const span = ({ from, to }: Edge): number => ranks[to]! - ranks[from]!
  const limit = ({ from }: Edge): number => (readers[from]! < manyReaders ? longestSpan : farSpan)
  const candidates = edges.filter(edge => span(edge) < limit(edge))
  candidates.sort((a, b) => span(a) - span(b))
  let left = boxes * spanPerBox
  return candidates.filter(edge => {
    left -= span(edge)
    return left >= 0
  })
}

/** The first rank after each part. */
function endsOf(ranks: readonly number[], edges: readonly Edge[]): number[] {
  const count = ranks.reduce((max, rank) => Math.max(max, rank), 0) + 1
  const sizes = new Array<number>(count).fill(0)
  for (const rank of ranks) sizes[rank]!++
  const crossings = crossingsOf(count, ranks, edges)
  const ends: number[] = []
  let [start, size] = [0, 0]
  for (let rank = 0; rank < count - 1; rank++) {
    size += sizes[rank]!
    let end = rank + 1
    if (size < softSize || (crossings[end]! > 1 && size < hardSize)) continue
    if (size >= hardSize) {
      for (let other = end - 1; other > (start + end) / 2; other--)
        if (crossings[other]! < crossings[end]!) end = other
    }
    ends.push(end)
    start = end
    size = 0
    for (let later = end; later <= rank; later++) size += sizes[later]!
  }
  return [...ends, count]
}

/** For each rank: the boxes before it whose edges lead to it or on. */
function crossingsOf(count: number, ranks: readonly number[], edges: readonly Edge[]): number[] {
  const last = [...ranks]
  for (const { from, to } of edges) last[from] = Math.max(last[from]!, ranks[to]!)
  const changes = new Array<number>(count + 1).fill(0)
  for (const [box, rank] of ranks.entries()) {
    changes[rank + 1]!++
    changes[last[box]! + 1]!--
  }
  let sum = 0
  return changes.map(change => {
    sum += change
    return sum
  })
}
