// weight-rows.ts: rows of a stored weight as numbers.
import type { StoredWeight } from '../kernels.js'

/**
 * A function that gives row `r` of `weight` as f32. The array it returns is valid until the next call; it holds one
 * row, so no [rows, cols] copy ever exists.
 */
export function rowReader(weight: StoredWeight): (r: number) => Float32Array {
  const { cols, data, rowScale, blockScale } = weight
  if (weight.dtype === 'f32') return r => (data as Float32Array).subarray(r * cols, (r + 1) * cols)
  const row = new Float32Array(cols)
  if (weight.dtype === 'nvfp4') {
    const tensorScale = Math.fround(weight.tensorScale!)
    return r => {
      for (let c = 0; c < cols; c++) {
        const at = r * cols + c
        const scale = Math.fround(e4m3(blockScale![at >> 4]!) * tensorScale)
        row[c] = e2m1((data[at >> 1]! >> (c % 2 === 0 ? 0 : 4)) & 15) * scale
      }
      return row
    }
  }
  const decode = { f16, bf16, f8_e4m3: e4m3 }[weight.dtype]
  return r => {
    const scale = rowScale ? rowScale[r]! : 1
    for (let c = 0; c < cols; c++) row[c] = decode(data[r * cols + c]!) * scale
    return row
  }
}

/** The value of a small float with the given exponent and mantissa bits; bias is 2^(exponentBits−1) − 1. */
function small(bits: number, exponentBits: number, mantissaBits: number): number {
  const mantissa = bits & ((1 << mantissaBits) - 1)
  const exponent = (bits >> mantissaBits) & ((1 << exponentBits) - 1)
  const sign = bits >> (exponentBits + mantissaBits) ? -1 : 1
  const bias = (1 << (exponentBits - 1)) - 1
  const fraction = mantissa / (1 << mantissaBits)
  return sign * (exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias))
}

const e2m1 = (bits: number): number => small(bits, 2, 1)
const e4m3 = (bits: number): number => ((bits & 127) === 127 ? Number.NaN : small(bits, 4, 3))

const word = new Uint32Array(1)
const float = new Float32Array(word.buffer)

function bf16(bits: number): number {
  word[0] = bits << 16
  return float[0]!
}

function f16(bits: number): number {
  if ((bits & 0x7c00) !== 0x7c00) return small(bits, 5, 10)
  return bits & 0x3ff ? Number.NaN : bits >> 15 ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY
}
