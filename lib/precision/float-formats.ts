// float-formats.ts: the bits of every number format, and rounding to them; mirrors native/core/float_formats.h.
// Everything passes as f32 bit patterns: a JavaScript number would lose which NaN it is. Recipes: docs/numerics.md.
import type { DType, DTypeArray } from '../core/dtype.js'

/** Codec between a number format and f32. */
export interface FloatFormat {
  /** Largest code, sign cleared, that a cast may give. */
  limit(saturate: boolean): number
  /** Code of the value nearest to the f32 with these bits, its magnitude at most `limit`; ties to even. */
  encode(bits: number, limit: number): number
  /** f32 bits of a code. */
  decode(code: number): number
}

const infinityBits = 0x7f800000
const nanBits = 0x7fc00000 // the only NaN that a cast writes

const scratchFloat = new Float32Array(1)
const scratchBits = new Uint32Array(scratchFloat.buffer)

/** f32 bit pattern of the f32 nearest to `value`. */
export function floatBits(value: number): number {
  scratchFloat[0] = value
  return scratchBits[0]
}

/** The number whose f32 bit pattern is `bits`. */
export function bitsFloat(bits: number): number {
  scratchBits[0] = bits
  return scratchFloat[0]
}

/** The codes of `array`: the array itself, or the bit patterns of a Float32Array. */
export function codesOf(array: DTypeArray): Uint32Array | Uint16Array | Uint8Array {
  return array instanceof Float32Array ? new Uint32Array(array.buffer, array.byteOffset, array.length) : array
}

/** A format's special codes, sign cleared. */
interface SpecialCodes {
  maxFinite: number
  /** What lies beyond `maxFinite` when a cast does not saturate. */
  overflow: number
  /** What a NaN becomes, whatever its sign. */
  nan: number
  /** Whether a cast may saturate at all. */
  saturates: boolean
}

function smallFloat(exponentBits: number, mantissaBits: number, special: SpecialCodes): FloatFormat {
  const { maxFinite, overflow, nan, saturates } = special
  const signShift = exponentBits + mantissaBits
  const magnitudeMask = (1 << signShift) - 1
  const shift = 23 - mantissaBits
  const almostHalf = (1 << (shift - 1)) - 1
  const exponentGap = 127 - ((1 << (exponentBits - 1)) - 1)
  const rebias = exponentGap << mantissaBits
  // bf16 has the exponents of f32, so its subnormals round like normal numbers.
  const minNormal = exponentGap === 0 ? 0 : (exponentGap + 1) << 23
  const minNormalCode = exponentGap === 0 ? 0 : 1 << mantissaBits
  // Adding the power of two whose last bit is the subnormal step makes the adder round.
  const anchorBits = (exponentGap + 24 - mantissaBits) << 23
  const anchor = bitsFloat(anchorBits)
  const step = bitsFloat((exponentGap + 1 - mantissaBits) << 23)

  function round(magnitude: number): number {
    if (magnitude < minNormal) return floatBits(bitsFloat(magnitude) + anchor) - anchorBits
    return ((magnitude + almostHalf + ((magnitude >>> shift) & 1)) >>> shift) - rebias
  }

  function decodeMagnitude(magnitude: number): number {
    if (magnitude < minNormalCode) return floatBits(magnitude * step)
    return (magnitude << shift) + (exponentGap << 23)
  }

  return {
    limit: saturate => (saturate && saturates ? maxFinite : overflow),
    encode(bits, limit) {
      const magnitude = bits & 0x7fffffff
      if (magnitude > infinityBits) return nan
      return Math.min(round(magnitude), limit) | ((bits >>> 31) << signShift)
    },
    decode(code) {
      const magnitude = code & magnitudeMask
      const sign = (code >>> signShift) << 31
      if (magnitude <= maxFinite) return (decodeMagnitude(magnitude) | sign) >>> 0
      return magnitude === overflow && overflow !== nan ? (infinityBits | sign) >>> 0 : nanBits
    },
  }
}

/** The same format, decoded by table lookup. */
function tabulated(format: FloatFormat): FloatFormat {
  const table = Uint32Array.from({ length: 256 }, (_, code) => format.decode(code))
  return { ...format, decode: code => table[code] }
}

/** E4M3 without infinities: an element of FP8 and, without its sign, the block scale of NVFP4. */
export const e4m3 = tabulated(
  smallFloat(4, 3, { maxFinite: 0x7e, overflow: 0x7f, nan: 0x7f, saturates: true }),
)

/** A format without infinities and without -0, whose code is NaN; its exponents are biased by one more than those of `format`. */
function fnuz(format: FloatFormat): FloatFormat {
  const nan = 0x80
  return {
    limit: saturate => (saturate ? 0x7f : nan),
    encode(bits, limit) {
      const doubled = floatBits(bitsFloat(bits) * 2)
      if ((doubled & 0x7fffffff) > infinityBits) return nan
      const magnitude = format.encode(doubled & 0x7fffffff, limit)
      return magnitude === 0 || magnitude === nan ? magnitude : magnitude | ((bits >>> 31) << 7)
    },
    decode: code => (code === nan ? nanBits : floatBits(bitsFloat(format.decode(code)) / 2)),
  }
}

/** E4M3 and E5M2 with neither infinities nor a negative zero. */
export const [e4m3fnuz, e5m2fnuz] = [4, 5].map(exponentBits =>
  tabulated(
    fnuz(
      smallFloat(exponentBits, 7 - exponentBits, {
        maxFinite: 0x7f,
        overflow: 0x80,
        nan: 0x80,
        saturates: true,
      }),
    ),
  ),
) as [FloatFormat, FloatFormat]

/** The element of NVFP4, 4 bits: magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6; neither infinity nor NaN. */
export const e2m1 = smallFloat(2, 1, { maxFinite: 7, overflow: 7, nan: 7, saturates: true })

/** The format of each dtype. */
export const floatFormats: Readonly<Record<DType, FloatFormat>> = {
  f32: {
    limit: () => infinityBits,
    encode: bits => ((bits & 0x7fffffff) > infinityBits ? nanBits : bits),
    decode: bits => bits,
  },
  f16: smallFloat(5, 10, { maxFinite: 0x7bff, overflow: 0x7c00, nan: 0x7fff, saturates: false }),
  bf16: smallFloat(8, 7, { maxFinite: 0x7f7f, overflow: 0x7f80, nan: 0x7fff, saturates: false }),
  f8_e4m3: e4m3,
  f8_e5m2: tabulated(smallFloat(5, 2, { maxFinite: 0x7b, overflow: 0x7c, nan: 0x7f, saturates: true })),
}

/** Whether `dtype` is one of {@link floatFormats}. */
export function isFormat(dtype: string): dtype is DType {
  return Object.hasOwn(floatFormats, dtype)
}
