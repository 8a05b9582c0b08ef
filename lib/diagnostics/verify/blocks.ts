// blocks.ts: weights in block formats, and rows of tables, among the cases of `dgx-spark verify`.
import type { Weight } from '../../kernels/kernels.js'
import { type Piece, scalesOf } from '../../weights/blocks/layouts.js'
import { readPieces, writePieces } from '../../weights/blocks/panels.js'
import { type BlockWeightFormat, blockWeightFormats, formatInfo } from '../../weights/formats.js'
import { packedCases } from './layouts.js'
import { expertCases } from './products.js'
import {
  bf16Tolerance,
  f32,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

const bitsOf = (pieces: readonly Piece[]): number => pieces.reduce((sum, [, , bits]) => sum + bits, 0)

/** A weight of any codes whose scales are about 1/30. */
export function sampleBlocks(format: BlockWeightFormat, rows: number, cols: number, seed: number): Weight {
  const { block, length } = formatInfo(format)
  const { scale, min } = scalesOf(format)
  const data = Uint8Array.from(values(((rows * cols) / block) * length, seed), value => 128 + 128 * value)
  // Without the NaN of E4M3.
  if (format.startsWith('f8')) for (const [i, code] of data.entries()) data[i] = code & 0xbf
  const view = new DataView(data.buffer)
  const half = (at: number, pieces: readonly Piece[]): void =>
    writePieces(data, at, pieces, 0x2400 + (readPieces(data, at, pieces) % 0x800))
  for (let at = 0; at < data.length; at += length) {
    const first = at + scale[0]![0]
    if (scale.length === 1) data[first] = 118 + (data[first]! % 8)
    else if (bitsOf(scale) === 16) half(at, scale)
    else view.setFloat32(first, 0.02 + data[first]! / 10_000, true)
    if (min && bitsOf(min) === 16) half(at, min)
    if (min && bitsOf(min) === 32) view.setFloat32(at + min[0]![0], 7.3 + data[first]! / 100, true)
  }
  return { format, rows, cols, data }
}

/** Rows of a table in the format of `weight`. */
export function rowsCase(weight: Weight): VerifyCase {
  const { format, rows, cols } = weight
  const indices = BigInt64Array.of(0n, -1n, BigInt(rows - 2), 0n, BigInt(-rows))
  return verifyCase('gatherRows', format, ['y'], 0, () => {
    return { weight, count: indices.length, indices, y: f32(indices.length * cols) }
  })
}

/** Products on tensor cores, of few rows or of many, against those in f32: the CPU rounds no blocks. */
function roundedCases(format: BlockWeightFormat, cols: number, tokens: number): VerifyCase[] {
  const rows = 19 // enough that not all sums cancel
  const weight = sampleBlocks(format, rows, cols, 56)
  const [x, dy] = [values(tokens * cols, 54), values(tokens * rows, 55)]
  const [compute, plain] = ['bf16', { compute: 'f32' }] as const
  return [
    verifyCase(
      'linear',
      `${format}, bf16 of ${tokens}`,
      ['y'],
      bf16Tolerance,
      () => ({ weight, tokens, x, compute, y: f32(tokens * rows) }),
      plain,
    ),
    verifyCase(
      'linearBackward',
      `${format}, bf16 of ${tokens}`,
      ['dx'],
      bf16Tolerance,
      () => ({ weight, tokens, x, dy, compute, dx: f32(tokens * cols) }),
      plain,
    ),
  ]
}

/** Products with a weight in each block format, its gradient, panels and rows. */
export function blockCases({ tokens, rows }: VerifySizes): VerifyCase[] {
  return blockWeightFormats.flatMap(format => {
    const cols = formatInfo(format).block * 3
    const weight = sampleBlocks(format, rows, cols, 50)
    const sizes = { tokens, rows, cols, rank: 1 }
    const [x, dy] = [values(tokens * cols, 51), values(tokens * rows, 52)]
    return [
      verifyCase('linear', format, ['y'], sumTolerance(sizes), () => {
        return { weight, tokens, x, y: f32(tokens * rows) }
      }),
      verifyCase('linearBackward', format, ['dx'], sumTolerance(sizes), () => {
        return { weight, tokens, x, dy, dx: f32(tokens * cols) }
      }),
      ...[0, 17, 34, 257].flatMap(more => roundedCases(format, cols, tokens + more)),
      ...expertCases(sampleBlocks(format, 3 * rows, cols, 53), sizes),
      rowsCase(weight),
      ...packedCases(weight, sizes),
    ]
  })
}
