// encode.ts: encoding of frozen weights in the formats that kernels read, and decoding.
import { argumentError, expectOneOf, expectShape } from '../core/checks.js'
import { type Precision, precisions, warnIfExperimental } from '../core/config.js'
import type { DTypeArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import { dequantizeFP8, type FP8Matrix, quantizeFP8 } from '../precision/fp8.js'
import { dequantizeNVFP4, type NVFP4Matrix, quantizeNVFP4 } from '../precision/nvfp4.js'
import { unpackWeight } from './packed.js'
import type { Weight, WeightFormat } from './weight.js'

/** A weight matrix [out, in]: a tensor (f32, f16, bf16), or one that was quantized before. */
export type WeightMatrix = Tensor | FP8Matrix | NVFP4Matrix

/** The precision mode of each format that one stores weights in. */
const modes: Readonly<Partial<Record<WeightFormat, Precision>>> = {
  f32: 'fp32',
  f16: 'fp16',
  bf16: 'bf16',
  f8_e4m3: 'fp8',
  nvfp4: 'nvfp4',
}

/**
 * The precision mode that stores weights as `dtype`.
 * @throws SparkError ERR_DTYPE for i8, which no mode uses
 */
export function precisionOf(dtype: WeightFormat): Precision {
  const precision = modes[dtype]
  if (!precision) throw new SparkError('ERR_DTYPE', `no precision mode stores weights as ${dtype}`)
  return precision
}

/**
 * `weight` in the format of `precision`, or in its own without one, as the kernels take it. Arrays are shared, not
 * copied, where the format stays the same.
 * @param weight - [out, in]
 * @param precision - format to store it in
 * @param name - what errors call it
 * @throws SparkError ERR_SHAPE, ERR_DTYPE; ERR_NOT_FINITE when a quantizer meets NaN or infinity; ERR_RANGE when a
 * finite value is too large for fp16; ERR_ARGUMENT when a quantized matrix would have to change its format
 */
export function storeWeight(weight: WeightMatrix, precision?: Precision | null, name = 'weight'): Weight {
  if (precision) {
    expectOneOf('precision', precision, precisions)
    warnIfExperimental(precision)
  }
  if (weight instanceof Tensor) return storeTensor(name, weight, precision)
  const stored = fromQuantized(name, weight)
  if (precision && precision !== precisionOf(stored.dtype)) {
    throw new SparkError(
      'ERR_ARGUMENT',
      `${name} is quantized to ${precisionOf(stored.dtype)} already; precision ${precision} needs the original tensor`,
    )
  }
  return stored
}

function storeTensor(name: string, weight: Tensor, precision?: Precision | null): Weight {
  expectShape(name, weight.shape, [null, null])
  const { dtype } = weight
  if (dtype !== 'f32' && dtype !== 'f16' && dtype !== 'bf16') {
    throw argumentError(name, 'f32, f16 or bf16, or the result of a quantizer', dtype, 'ERR_DTYPE')
  }
  const [rows, cols] = weight.shape as [number, number]
  switch (precision ?? precisionOf(dtype)) {
    case 'fp32':
      return { dtype: 'f32', rows, cols, data: weight.toFloat32() }
    case 'fp16': {
      const data = weight.to('f16').data
      if (dtype !== 'f16') expectFits(name, weight, data)
      return { dtype: 'f16', rows, cols, data }
    }
    case 'bf16':
      return { dtype: 'bf16', rows, cols, data: weight.to('bf16').data }
    case 'fp8':
      return fromQuantized(name, quantizeFP8({ data: weight.data, dtype }, [rows, cols]))
    case 'nvfp4':
      return fromQuantized(name, quantizeNVFP4({ data: weight.data, dtype }, [rows, cols]))
  }
}

function fromQuantized(name: string, matrix: FP8Matrix | NVFP4Matrix): Weight {
  if (typeof matrix !== 'object' || matrix === null)
    throw argumentError(name, 'a tensor or a quantized matrix', matrix)
  const { rows, cols } = matrix
  if ('codes' in matrix) {
    expectShape(`${name}.codes`, [matrix.codes?.length ?? 0], [rows * cols])
    expectShape(`${name}.rowScale`, [matrix.rowScale?.length ?? 0], [rows])
    return { dtype: 'f8_e4m3', rows, cols, data: matrix.codes, rowScale: matrix.rowScale }
  }
  if (!('packed' in matrix)) throw argumentError(name, 'a tensor or a quantized matrix', matrix)
  expectShape(`${name}.packed`, [matrix.packed?.length ?? 0], [(rows * cols) / 2])
  expectShape(`${name}.blockScale`, [matrix.blockScale?.length ?? 0], [(rows * cols) / 16])
  const { packed, blockScale, tensorScale } = matrix
  return { dtype: 'nvfp4', rows, cols, data: packed, blockScale, tensorScale }
}

function expectFits(name: string, weight: Tensor, rounded: Uint16Array): void {
  const values = weight.toFloat32()
  const index = rounded.findIndex((bits, i) => (bits & 0x7fff) === 0x7c00 && Number.isFinite(values[i]))
  if (index < 0) return
  throw new SparkError(
    'ERR_RANGE',
    `${name} has the value ${values[index]}, but fp16 ends at 65504: use precision bf16 or fp32`,
  )
}

/** Throws ERR_ARGUMENT for anything but a stored weight. */
export function expectWeight(name: string, stored: Weight): void {
  if (!ArrayBuffer.isView(stored?.data)) throw argumentError(name, 'a weight of storeWeight', stored)
}

/** Bytes of a stored weight, scales included. */
export function storedBytes(stored: Weight): number {
  expectWeight('stored', stored)
  const { data, rowScale, blockScale, tensorScale } = stored
  const scales =
    (rowScale?.byteLength ?? 0) + (blockScale?.byteLength ?? 0) + (tensorScale === undefined ? 0 : 4)
  return data.byteLength + scales
}

/** The numbers of a stored weight, [rows, cols]; the array itself when it is f32 in rows. */
export function decodeWeight(stored: Weight): Float32Array {
  expectWeight('stored', stored)
  const { dtype, rows, cols, data, ...scales } = unpackWeight(stored)
  if (dtype === 'i8') {
    return Float32Array.from(data, (code, at) => code * scales.rowScale![Math.floor(at / cols)]!)
  }
  if (dtype === 'nvfp4') {
    const { blockScale, tensorScale } = scales
    return dequantizeNVFP4({
      rows,
      cols,
      packed: data as Uint8Array,
      blockScale: blockScale!,
      tensorScale: tensorScale!,
    })
  }
  if (dtype === 'f8_e4m3') {
    return dequantizeFP8({ rows, cols, codes: data as Uint8Array, rowScale: scales.rowScale! })
  }
  return Tensor.from(data as DTypeArray, { dtype }).toFloat32()
}
