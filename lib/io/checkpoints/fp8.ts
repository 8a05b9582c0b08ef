// fp8.ts: matrices of 8-bit codes with one scale, a scale per row or a scale per block.
import { numel } from '../../core/shape.js'
import type { Weight } from '../../weights/weight.js'
import type { Parts } from './parts.js'
import type { Scheme } from './scheme.js'

/** Ends of the names of scales. The first one is that of DeepSeek's checkpoints; it is multiplied with as well. */
const scaleNames = ['.weight_scale_inv', '.weight_scale'] as const

/** FP8: codes F8_E4M3 [out, in]. */
export const fp8: Scheme = {
  end: '.weight',
  others: scaleNames,
  name: '.weight',
  fits: ({ dtype }) => dtype === 'F8_E4M3',
  read: (parts, { blockSize }) => readFP8(parts, blockSize),
}

async function readFP8(parts: Parts, blockSize: number): Promise<Weight> {
  const codes = parts.get('.weight', 'F8_E4M3')
  const [rows, cols] = parts.sizes('.weight')
  const end = scaleNames.find(name => parts.has(name)) ?? '.weight_scale'
  const count = numel(parts.get(end).shape)
  if (count === 1 || count === rows) {
    const rowScale = await parts.rowScales(end, rows)
    return { format: 'f8_e4m3', rows, cols, data: await codes.load(), rowScale }
  }
  const scale = await parts.scales(end, [Math.ceil(rows / blockSize), Math.ceil(cols / blockSize)])
  return { format: 'f8_e4m3_block', rows, cols, data: await codes.load(), scale, blockSize }
}

/** Integers of 8 bits: I8 [out, in]. */
export const int8: Scheme = {
  end: '.weight',
  others: ['.weight_scale'],
  name: '.weight',
  fits: ({ dtype }) => dtype === 'I8',
  read: async parts => {
    const [rows, cols] = parts.sizes('.weight')
    const rowScale = await parts.rowScales('.weight_scale', rows)
    const { buffer, byteOffset, byteLength } = await parts.get('.weight').load()
    const data = new Int8Array(buffer as ArrayBuffer, byteOffset, byteLength)
    return { format: 'i8', rows, cols, data, rowScale }
  },
}
