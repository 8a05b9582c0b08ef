// layouts.ts: where the codes and scales of block formats lie, in a block and in panels (native/backend/block_panels.h).
import type { BlockWeightFormat } from '../formats.js'

/** Some bits of a number: `bits` of a byte from `shift` on. The first piece of a number has its lowest bits. */
export type Piece = readonly [byte: number, shift: number, bits: number]

/** What all formats have in front of their codes. */
interface BlockScales {
  /** Bytes of the scale of a block. */
  readonly scale: readonly Piece[]
  /** Bytes of the minimum, or of the zero point. */
  readonly min?: readonly Piece[]
}

/** The parts of a block. */
export interface BlockLayout extends BlockScales {
  /** Neighbours that share a scale. */
  readonly run: number
  /** Bits of a code in the words of low bits of a panel, and in those of high bits. */
  readonly bits: readonly [low: number, high: number]
  /** The factor of the scale of a run, less `subZero`. */
  readonly sub?: (run: number) => readonly Piece[]
  readonly subZero?: number
  /** The factor of its minimum. */
  readonly subMin?: (run: number) => readonly Piece[]
  /** The code of element `i`. */
  readonly code: (i: number) => readonly Piece[]
  /** Blocks of a row that lie together in a panel. */
  readonly panelBlocks: number
}

const byteAt = (at: number): Piece => [at, 0, 8]
const halfAt = (at: number): readonly Piece[] => [byteAt(at), byteAt(at + 1)]

/** The low nibbles of `half` bytes, then their high ones. */
const nibble = (at: number, i: number, half: number): Piece => [at + (i % half), i < half ? 0 : 4, 4]

/** Two bits of each of 128 elements in 32 bytes. */
const pair = (at: number, i: number): Piece => [
  at + Math.floor(i / 128) * 32 + (i % 32),
  (Math.floor(i / 32) % 4) * 2,
  2,
]

/** One bit of each of 32 elements in 4 bytes. */
const fifth = (at: number, i: number): Piece => [at + (i >> 3), i & 7, 1]

/** One bit of each of 256 elements in 32 bytes. */
const bitOf256 = (at: number, i: number): Piece => [at + (i % 32), i >> 5, 1]

const halves = { run: 32, scale: halfAt(0), panelBlocks: 1 } as const
const nibbles = { ...halves, bits: [4, 0] } as const

/** Scales and minima of 6 bits. */
const sixBits = {
  run: 32,
  scale: halfAt(0),
  min: halfAt(2),
  sub: (run: number): readonly Piece[] =>
    run < 4
      ? [[4 + run, 0, 6]]
      : [
          [8 + run, 0, 4],
          [run, 6, 2],
        ],
  subMin: (run: number): readonly Piece[] =>
    run < 4
      ? [[8 + run, 0, 6]]
      : [
          [8 + run, 4, 4],
          [4 + run, 6, 2],
        ],
  panelBlocks: 1,
} as const

const floatAt0 = [byteAt(0), byteAt(1), byteAt(2), byteAt(3)] as const

/** Unsigned integers of `width` bits less a zero point, a byte or a number of f32. */
const integers = (run: number, width: 4 | 8, zeroBytes: 1 | 4 = 1): BlockLayout => ({
  run,
  bits: [width, 0],
  scale: floatAt0,
  min: Array.from({ length: zeroBytes }, (_, i) => byteAt(4 + i)),
  code: i => [width === 8 ? byteAt(4 + zeroBytes + i) : [4 + zeroBytes + (i >> 1), (i & 1) * 4, 4]],
  panelBlocks: 2,
})

const codesOfE4M3 = (run: number): BlockLayout => ({
  run,
  bits: [8, 0],
  scale: floatAt0,
  code: i => [byteAt(4 + i)],
  panelBlocks: 1,
})

/** Of each 64 elements, 32 low nibbles and 32 high ones. */
const nibbleOf64 = (at: number, i: number): Piece => nibble(at + (i >> 6) * 32, i % 64, 32)

