// fp4.ts: matrices of E2M1 codes, two to a byte, the low nibble being the even element: NVFP4 and MXFP4.
import { numel } from '../../core/shape.js'
import type { NVFP4Weight } from '../../precision/nvfp4.js'
import type { Weight } from '../../weights/weight.js'
import { blocksOfMXFP4 } from './blocks.js'
import type { Parts } from './parts.js'
import type { Scheme } from './scheme.js'

/** NVFP4 as ModelOpt stores it: codes U8 [out, in / 2], scales of blocks F8_E4M3 [out, in / 16], the scale of the matrix. */
export const modelOptNVFP4: Scheme = {
  end: '.weight',
  others: ['.weight_scale', '.weight_scale_2'],
  name: '.weight',
  fits: ({ dtype }) => dtype === 'U8',
  read: async parts => readNVFP4(parts, '.weight', (await parts.scales('.weight_scale_2', [1]))[0]!),
}

/** NVFP4 as compressed-tensors stores it: the same, but for the reciprocal of the scale of the matrix. */
export const compressedNVFP4: Scheme = {
  end: '.weight_packed',
  others: ['.weight_scale', '.weight_global_scale'],
  name: '.weight',
  fits: ({ dtype }, _, parts) => dtype === 'U8' && parts.has('.weight_global_scale'),
  read: async parts => {
    const [inverse] = await parts.scales('.weight_global_scale', [1])
    return readNVFP4(parts, '.weight_packed', Math.fround(1 / inverse!))
  },
}

async function readNVFP4(parts: Parts, end: string, tensorScale: number): Promise<NVFP4Weight> {
  const codes = parts.get(end, 'U8')
  const [rows, half] = parts.sizes(end)
  const cols = 2 * half
  expectBlocks(parts, end, cols, 16)
  if (!(tensorScale > 0 && tensorScale < Number.POSITIVE_INFINITY))
    throw parts.error(end, `has the scale ${tensorScale}; expected a positive number`)
  const blockScale = await parts.bytes('.weight_scale', [rows, cols / 16], 'F8_E4M3')
  const nan = blockScale.findIndex(code => (code & 0x7f) === 0x7f)
  expectNoNaN(parts, '.weight_scale', nan)
  return { format: 'nvfp4', rows, cols, data: await codes.load(), blockScale, tensorScale }
}

/** MXFP4 as compressed-tensors stores it: codes U8 [out, in / 2], exponents U8 [out, in / 32]. */
export const compressedMXFP4: Scheme = {
  end: '.weight_packed',
  others: ['.weight_scale'],
  name: '.weight',
  fits: ({ dtype }) => dtype === 'U8',
  read: parts => {
    const [rows, half] = parts.sizes('.weight_packed')
    return readMXFP4(parts, '.weight_packed', '.weight_scale', [rows], half)
  },
}

/** MXFP4 of the experts of gpt-oss: codes U8 [experts, out, in / 32, 16], exponents U8 [experts, out, in / 32]. */
export const expertsMXFP4: Scheme = {
  end: '_blocks',
  others: ['_scales'],
  name: '',
  fits: ({ dtype, shape }) => dtype === 'U8' && shape.length === 4 && numel(shape) > 0,
  experts: ({ shape }) => shape[0]!,
  read: parts => {
    const [experts, rows, blocks, bytes] = parts.get('_blocks').shape as [number, number, number, number]
    return readMXFP4(parts, '_blocks', '_scales', [experts, rows], blocks * bytes)
  },
}

/** Exponents are those of powers of two, with a bias of 127, for 32 elements each. */
async function readMXFP4(
  parts: Parts,
  codes: string,
  exponents: string,
  outer: readonly number[],
  half: number,
): Promise<Weight> {
  const cols = 2 * half
  expectBlocks(parts, codes, cols, 32)
  const scales = await parts.bytes(exponents, [...outer, cols / 32], 'U8', 'F8_E8M0')
  expectNoNaN(parts, exponents, scales.indexOf(0xff))
  return blocksOfMXFP4(numel(outer), cols, await parts.get(codes).load(), scales)
}

function expectBlocks(parts: Parts, end: string, cols: number, block: number): void {
  if (cols % block !== 0)
    throw parts.error(end, `has rows of ${cols} elements; expected a multiple of ${block}`)
}

/** Throws unless `at`, where a scale is NaN, is −1. */
function expectNoNaN(parts: Parts, end: string, at: number): void {
  if (at >= 0) throw parts.error(end, `has the scale NaN at element ${at}; expected finite numbers`)
}
