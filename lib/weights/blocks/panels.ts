// panels.ts: weights in block formats in panels of 32 rows (native/backend/block_panels.h), in plain TypeScript.
import { type BlockWeightFormat, formatInfo } from '../formats.js'
import { type BlockLayout, blockLayouts, isPackedAsStored, type PartedFormat, type Piece } from './layouts.js'

/** Rows of a panel. */
export const panelRows = 32

/** A number of a block, and where it lies in the panel of its row. */
interface BlockField {
  readonly stored: readonly Piece[]
  readonly packed: (row: number) => readonly Piece[]
  /** What the number in the block is more than that in the panel. */
  readonly zero?: number | undefined
}

/** Offsets of the parts of a group: the blocks of 32 rows at the same columns. */
interface GroupLayout {
  readonly cols: number
  readonly mins: number
  readonly subs: number
  readonly subMins: number
  readonly low: number
  readonly high: number
  readonly bytes: number
}

function groupLayout(format: PartedFormat): GroupLayout {
  const layout = blockLayouts[format]
  const { panelBlocks, run, bits, scale, min, sub, subMin } = layout
  const cols = formatInfo(format).block * panelBlocks
  const lengths = [
    scale.length * panelBlocks,
    min ? min.length * panelBlocks : 0,
    sub ? cols / run : 0,
    subMin ? cols / run : 0,
    (cols * bits[0]) / 8,
    (cols * bits[1]) / 8,
  ]
  let end = 0
  const [mins, subs, subMins, low, high, bytes] = lengths.map(length => {
    end += length * panelRows
    return end
  }) as [number, number, number, number, number, number]
  return { cols, mins, subs, subMins, low, high, bytes }
}

/** Bytes of a panel. */
export function panelBytes(format: BlockWeightFormat, cols: number): number {
  if (isPackedAsStored(format)) {
    const { block, length } = formatInfo(format)
    return Math.ceil(cols / block) * length * panelRows
  }
  const group = groupLayout(format)
  return Math.ceil(cols / group.cols) * group.bytes
}

/** The code of column `col` of a group, in words of columns whose bits lie in turns. */
function packedCode({ bits }: BlockLayout, group: GroupLayout, col: number, row: number): readonly Piece[] {
  return bits.flatMap((width, part): Piece[] => {
    if (width === 0) return []
    const wordCols = 32 / width
    const within = col % wordCols
    const word = Math.floor(col / wordCols) * panelRows + row
    return [[(part === 0 ? group.low : group.high) + word * 4 + (within % 4), (within >> 2) * width, width]]
  })
}

/** All numbers of block `index` of a group. */
function blockFields(format: PartedFormat, index: number): BlockField[] {
  const layout = blockLayouts[format]
  const group = groupLayout(format)
  const { run, scale, min, sub, subMin, subZero } = layout
  const { block } = formatInfo(format)
  const bytesAt = (at: number, line: number, count: number) => (row: number) =>
    Array.from({ length: count }, (_, i): Piece => [at + (line * panelRows + row) * count + i, 0, 8])
  const runs = Array.from({ length: block / run }, (_, at) => at)
  return [
    { stored: scale, packed: bytesAt(0, index, scale.length) },
    ...(min ? [{ stored: min, packed: bytesAt(group.mins, index, min.length) }] : []),
    ...(sub ? runs.map(at => ({ stored: sub(at), packed: bytesAt(group.subs, at, 1), zero: subZero })) : []),
    ...(subMin ? runs.map(at => ({ stored: subMin(at), packed: bytesAt(group.subMins, at, 1) })) : []),
    ...Array.from({ length: block }, (_, i) => ({
      stored: layout.code(i),
      packed: (row: number) => packedCode(layout, group, index * block + i, row),
    })),
  ]
}

/** The number that pieces of the bytes from `at` on are. */
export function readPieces(bytes: Uint8Array, at: number, pieces: readonly Piece[]): number {
  let value = 0
  let done = 0
  for (const [byte, shift, bits] of pieces) {
    value |= ((bytes[at + byte]! >> shift) & ((1 << bits) - 1)) << done
    done += bits
  }
  return value
}

/** Writes it. */
export function writePieces(bytes: Uint8Array, at: number, pieces: readonly Piece[], value: number): void {
  let rest = value
  for (const [byte, shift, bits] of pieces) {
    const mask = (1 << bits) - 1
    bytes[at + byte] = (bytes[at + byte]! & ~(mask << shift)) | ((rest & mask) << shift)
    rest >>= bits
  }
}

/** A weight by its shape. */
interface BlockMatrix<Format = BlockWeightFormat> {
  readonly format: Format
  readonly rows: number
  readonly cols: number
}

/** Calls `move` with each number of each block, where its block begins and where its group does. */
function eachField(
  { format, rows, cols }: BlockMatrix<PartedFormat>,
  move: (field: BlockField, block: number, group: number, row: number) => void,
): void {
  const { block, length } = formatInfo(format)
  const { panelBlocks } = blockLayouts[format]
  const [blocks, panel, { bytes }] = [cols / block, panelBytes(format, cols), groupLayout(format)]
  const fields = Array.from({ length: panelBlocks }, (_, index) => blockFields(format, index))
  for (let r = 0; r < rows; r++) {
    const row = r % panelRows
    for (let b = 0; b < blocks; b++) {
      const group = ((r - row) / panelRows) * panel + Math.floor(b / panelBlocks) * bytes
      for (const field of fields[b % panelBlocks]!) move(field, (r * blocks + b) * length, group, row)
    }
  }
}

/** Calls `move` with where each byte of blocks that stay as they are stored lies in rows and in panels. */
function eachByte({ format, rows, cols }: BlockMatrix, move: (stored: number, packed: number) => void): void {
  const { block, length } = formatInfo(format)
  const rowBytes = (cols / block) * length
  for (let r = 0, at = 0; r < rows; r++) {
    const row = r % panelRows
    const panel = (r - row) * rowBytes
    for (let i = 0; i < rowBytes; i++, at++) move(at, panel + (i >> 1) * 2 * panelRows + row * 2 + (i & 1))
  }
}

/** Writes a weight in panels, with zeros as padding. */
export function packBlocks(matrix: BlockMatrix, from: Uint8Array, to: Uint8Array): void {
  to.fill(0)
  const { format } = matrix
  if (isPackedAsStored(format)) {
    eachByte(matrix, (stored, packed) => {
      to[packed] = from[stored]!
    })
    return
  }
  eachField({ ...matrix, format }, ({ stored, packed, zero = 0 }, block, group, row) => {
    writePieces(to, group, packed(row), readPieces(from, block, stored) - zero)
  })
}

/** The blocks of a weight in panels, row by row. */
export function unpackBlocks(matrix: BlockMatrix, from: Uint8Array): Uint8Array {
  const { format } = matrix
  const { block, length } = formatInfo(format)
  const to = new Uint8Array(((matrix.rows * matrix.cols) / block) * length)
  if (isPackedAsStored(format)) {
    eachByte(matrix, (stored, packed) => {
      to[stored] = from[packed]!
    })
    return to
  }
  eachField({ ...matrix, format }, ({ stored, packed, zero = 0 }, block, group, row) => {
    writePieces(to, block, stored, readPieces(from, group, packed(row)) + zero)
  })
  return to
}