/** Formats whose blocks lie in panels as they are stored, in steps of two bytes; where their scale is. */
const storedScales = {
  iq1_s: halfAt(0),
  iq1_m: [49, 51, 53, 55].map((byte): Piece => [byte, 4, 4]),
  iq2_xxs: halfAt(0),
  iq2_xs: halfAt(0),
  iq2_s: halfAt(0),
  iq3_xxs: halfAt(0),
  iq3_s: halfAt(0),
  tq1_0: halfAt(52),
} as const satisfies Partial<Record<BlockWeightFormat, readonly Piece[]>>

type StoredFormat = keyof typeof storedScales

/** A format whose blocks are taken apart for panels. */
export type PartedFormat = Exclude<BlockWeightFormat, StoredFormat>

/** Whether blocks of a format lie in panels as they are stored. */
export const isPackedAsStored = (format: BlockWeightFormat): format is StoredFormat =>
  Object.hasOwn(storedScales, format)

/** Where scales lie in a block. */
export const scalesOf = (format: BlockWeightFormat): BlockScales =>
  isPackedAsStored(format) ? { scale: storedScales[format] } : blockLayouts[format]

/** The layouts of the other formats. */
export const blockLayouts: Readonly<Record<PartedFormat, BlockLayout>> = {
  q4_0: { ...nibbles, code: i => [nibble(2, i, 16)] },
  q4_1: { ...nibbles, min: halfAt(2), code: i => [nibble(4, i, 16)] },
  q5_0: { ...halves, bits: [4, 1], code: i => [nibble(6, i, 16), fifth(2, i)] },
  q5_1: { ...halves, bits: [4, 1], min: halfAt(2), code: i => [nibble(8, i, 16), fifth(4, i)] },
  q8_0: { ...halves, bits: [8, 0], code: i => [byteAt(2 + i)] },
  q2_k: {
    run: 16,
    bits: [2, 0],
    scale: halfAt(80),
    min: halfAt(82),
    sub: run => [[run, 0, 4]],
    subMin: run => [[run, 4, 4]],
    code: i => [pair(16, i)],
    panelBlocks: 1,
  },
  q3_k: {
    run: 16,
    bits: [2, 1],
    scale: halfAt(108),
    sub: run => [
      [96 + (run % 8), run < 8 ? 0 : 4, 4],
      [104 + (run % 4), (run >> 2) * 2, 2],
    ],
    subZero: 32,
    code: i => [pair(32, i), bitOf256(0, i)],
    panelBlocks: 1,
  },
  q4_k: { ...sixBits, bits: [4, 0], code: i => [nibbleOf64(16, i)] },
  q5_k: { ...sixBits, bits: [4, 1], code: i => [nibbleOf64(48, i), bitOf256(16, i)] },
  q6_k: {
    run: 16,
    bits: [4, 2],
    scale: halfAt(208),
    sub: run => [byteAt(192 + run)],
    code: i => [nibble((i >> 7) * 64, i % 128, 64), pair(128, i)],
    panelBlocks: 1,
  },
  iq4_nl: { ...nibbles, code: i => [nibble(2, i, 16)] },
  iq4_xs: {
    ...nibbles,
    sub: run => [
      [4 + (run >> 1), (run & 1) * 4, 4],
      [2 + (run >> 2), (run & 3) * 2, 2],
    ],
    subZero: 32,
    code: i => [nibble(8 + (i >> 5) * 16, i % 32, 16)],
  },
  tq2_0: { ...halves, bits: [2, 0], scale: halfAt(64), code: i => [pair(0, i)] },
  mxfp4: { ...nibbles, scale: [byteAt(0)], code: i => [nibble(1, i, 16)], panelBlocks: 2 },
  u4_16: integers(16, 4),
  u8_16: integers(16, 8),
  u4_16f: integers(16, 4, 4),
  u4_32f: integers(32, 4, 4),
  u8_16f: integers(16, 8, 4),
  u8_32f: integers(32, 8, 4),
  u4_32: integers(32, 4),
  u4_128: integers(128, 4),
  u8_32: integers(32, 8),
  u8_128: integers(128, 8),
  f8_32: codesOfE4M3(32),
  f8_128: codesOfE4M3(128),
}
