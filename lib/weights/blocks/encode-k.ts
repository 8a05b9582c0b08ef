// encode-k.ts: f32 in Q4_K, Q5_K and Q6_K. A run takes its range: the search for scales of a smaller error is left out.
import { clamp } from '../../core/rounding.js'
import { writeHalf } from './halves.js'
import { minOf, scaleOf } from './k-quants.js'

const { abs, max, min, round } = Math

/**
 * Writes one block, whose elements are `values` from `from` on.
 * @returns whether its scales are finite
 */
export type BlockEncoder = (values: Float32Array, from: number, bytes: Uint8Array, at: number) => boolean

/** The element of the largest magnitude, the first of several. */
export function extreme(values: Float32Array, from: number, count: number): number {
  let found = 0
  for (let i = from; i < from + count; i++) if (abs(values[i]!) > abs(found)) found = values[i]!
  return found
}

/** value / unit; 0 where the unit is 0. */
const quotient = (value: number, unit: number): number => (unit === 0 ? 0 : value / unit)

/** Writes 8 scales and 8 minima of 6 bits to 12 bytes: the opposite of {@link scaleOf} and {@link minOf}. */
function packScales(scales: readonly number[], mins: readonly number[], bytes: Uint8Array, at: number): void {
  for (let run = 0; run < 4; run++) {
    bytes[at + run] = scales[run]! | ((scales[run + 4]! >> 4) << 6)
    bytes[at + run + 4] = mins[run]! | ((mins[run + 4]! >> 4) << 6)
    bytes[at + run + 8] = (scales[run + 4]! & 15) | ((mins[run + 4]! & 15) << 4)
  }
}

/** d · scale · q − dmin · min for runs of 32. */
const withMinima =
  (bits: 4 | 5): BlockEncoder =>
  (values, from, bytes, at) => {
    const last = 2 ** bits - 1
    const lowest: number[] = []
    const steps: number[] = []
    for (let run = 0; run < 8; run++) {
      const part = values.subarray(from + run * 32, from + run * 32 + 32)
      // What is subtracted has no sign, so 0 belongs to each range.
      const low = part.reduce((a, b) => min(a, b), 0)
      lowest.push(-low)
      steps.push((part.reduce((a, b) => max(a, b), 0) - low) / last)
    }
    const d = writeHalf(bytes, at, max(...steps) / 63)
    const dmin = writeHalf(bytes, at + 2, max(...lowest) / 63)
    const sixBits = (value: number, unit: number): number => clamp(round(quotient(value, unit)), 0, 63)
    packScales(
      steps.map(step => sixBits(step, d)),
      lowest.map(low => sixBits(low, dmin)),
      bytes,
      at + 4,
    )
    const nibbles = at + (bits === 4 ? 16 : 48)
    for (let run = 0; run < 8; run++) {
      const scale = d * scaleOf(bytes, at + 4, run)
      const offset = dmin * minOf(bytes, at + 4, run)
      for (let j = 0; j < 32; j++) {
        const q = clamp(round(quotient(values[from + run * 32 + j]! + offset, scale)), 0, last)
        bytes[nibbles + (run >> 1) * 32 + j]! |= (q & 15) << ((run & 1) * 4)
        if (bits === 5) bytes[at + 16 + j]! |= (q >> 4) << run
      }
    }
    return Number.isFinite(d) && Number.isFinite(dmin)
  }

/** d · scale · (q − 32) for runs of 16. */
const encodeQ6_K: BlockEncoder = (values, from, bytes, at) => {
  const steps: number[] = []
  for (let run = 0; run < 16; run++) {
    // The element of the largest magnitude takes the code −32, whatever its sign.
    steps.push(extreme(values, from + run * 16, 16) / -32)
  }
  const d = writeHalf(bytes, at + 208, steps.reduce((a, b) => max(a, abs(b)), 0) / 127)
  for (let run = 0; run < 16; run++) {
    const scale = clamp(round(quotient(steps[run]!, d)), -128, 127)
    bytes[at + 192 + run] = scale
    const half = run >> 3
    const within = (run & 7) * 16
    for (let j = 0; j < 16; j++) {
      const q = clamp(round(quotient(values[from + run * 16 + j]!, d * scale)), -32, 31) + 32
      bytes[at + half * 64 + (within & 63) + j]! |= (q & 15) << (within < 64 ? 0 : 4)
      bytes[at + 128 + half * 32 + (within & 31) + j]! |= (q >> 4) << ((within >> 5) * 2)
    }
  }
  return Number.isFinite(d)
}

/** Encoders by format. */
export const encodeK = { Q4_K: withMinima(4), Q5_K: withMinima(5), Q6_K: encodeQ6_K } as const
