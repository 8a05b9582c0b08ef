// paged-attention.ts: attention over blocks of keys and values in plain TypeScript. Sums are taken in double.
import { expectInteger, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import type { KernelArgs } from '../kernels.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

type Args = KernelArgs['pagedAttention']

/** rotate(norm(x)) of the head of row n that starts at element `from`. */
function preparedHead(args: Args, x: Float32Array, from: number, norm: Float32Array | undefined, n: number) {
  const { depth, rotary, epsilon = 0, cos, sin, interleaved } = args
  const head = Float64Array.from(x.subarray(from, from + depth))
  if (norm) {
    const square = head.reduce((sum, value) => sum + value * value, 0) / depth
    for (let d = 0; d < depth; d++) head[d] = (head[d]! / Math.sqrt(square + epsilon)) * norm[d]!
  }
  const half = rotary / 2
  for (let i = 0; i < half; i++) {
    const [first, second] = interleaved ? [2 * i, 2 * i + 1] : [i, i + half]
    const [a, b] = [head[first]!, head[second]!]
    const [c, s] = [cos![n * half + i]!, sin![n * half + i]!]
    head[first] = a * c - b * s
    head[second] = b * c + a * s
  }
  return head
}

/** The rows of a sequence, and the token of the caches at each of its positions. */
interface Sequence {
  readonly first: number
  readonly end: number
  readonly past: number
  readonly tokenAt: (position: number) => number
}

/** Refuses a number that leads out of an array. */
function expectIn(name: string, value: number, least: number, end: number): void {
  if (value >= least && value < end) return
  throw new SparkError('ERR_ARGUMENT', `${name} is ${value}; it must be at least ${least} and below ${end}`)
}

const firstSeen = ({ window = 0 }: Args, position: number): number =>
  window > 0 ? Math.max(0, position - window + 1) : 0

/** Sequence b, whose tables are checked. */
function sequenceOf(args: Args, b: number): Sequence {
  const { tokens, blocks, blockSize, table, starts, block, slots } = args
  const [first, end, past] = [starts[b]!, starts[b + 1]!, args.past[b]!]
  expectIn(`starts[${b}]`, first, 0, tokens + 1)
  expectIn(`starts[${b + 1}]`, end, first, tokens + 1)
  expectIn(`past[${b}]`, past, 0, 2 ** 31)
  let last = end - 1
  while (last >= first && slots?.[last] === -1) last--
  for (let s = firstSeen(args, past); s <= past + last - first; s++) {
    const i = Math.floor(s / blockSize)
    expectIn(`the block of position ${s} of sequence ${b}`, i, 0, table)
    expectIn(`block[${b}, ${i}]`, block[b * table + i]!, 0, blocks)
  }
  const tokenAt = (position: number): number =>
    block[b * table + Math.floor(position / blockSize)]! * blockSize + (position % blockSize)
  return { first, end: last + 1, past, tokenAt }
}

/** Writes the keys and values of the rows of a sequence into the caches. */
function writeRows(args: Args, { first, end, past, tokenAt }: Sequence): void {
  const { kvHeads, depth, blocks, blockSize, key, value, keyNorm, slots, keyCache, valueCache } = args
  for (let n = first; n < end; n++) {
    const slot = slots ? slots[n]! : tokenAt(past + n - first)
    expectIn(`slots[${n}]`, slot, -1, blocks * blockSize)
    for (let head = 0; slot >= 0 && head < kvHeads; head++) {
      const [from, to] = [(n * kvHeads + head) * depth, (slot * kvHeads + head) * depth]
      keyCache.set(preparedHead(args, key, from, keyNorm, n), to)
      valueCache.set(value.subarray(from, from + depth), to)
    }
  }
}

/** y of one head of row n, which sees the positions from `begin` to `position`. */
function attend(args: Args, n: number, head: number, position: number, { tokenAt }: Sequence): void {
  const { heads, kvHeads, depth, scale, softcap = 0, query, queryNorm, sinks, keyCache, valueCache, y } = args
  const at = (n * heads + head) * depth
  const q = preparedHead(args, query, at, queryNorm, n)
  const rowAt = (s: number): number => (tokenAt(s) * kvHeads + Math.floor((head * kvHeads) / heads)) * depth
  const begin = firstSeen(args, position)
  const scores = Float64Array.from({ length: position - begin + 1 }, (_, i) => {
    const from = rowAt(begin + i)
    let score = 0
    for (let d = 0; d < depth; d++) score += q[d]! * keyCache[from + d]!
    return softcap ? softcap * Math.tanh((score * scale) / softcap) : score * scale
  })
  const sink = sinks ? sinks[head]! : Number.NEGATIVE_INFINITY
  const max = scores.reduce((a, b) => Math.max(a, b), sink)
  const weights = scores.map(score => (max === Number.NEGATIVE_INFINITY ? 0 : Math.exp(score - max)))
  const total = weights.reduce((a, b) => a + b, sinks ? Math.exp(sink - max) : 0)
  const sums = new Float64Array(depth)
  for (const [i, weight] of weights.entries()) {
    const from = rowAt(begin + i)
    for (let d = 0; d < depth; d++) sums[d]! += weight * valueCache[from + d]!
  }
  y.set(total === 0 ? sums : sums.map(sum => sum / total), at)
}

/** Writes keys and values into the caches, then y = softmax(scale · q·kᵀ) · v over what each row sees. */
function* pagedAttention(args: Args): Paced<void> {
  const { tokens, heads, depth, slots, y } = args
  const sequences = Array.from({ length: args.sequences }, (_, b) => sequenceOf(args, b))
  for (const sequence of sequences) writeRows(args, sequence)
  y.fill(0, 0, tokens * heads * depth)
  for (const sequence of sequences) {
    const { first, end, past } = sequence
    for (let n = first; n < end; n++) {
      for (let head = 0; slots?.[n] !== -1 && head < heads; head++) {
        attend(args, n, head, past + n - first, sequence)
        yield
      }
    }
  }
}

/** Contract of attention over blocks. */
export const pagedAttentionRows: KernelRows<'pagedAttention'> = {
  pagedAttention: {
    kernel: pagedAttention,
    sizes: ['tokens', 'sequences', 'heads', 'kvHeads', 'depth', 'rotary', 'blocks', 'blockSize', 'table'],
    check({ heads, kvHeads, depth, rotary, blockSize, scale }) {
      expectInteger('kvHeads', kvHeads, 1)
      expectInteger('depth', depth, 1)
      expectInteger('blockSize', blockSize, 1)
      expectNumber('scale', scale)
      expectFits(heads % kvHeads === 0, `heads is ${heads}, not a multiple of kvHeads, ${kvHeads}`)
      const fits = rotary % 2 === 0 && rotary <= depth
      expectFits(fits, `rotary is ${rotary}; it must be even, and ${depth} at most`)
    },
    operands({ tokens, sequences, heads, kvHeads, depth, rotary, blocks, blockSize, table }) {
      const angles = tokens * (rotary / 2)
      const cached = blocks * blockSize * kvHeads * depth
      return {
        query: tokens * heads * depth,
        key: tokens * kvHeads * depth,
        value: tokens * kvHeads * depth,
        queryNorm: optional(depth),
        keyNorm: optional(depth),
        cos: rotary > 0 ? elements('f32', angles) : undefined,
        sin: rotary > 0 ? elements('f32', angles) : undefined,
        sinks: optional(heads),
        starts: elements('i32', sequences + 1),
        past: elements('i32', sequences),
        block: elements('i32', sequences * table),
        slots: optional(elements('i32', tokens)),
        keyCache: cached,
        valueCache: cached,
        y: tokens * heads * depth,
      }
    },
  },
}
