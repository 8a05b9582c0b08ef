// encode.ts: encoding of frozen weights in the formats that kernels read, and decoding.
import { argumentError, expectInteger, expectOneOf, expectShape } from '../core/checks.js'
import { type Precision, precisions, warnIfExperimental } from '../core/config.js'
import type { DTypeArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import { dequantizeFP8, quantizeFP8 } from '../precision/fp8.js'
import { dequantizeNVFP4, quantizeNVFP4 } from '../precision/nvfp4.js'
import { decodeBlockWeight } from './blocks/decode-weight.js'
import { formatInfo, isBlockFormat, kernelFormats, weightSizes } from './formats.js'
import { inRows } from './panels.js'
import { arraysOf, type Weight, type WeightFormat } from './weight.js'

/**
 * The precision mode that stores weights in `format`.
 * @throws SparkError ERR_DTYPE for a format that no mode uses
 */
export function precisionOf(format: WeightFormat): Precision {
  const { precision } = formatInfo(format)
  if (!precision) throw new SparkError('ERR_DTYPE', `no precision mode stores weights as ${format}`)
  return precision
}

/**
 * `weight` in the format of `precision`, or in its own without one, as the kernels take it. Arrays are shared, not
 * copied, where the format stays the same.
 * @param weight - [out, in]: a tensor (f32, f16, bf16), or what a quantizer gave
 * @param precision - format to store it in
 * @param name - what errors call it
 * @throws SparkError ERR_SHAPE, ERR_DTYPE; ERR_NOT_FINITE when a quantizer meets NaN or infinity; ERR_RANGE when a
 * finite value is too large for fp16; ERR_ARGUMENT when a quantized weight would have to change its format
 */
export function storeWeight(weight: Tensor | Weight, precision?: Precision | null, name = 'weight'): Weight {
  if (precision) {
    expectOneOf('precision', precision, precisions)
    warnIfExperimental(precision)
  }
  if (weight instanceof Tensor) return storeTensor(name, weight, precision)
  expectStored(name, weight)
  const stored = precisionOf(weight.format)
  if (precision && precision !== stored) {
    throw new SparkError(
      'ERR_ARGUMENT',
      `${name} is quantized to ${stored} already; precision ${precision} needs the original tensor`,
    )
  }
  return weight
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
      return { format: 'f32', rows, cols, data: weight.toFloat32() }
    case 'fp16': {
      const data = weight.to('f16').data
      if (dtype !== 'f16') expectFits(name, weight, data)
      return { format: 'f16', rows, cols, data }
    }
    case 'bf16':
      return { format: 'bf16', rows, cols, data: weight.to('bf16').data }
    case 'fp8':
      return quantizeFP8({ data: weight.data, dtype }, [rows, cols])
    case 'nvfp4':
      return quantizeNVFP4({ data: weight.data, dtype }, [rows, cols])
  }
}

/** Throws unless the arrays of a weight have the sizes of its format, and kernels read that. */
function expectStored(name: string, weight: Weight): void {
  expectWeight(name, weight)
  const { format, rows, cols } = weight
  expectOneOf(`${name}.format`, format, kernelFormats)
  expectInteger(`${name}.rows`, rows, 0)
  expectInteger(`${name}.cols`, cols, 0)
  if (weight.layout === 'panels') return
  const arrays = weight as unknown as Readonly<Record<string, ArrayLike<number> | undefined>>
  for (const [array, count] of Object.entries(weightSizes(format, rows, cols)))
    if (count > 0) expectShape(`${name}.${array}`, [arrays[array]?.length ?? 0], [count])
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

/** Throws ERR_ARGUMENT for anything but a weight. */
export function expectWeight(name: string, weight: Weight): void {
  if (!ArrayBuffer.isView(weight?.data))
    throw argumentError(name, 'a weight of storeWeight or a quantizer', weight)
}

/** Bytes of a weight, scales included. */
export function weightBytes(weight: Weight): number {
  expectWeight('weight', weight)
  const scale = 'tensorScale' in weight ? 4 : 0
  return arraysOf(weight).reduce((bytes, [, { byteLength }]) => bytes + byteLength, scale)
}

/** The numbers of a weight, [rows, cols]; the array itself when it is f32 in rows. */
export function decodeWeight(weight: Weight): Float32Array {
  expectWeight('weight', weight)
  const plain = inRows(weight)
  if (isBlockFormat(plain.format)) return decodeBlockWeight(plain.format, plain.data as Uint8Array)
  switch (plain.format) {
    case 'nvfp4':
      return dequantizeNVFP4(plain)
    case 'f8_e4m3':
    case 'f8_e4m3_block':
      return dequantizeFP8(plain)
    case 'i8': {
      const { data, rowScale, cols } = plain
      return Float32Array.from(data, (code, at) => code * rowScale[Math.floor(at / cols)]!)
    }
    default:
      return Tensor.from(plain.data as DTypeArray, { dtype: plain.format }).toFloat32()
  }
}
