// paged.ts: attention over blocks of keys and values among the cases of `dgx-spark verify`.
import { elementArrayOf } from '../../core/dtype.js'
import type { KernelArgs } from '../../kernels/kernels.js'
import { type PagedCacheType, pagedCacheTypes } from '../../kernels/paged-args.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

/** Differences that one unit in the last place of a cache makes. */
const tolerances: Readonly<Record<Exclude<PagedCacheType, 'f32'>, number>> = {
  f16: halfTolerance,
  bf16: bf16Tolerance,
  f8_e4m3: 0.13,
  i8: bf16Tolerance,
}

/** Sequences that begin, go on and take one token more, with padding behind them; all options, and none. */
export function pagedCases(sizes: VerifySizes): VerifyCase[] {
  const outputs = ['y', 'keyCache', 'valueCache'] as const
  const tolerance = sumTolerance(sizes)
  const smaller = pagedCacheTypes.filter(dtype => dtype !== 'f32')
  return [
    verifyCase('pagedAttention', 'plain', outputs, tolerance, () => pagedArgs(sizes, false)),
    verifyCase('pagedAttention', 'rotated, normalized, windowed', outputs, tolerance, () =>
      pagedArgs(sizes, true),
    ),
    ...smaller.map(dtype =>
      verifyCase('pagedAttention', `${dtype} keys and values`, ['y'], tolerances[dtype], () => {
        const args = pagedArgs(sizes, false)
        return { ...args, ...emptyCaches(args, dtype), past: new Int32Array(args.sequences) }
      }),
    ),
    ...(['bf16', 'f16'] as const).flatMap(compute =>
      ([compute, 'f32', 'f8_e4m3', 'i8'] as const).flatMap(dtype => {
        // Queries, keys, values and weights are rounded.
        const tolerance = 2 * tolerances[dtype === 'f32' ? compute : dtype]
        return [Math.min(2 * sizes.cols, 80), 180].map(depth =>
          verifyCase('pagedAttention', `prompts in ${compute}, ${dtype}, ${depth}`, ['y'], tolerance, () => {
            const args = pagedArgs(sizes, false, { lengths: [67 + sizes.tokens, 40], past: [0, 0], depth })
            return { ...args, ...emptyCaches(args, dtype), compute }
          }),
        )
      }),
    ),
  ]
}

/** Caches of zeros. */
function emptyCaches({ blocks, blockSize, kvHeads, depth }: PagedShape, cacheDtype: PagedCacheType) {
  const heads = blocks * blockSize * kvHeads
  const cache = (): KernelArgs['pagedAttention']['keyCache'] =>
    new (elementArrayOf(cacheDtype))(heads * depth) as never
  const scales = cacheDtype === 'i8' && { keyScales: f32(heads), valueScales: f32(heads) }
  return { cacheDtype, keyCache: cache(), valueCache: cache(), ...scales }
}

type PagedShape = Pick<KernelArgs['pagedAttention'], 'blocks' | 'blockSize' | 'kvHeads' | 'depth'>

/** Rows of several sequences with keys and values in f32, and padding behind them. */
export function pagedArgs(
  { tokens, rows, cols }: VerifySizes,
  hasOptions: boolean,
  {
    lengths = [Math.min(tokens, 50), 3, 1],
    past = [0, rows, 5 * rows],
    depth = 2 * Math.min(cols, 40),
  }: { lengths?: readonly number[]; past?: readonly number[]; depth?: number } = {},
): KernelArgs['pagedAttention'] {
  const [heads, kvHeads, blockSize] = [6, 2, 7]
  const count = lengths.reduce((a, b) => a + b, 2)
  const table = Math.ceil(Math.max(...lengths.map((length, b) => length + past[b]!)) / blockSize)
  const blocks = lengths.length * table
  const rotary = hasOptions ? 2 * Math.floor(depth / 3) : 0
  const cached = blocks * blockSize * kvHeads * depth
  const angles = values((count * rotary) / 2, 84)
  const options = {
    softcap: 4,
    window: 3 * rows,
    epsilon: 1e-5,
    interleaved: true,
    cos: angles.map(Math.cos),
    sin: angles.map(Math.sin),
    sinks: values(heads, 85),
    queryNorm: values(depth, 86),
    keyNorm: values(depth, 87),
  }
  return {
    tokens: count,
    sequences: lengths.length,
    heads,
    kvHeads,
    depth,
    rotary,
    blocks,
    blockSize,
    table,
    scale: 0.4,
    query: values(count * heads * depth, 81),
    key: values(count * kvHeads * depth, 82),
    value: values(count * kvHeads * depth, 83),
    ...(hasOptions && options),
    starts: Int32Array.from({ length: lengths.length + 1 }, (_, b) =>
      lengths.slice(0, b).reduce((a, b) => a + b, 0),
    ),
    past: Int32Array.from(past),
    block: Int32Array.from({ length: blocks }, (_, i) => blocks - 1 - i),
    keyCache: values(cached, 88),
    valueCache: values(cached, 89),
    y: f32(count * heads * depth),
  }
}
