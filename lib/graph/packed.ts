// packed.ts: elements of less than 8 bits, which files pack and plans hold in a byte each.
import { type ElementArray, elementBits } from '../core/dtype.js'
import type { Constant } from './constant.js'

/** The elements of a constant of numbers, those of less than 8 bits as codes in a byte each. */
export function unpackedData(constant: Constant): ElementArray {
  const bits = elementBits[constant.dtype]
  if (bits >= 8) return constant.data
  const { bytes, count } = constant
  const [perByte, mask] = [8 / bits, (1 << bits) - 1]
  const codes = new Uint8Array(count)
  // The first element of a byte is in its low bits.
  for (let i = 0; i < count; i++)
    codes[i] = (bytes[Math.floor(i / perByte)]! >> (bits * (i % perByte))) & mask
  return codes
}
