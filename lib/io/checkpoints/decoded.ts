// decoded.ts: formats that no kernel reads yet, decoded while they are loaded. Each function goes when its format arrives.
import { decodeWeight } from '../../weights/encode.js'
import type { Weight } from '../../weights/weight.js'

/** A weight that kernels read: as it is, or of f32. */
export function readable(weight: Weight): Weight {
  if (weight.format !== 'f8_e4m3_block') return weight
  const { rows, cols } = weight
  return { format: 'f32', rows, cols, data: decodeWeight(weight) }
}

/** The numbers of E2M1 by their codes. */
const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6]

/** Elements of MXFP4 as bf16, which holds all of them exactly: [exponent, code]. */
function bf16OfMXFP4(): Uint16Array {
  const values = new Float32Array(256 * 16)
  for (let i = 0; i < values.length; i++) values[i] = e2m1[i % 16]! * 2 ** (Math.floor(i / 16) - 127)
  return Uint16Array.from(new Uint32Array(values.buffer), bits => bits >>> 16)
}

/** A matrix of MXFP4, two codes to a byte, in bf16. */
export function decodeMXFP4(rows: number, cols: number, codes: Uint8Array, exponents: Uint8Array): Weight {
  const table = bf16OfMXFP4()
  const data = new Uint16Array(rows * cols)
  for (const [i, pair] of codes.entries()) {
    const base = exponents[i >> 4]! * 16
    data[2 * i] = table[base + (pair & 15)]!
    data[2 * i + 1] = table[base + (pair >> 4)]!
  }
  return { format: 'bf16', rows, cols, data }
}
