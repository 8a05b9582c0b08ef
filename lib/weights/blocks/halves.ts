// halves.ts: the f16 numbers inside of blocks.
import { floatBits, floatFormats } from '../../precision/float-formats.js'

let table: Float32Array | undefined

/** The numbers of all 65,536 codes; NaN for each NaN. */
function halves(): Float32Array {
  if (table) return table
  const bits = Uint32Array.from({ length: 65_536 }, (_, code) => floatFormats.f16.decode(code))
  table = new Float32Array(bits.buffer)
  return table
}

/** The f16 number of these two bytes. */
export const halfOf = (low: number, high: number): number => halves()[low | (high << 8)]!

/** The f16 number at a position. */
export const readHalf = (bytes: Uint8Array, at: number): number => halfOf(bytes[at]!, bytes[at + 1]!)

/** Writes the f16 number nearest to `value`, and gives it: infinite beyond 65,504. */
export function writeHalf(bytes: Uint8Array, at: number, value: number): number {
  const { f16 } = floatFormats
  const code = f16.encode(floatBits(value), f16.limit(false))
  bytes[at] = code & 0xff
  bytes[at + 1] = code >> 8
  return halves()[code]!
}
