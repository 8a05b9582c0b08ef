// paged-attention.ts: attention over blocks of keys and values in plain TypeScript. Sums are taken in double.
import { expectInteger, expectNumber, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import type { KernelArgs } from '../kernels.js'
import { type Activations, roundedUnit } from '../linear-args.js'
import { pagedCacheTypes } from '../paged-args.js'
import { expectActivationDType, expectProductCompute } from './compute.js'
import { floatReader, floatWriter } from './elements.js'
import { expectTensorScale, writeRounded } from './linear.js'
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

/** Keys or values, by the index of a head of a token. */
interface Cache {
  readonly write: (row: number, from: ArrayLike<number>) => void
  readonly read: (row: number, d: number) => number
}

function cacheOf(args: Args, name: 'key' | 'value'): Cache {
  const { depth, cacheDtype = 'f32' } = args
  const [data, scales] = [args[`${name}Cache`], args[`${name}Scales`]]
  if (cacheDtype !== 'i8') {
    const read = floatReader(cacheDtype, data)
    const write = floatWriter(cacheDtype, data, { saturate: true })
    return {
      write: (row, from) => {
        for (let d = 0; d < depth; d++) write(row * depth + d, from[d]!)
      },
      read: (row, d) => read(row * depth + d),
    }
  }
  return {
    write: (row, from) => {
      let largest = 0
      for (let d = 0; d < depth; d++) largest = Math.max(largest, Math.abs(from[d]!))
      const scale = Math.fround(Math.fround(largest) / 127)
      scales![row] = scale
      for (let d = 0; d < depth; d++) data[row * depth + d] = int8Code(from[d]!, scale)
    },
    read: (row, d) => data[row * depth + d]! * scales![row]!,
  }
}

/** The nearest integer, of two the even one; 0 for what is none of −127 … 127. */
function int8Code(value: number, scale: number): number {
  const quotient = Math.fround(Math.fround(value) / scale)
  const rounded = Math.round(quotient)
  const code = Math.abs(quotient % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded
  return Math.abs(code) <= 127 ? code : 0
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
  const { kvHeads, depth, blocks, blockSize, key, value, keyNorm, slots } = args
  const [keys, values] = [cacheOf(args, 'key'), cacheOf(args, 'value')]
  for (let n = first; n < end; n++) {
    const slot = slots ? slots[n]! : tokenAt(past + n - first)
    expectIn(`slots[${n}]`, slot, -1, blocks * blockSize)
    for (let head = 0; slot >= 0 && head < kvHeads; head++) {
      const [from, to] = [(n * kvHeads + head) * depth, slot * kvHeads + head]
      keys.write(to, preparedHead(args, key, from, keyNorm, n))
      values.write(to, value.subarray(from, from + depth))
    }
  }
}

/** What all rows read. */
interface Caches {
  readonly keys: Cache
  readonly values: Cache
}

/** y of one head of row n, which sees the positions up to its own. */
function attend(
  args: Args & { readonly y: Activations },
  { keys, values }: Caches,
  n: number,
  head: number,
  { past, first, tokenAt }: Sequence,
): void {
  const { heads, kvHeads, depth, scale, softcap = 0, query, queryNorm, sinks, y, yDtype = 'f32' } = args
  const at = (n * heads + head) * depth
  const q = preparedHead(args, query, at, queryNorm, n)
  const position = past + n - first
  const begin = firstSeen(args, position)
  const own = Math.floor((head * kvHeads) / heads)
  const rows = Array.from({ length: position - begin + 1 }, (_, i) => tokenAt(begin + i) * kvHeads + own)
  const scores = rows.map(row => {
    let score = 0
    for (let d = 0; d < depth; d++) score += q[d]! * keys.read(row, d)
    return softcap ? softcap * Math.tanh((score * scale) / softcap) : score * scale
  })
  const sink = sinks ? sinks[head]! : Number.NEGATIVE_INFINITY
  const max = scores.reduce((a, b) => Math.max(a, b), sink)
  const weights = scores.map(score => (max === Number.NEGATIVE_INFINITY ? 0 : Math.exp(score - max)))
  const total = weights.reduce((a, b) => a + b, sinks ? Math.exp(sink - max) : 0)
  const write = floatWriter(yDtype, y)
  for (let d = 0; d < depth; d++) {
    let sum = 0
    for (const [i, row] of rows.entries()) sum += weights[i]! * values.read(row, d)
    write(at + d, total === 0 ? 0 : sum / total)
  }
}

/** Writes keys and values into the caches, then y = softmax(scale · q·kᵀ) · v over what each row sees. */
function* pagedAttention(given: Args): Paced<void> {
  const { tokens, heads, depth, slots, yRounded, yScale } = given
  const { y = new Float32Array(tokens * heads * depth) } = given
  const args = { ...given, y }
  const sequences = Array.from({ length: args.sequences }, (_, b) => sequenceOf(args, b))
  for (const sequence of sequences) writeRows(args, sequence)
  y.fill(0, 0, tokens * heads * depth)
  const caches = { keys: cacheOf(args, 'key'), values: cacheOf(args, 'value') }
  for (const sequence of sequences) {
    for (let n = sequence.first; n < sequence.end; n++) {
      for (let head = 0; slots?.[n] !== -1 && head < heads; head++) {
        attend(args, caches, n, head, sequence)
        yield
      }
    }
  }
  if (yRounded) writeRounded(yRounded, y as Float32Array, tokens, heads * depth, yScale)
}

/** Contract of attention over blocks. */
export const pagedAttentionRows: KernelRows<'pagedAttention'> = {
  pagedAttention: {
    kernel: pagedAttention,
    sizes: ['tokens', 'sequences', 'heads', 'kvHeads', 'depth', 'rotary', 'blocks', 'blockSize', 'table'],
    check(args) {
      const { heads, kvHeads, depth, rotary, blockSize, scale, cacheDtype = 'f32', yDtype, compute } = args
      expectProductCompute(compute)
      expectActivationDType('yDtype', yDtype)
      expectOneOf('cacheDtype', cacheDtype, pagedCacheTypes)
      expectInteger('kvHeads', kvHeads, 1)
      expectInteger('depth', depth, 1)
      expectInteger('blockSize', blockSize, 1)
      expectNumber('scale', scale)
      expectFits(heads % kvHeads === 0, `heads is ${heads}, not a multiple of kvHeads, ${kvHeads}`)
      const fits = rotary % 2 === 0 && rotary <= depth
      expectFits(fits, `rotary is ${rotary}; it must be even, and ${depth} at most`)
      expectTensorScale('yScale', args.yScale)
      const isRow = (heads * depth) % roundedUnit === 0 && (yDtype ?? 'f32') === 'f32'
      expectFits(
        !args.yRounded || (isRow && args.yScale !== undefined),
        `yRounded is for a yScale, y in f32 and rows of ${roundedUnit} · n columns`,
      )
    },
    operands(args) {
      const { tokens, sequences, heads, kvHeads, depth, rotary, blocks, blockSize, table } = args
      const { cacheDtype = 'f32' } = args
      const angles = tokens * (rotary / 2)
      const cached = elements(cacheDtype, blocks * blockSize * kvHeads * depth)
      const scales = cacheDtype === 'i8' ? elements('f32', blocks * blockSize * kvHeads) : undefined
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
        keyScales: scales,
        valueScales: scales,
        y: {
          ...elements(args.yDtype ?? 'f32', tokens * heads * depth),
          isOptional: args.yRounded !== undefined,
        },
        yRounded: optional(elements('bf16', tokens * heads * depth)),
      }
    },
  },
}
