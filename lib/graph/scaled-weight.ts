// scaled-weight.ts: what DequantizeLinear makes of codes as a weight in blocks, with the same codes.
import { type DType, type DTypeArray, elementBits, isSigned } from '../core/dtype.js'
import { numel } from '../core/shape.js'
import { transpose } from '../core/transpose.js'
import { decode } from '../precision/casts.js'
import { blockSizeOf, blocksOfGroups, groupSizes } from '../weights/blocks/groups.js'
import { bytesOfNibbles, weightOfIntegers } from '../weights/integer-matrix.js'
import type { Weight } from '../weights/weight.js'
import { unpackedData } from './packed.js'
import type { ScaledCodes } from './scaled-codes.js'

/** Element types of codes that blocks hold. */
const codeTypes: readonly string[] = ['u2', 'i2', 'u4', 'i4', 'u8', 'i8', 'f8_e4m3']

/** A matrix of codes, [out features, in features], and how its in features share scales. */
interface Matrix {
  readonly rows: number
  readonly cols: number
  /** Neighbours in a row that share a scale. */
  readonly sharing: number
  /** Whether codes and scales are stored by in features. */
  readonly transposed: boolean
}

/**
 * Codes and their scales as a weight with the same numbers; undefined where kernels read no such blocks: where fewer than 16
 * in features share a scale (32 of E4M3), rows are not whole blocks, or scales are not along in features.
 * @param transposed - whether the codes are [in features, out features]; else their last dimension is in features
 */
export function scaledWeight(parts: ScaledCodes, transposed: boolean): Weight | undefined {
  const { codes, zero } = parts
  const matrix = matrixOf(parts, transposed)
  if (!matrix || !codeTypes.includes(codes.dtype) || codes.count === 0) return undefined
  const { rows, cols, sharing } = matrix
  const isE4M3 = codes.dtype === 'f8_e4m3'
  if (blockSizeOf(sharing, cols, isE4M3 ? groupSizes.f8 : groupSizes.integers) === undefined) return undefined
  const scales = perGroup(floatsOf(parts.scale), matrix)
  const groups = cols / sharing
  if (isE4M3) {
    if (zero) return undefined
    return blocksOfGroups(`f8_${blockSizeOf(sharing, cols, groupSizes.f8)!}`, rows, cols, {
      codes: byRows(codes.bytes, matrix),
      rowBytes: cols,
      scale: (row, col) => scales[row * groups + Math.floor(col / sharing)]!,
    })
  }
  const bits = elementBits[codes.dtype]
  // What makes signed codes unsigned ones, and their zero points.
  const offset = isSigned(codes.dtype) ? 2 ** (bits - 1) : 0
  const points = zero ? byteCodes(zero) : new Uint8Array(parts.scale.count)
  const zeros = perGroup(points, matrix).map(point => point ^ offset)
  return weightOfIntegers({
    ...{ rows, cols, scales, zeros },
    ...packedCodes(parts, matrix, offset),
  })
}

function matrixOf({ codes, scale, axis, block }: ScaledCodes, transposed: boolean): Matrix | undefined {
  const { shape } = codes
  if (shape.length < 2 || (transposed && shape.length > 2)) return undefined
  const [outer, inner] = [numel(shape.slice(0, -1)), shape.at(-1)!]
  const [rows, cols] = transposed ? [inner, outer] : [outer, inner]
  const isAlong = axis === (transposed ? 0 : shape.length - 1)
  if (block > 0) return isAlong && cols % block === 0 ? { rows, cols, sharing: block, transposed } : undefined
  const isPerRow = shape.length === 2 && !isAlong && scale.count === rows
  return scale.count === 1 || isPerRow ? { rows, cols, sharing: cols, transposed } : undefined
}

const floatsOf = ({ dtype, data }: ScaledCodes['scale']): Float32Array =>
  decode(data as DTypeArray, dtype as DType)

/** Codes of integers as bytes. */
const byteCodes = (codes: ScaledCodes['codes']): Uint8Array => {
  const { buffer, byteOffset, byteLength } = unpackedData(codes)
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength)
}

/** Elements of a matrix row by row. */
const byRows = (codes: Uint8Array, { rows, cols, transposed }: Matrix): Uint8Array =>
  transposed ? transpose(codes, cols, rows) : codes

/** What groups have, [rows, groups]; one for all is repeated. */
function perGroup<Elements extends Float32Array | Uint8Array>(
  values: Elements,
  { rows, cols, sharing, transposed }: Matrix,
): Elements {
  const groups = cols / sharing
  if (values.length === rows * groups) return transposed ? transpose(values, groups, rows) : values
  return new (values.constructor as new (count: number) => Elements)(rows * groups).fill(
    values[0]!,
  ) as Elements
}

/** Unsigned codes row by row, as many bits each as an integer matrix has; 2 bits become 4. */
function packedCodes(
  { codes }: ScaledCodes,
  matrix: Matrix,
  offset: number,
): { readonly bits: 4 | 8; readonly codes: Uint8Array } {
  const { rows, cols, transposed } = matrix
  const bits = elementBits[codes.dtype]
  const unsigned = (bytes: Uint8Array, flip: number): Uint8Array =>
    flip === 0 ? bytes : bytes.map(byte => byte ^ flip)
  if (bits === 8) return { bits, codes: unsigned(byRows(byteCodes(codes), matrix), offset) }
  if (bits === 4 && !transposed) return { bits, codes: unsigned(codes.bytes, offset * 0x11) }
  return { bits: 4, codes: bytesOfNibbles(unsigned(byRows(byteCodes(codes), matrix), offset), rows, cols) }
}
