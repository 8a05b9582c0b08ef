// batch.ts: the tokens of several sequences as the inputs of a decoder's graph.
import { Tensor } from '../../memory/tensor.js'
import type { Sequence } from './token-request.js'

/** Some of the pending tokens of a sequence. */
export interface Part {
  readonly sequence: Sequence
  /** How many, at least 1. */
  readonly count: number
}

/** Rows of a part that are computed: how many, and the position of the first. */
export interface PartRows {
  readonly part: Part
  readonly count: number
  readonly first: number
}

/** A batch as the graph takes it. */
export interface Batch {
  /** By the names of the inputs, all i32. */
  readonly feeds: Readonly<Record<string, Tensor<'i32'>>>
  /** The rows of the outputs, in their order. */
  readonly rows: readonly PartRows[]
}

/** What rows a part gives: all its tokens, or the last one where it ends the sequence. */
function rowsOf(part: Part): PartRows {
  const { sequence, count } = part
  const { cached, pending, request } = sequence
  if (request.rows === 'all') return { part, count, first: cached }
  const isLast = count === pending
  return { part, count: isLast ? 1 : 0, first: cached + count - 1 }
}

/** A power of two: sequences that grow seldom change the sizes that a plan is bound to. */
const tableWidth = (blocks: number): number => 2 ** Math.ceil(Math.log2(Math.max(blocks, smallestTable)))

const smallestTable = 16

/** The inputs of a batch. */
export function batchOf(parts: readonly Part[]): Batch {
  const total = parts.reduce((sum, { count }) => sum + count, 0)
  const table = tableWidth(Math.max(...parts.map(({ sequence }) => sequence.blocks.length)))
  const [tokens, positions, long] = [new Int32Array(total), new Int32Array(total), new Int32Array(total)]
  const starts = new Int32Array(parts.length + 1)
  const past = new Int32Array(parts.length)
  const blocks = new Int32Array(parts.length * table)
  const wanted: number[] = []
  const rows: PartRows[] = []
  for (const [i, part] of parts.entries()) {
    const { sequence, count } = part
    const begin = starts[i]!
    for (let t = 0; t < count; t++) {
      tokens[begin + t] = sequence.ids[sequence.cached + t]!
      positions[begin + t] = sequence.cached + t
    }
    long.fill(sequence.isLong ? 1 : 0, begin, begin + count)
    starts[i + 1] = begin + count
    past[i] = sequence.cached
    blocks.set(sequence.blocks, i * table)
    const own = rowsOf(part)
    rows.push(own)
    for (let r = count - own.count; r < count; r++) wanted.push(begin + r)
  }
  const vector = (values: Int32Array): Tensor<'i32'> => Tensor.of(values, [values.length], 'i32')
  return {
    rows,
    feeds: {
      tokens: vector(tokens),
      positions: vector(positions),
      long: vector(long),
      starts: vector(starts),
      past: vector(past),
      blocks: Tensor.of(blocks, [parts.length, table], 'i32'),
      rows: vector(Int32Array.from(wanted)),
    },
  }
}
