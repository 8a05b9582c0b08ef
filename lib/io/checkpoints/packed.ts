// packed.ts: matrices of unsigned integers in words of 32 bits, as GPTQ, AWQ and compressed-tensors store them.
import { numel } from '../../core/shape.js'
import { transpose } from '../../core/transpose.js'
import {
  bytesOfNibbles,
  type IntegerMatrix,
  unpack,
  weightOfGroups,
  weightOfIntegers,
} from '../../weights/integer-matrix.js'
import type { OrderedWeight } from '../../weights/ordered-weight.js'
import type { Weight } from '../../weights/weight.js'
import type { Parts } from './parts.js'
import type { Scheme } from './scheme.js'

/**
 * GPTQ: words [in · bits / 32, out] of neighbours in the row of an out feature, scales [groups, out], zero points
 * [groups, out · bits / 32], and the group of each in feature.
 */
export const gptq: Scheme = {
  end: '.qweight',
  others: ['.qzeros', '.scales', '.g_idx'],
  name: '.weight',
  fits: (_, { method }) => method !== 'awq',
  read: async (parts, { zeroOffset }) => {
    const [words, rows] = parts.sizes('.qweight')
    const [groups, zeroWords] = parts.sizes('.qzeros')
    const bits = widthOf(parts, '.qzeros', (zeroWords * 32) / rows, [2, 3, 4, 8])
    const cols = (words * 32) / bits
    const zeros = unpack(await parts.words('.qzeros', [groups, zeroWords]), bits, groups, rows)
    const matrix = {
      rows,
      cols,
      bits,
      codes: bytesOf(transpose(await parts.words('.qweight', [words, rows]), words, rows)),
      scales: transpose(await parts.scales('.scales', [groups, rows]), groups, rows),
      zeros: transpose(zeros, groups, rows).map(zero => zero + zeroOffset),
    }
    return weightOf(matrix, await groupsOf(parts, '.g_idx', cols, groups))
  },
}

/** AWQ: words [in, out / 8] and zero points [groups, out / 8] of 4 bits, scales [groups, out]. */
export const awq: Scheme = {
  end: '.qweight',
  others: ['.qzeros', '.scales'],
  name: '.weight',
  fits: (_, { method }) => method === 'awq',
  read: async parts => {
    const [cols, words] = parts.sizes('.qweight')
    const [groups, rows] = parts.sizes('.scales')
    const bits = widthOf(parts, '.qweight', (words * 32) / rows, [4])
    const codes = inOrder(unpack(await parts.words('.qweight', [cols, words]), bits, cols, rows))
    const zeros = inOrder(unpack(await parts.words('.qzeros', [groups, words]), bits, groups, rows))
    const matrix = {
      rows,
      cols,
      bits,
      codes: bytesOfNibbles(transpose(codes, cols, rows), rows, cols),
      scales: transpose(await parts.scales('.scales', [groups, rows]), groups, rows),
      zeros: transpose(zeros, groups, rows),
    }
    return weightOf(matrix, await groupsOf(parts, '.g_idx', cols, groups))
  },
}

/** Which of eight neighbours the nibbles of a word of AWQ are, the lowest first. */
const awqOrder = [0, 2, 4, 6, 1, 3, 5, 7] as const

/** Codes in the order of AWQ's words, in place, as neighbours. */
function inOrder(codes: Uint8Array): Uint8Array {
  const word = new Uint8Array(8)
  for (let at = 0; at < codes.length; at += 8) {
    word.set(codes.subarray(at, at + 8))
    for (let i = 0; i < 8; i++) codes[at + awqOrder[i]!] = word[i]!
  }
  return codes
}

/**
 * compressed-tensors: words [out, ⌈in · bits / 32⌉], scales [out, groups], and, unless zero points are in the middle of the
 * integers, words of them [⌈out · bits / 32⌉, groups].
 */
export const compressedIntegers: Scheme = {
  end: '.weight_packed',
  others: ['.weight_scale', '.weight_zero_point', '.weight_shape', '.weight_g_idx'],
  name: '.weight',
  fits: ({ dtype }) => dtype === 'I32',
  read: async parts => {
    const [rows, words] = parts.sizes('.weight_packed')
    const [shapeRows, cols = 0] = await parts.integers('.weight_shape', 2)
    if (shapeRows !== rows) throw parts.error('.weight_shape', `has ${shapeRows} rows; expected ${rows}`)
    const width = [2, 4, 8].find(bits => Math.ceil((cols * bits) / 32) === words) ?? 0
    const bits = widthOf(parts, '.weight_packed', width, [2, 4, 8])
    const groups = Math.max(1, numel(parts.get('.weight_scale').shape) / rows)
    const matrix = {
      rows,
      cols,
      bits,
      codes: bytesOf(await parts.words('.weight_packed', [rows, words])),
      scales:
        groups === 1
          ? await parts.rowScales('.weight_scale', rows)
          : await parts.scales('.weight_scale', [rows, groups]),
      zeros: await compressedZeros(parts, bits, rows, groups),
    }
    return weightOf(matrix, await groupsOf(parts, '.weight_g_idx', cols, groups))
  },
}

/** Zero points [out, groups]. */
async function compressedZeros(
  parts: Parts,
  bits: number,
  rows: number,
  groups: number,
): Promise<Uint8Array> {
  const end = '.weight_zero_point'
  if (!parts.has(end)) return new Uint8Array(rows * groups).fill(2 ** (bits - 1))
  const words = Math.ceil((rows * bits) / 32)
  const columns = transpose(await parts.words(end, [words, groups]), words, groups)
  return transpose(unpack(columns, bits, groups, rows), groups, rows)
}

/** The width of integers that sizes give, which must be one of `known`. */
function widthOf(parts: Parts, end: string, bits: number, known: readonly number[]): number {
  if (known.includes(bits)) return bits
  const shape = parts.get(end).shape.join(', ')
  throw parts.error(end, `has the shape [${shape}]; expected integers of ${known.join(', ')} bits`)
}

/**
 * The group of each in feature, where a part has them; undefined where all groups have as many neighbours.
 * @throws SparkError ERR_FORMAT for a group that is not there
 */
async function groupsOf(
  parts: Parts,
  end: string,
  cols: number,
  groups: number,
): Promise<Uint32Array | undefined> {
  const size = cols / groups
  if (!parts.has(end)) {
    if (Number.isSafeInteger(size)) return undefined
    throw parts.error(end, `is missing, without which ${cols} in features are no ${groups} groups`)
  }
  const groupOf = await parts.words(end, [cols])
  const at = groupOf.findIndex(group => group >= groups)
  if (at >= 0) throw parts.error(end, `has the group ${groupOf[at]} at element ${at}; there are ${groups}`)
  return groupOf.every((group, i) => group === Math.floor(i / size)) ? undefined : groupOf
}

const weightOf = (matrix: IntegerMatrix, groupOf: Uint32Array | undefined): Weight | OrderedWeight =>
  groupOf ? weightOfGroups(matrix, groupOf) : weightOfIntegers(matrix)

const bytesOf = ({ buffer, byteOffset, byteLength }: Uint32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)
