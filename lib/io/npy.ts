// npy.ts: arrays in NumPy's file format. "\x93NUMPY", major and minor version, the length of the header (2 bytes, from
// version 2 on 4), the header (a Python dictionary), the elements.
import { type ElementArray, type ElementType, elementArrayOf, type TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { elementCount, Tensor } from '../memory/tensor.js'

const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]

/** Element types by their descriptor without the byte order. */
const types: Readonly<Record<string, ElementType>> = {
  f4: 'f32',
  f8: 'f64',
  f2: 'f16',
  i8: 'i64',
  i4: 'i32',
  i2: 'i16',
  i1: 'i8',
  u8: 'u64',
  u4: 'u32',
  u2: 'u16',
  u1: 'u8',
  b1: 'bool',
}

/**
 * A tensor of the bytes of a .npy file.
 * @param label - names the file in errors
 * @throws SparkError ERR_FORMAT for a file that is broken; ERR_UNSUPPORTED for another byte order, column-major arrays
 * and element types that are no numbers
 */
export function parseNpy(bytes: Uint8Array, label = 'array'): Tensor<ElementType> {
  const broken = (why: string): SparkError => new SparkError('ERR_FORMAT', `${label}: ${why}`)
  if (!magic.every((byte, i) => bytes[i] === byte) || bytes.byteLength < 12)
    throw broken('it is no .npy file')
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const wide = bytes[6]! >= 2
  const start = wide ? 12 : 10
  const end = start + (wide ? view.getUint32(8, true) : view.getUint16(8, true))
  const header = Buffer.from(bytes.subarray(start, end)).toString('latin1')
  const [, order, code = ''] = /'descr':\s*'([<>|=])(\w+)'/.exec(header) ?? []
  const [, shapeText] = /'shape':\s*\(([\d,\s]*)\)/.exec(header) ?? []
  if (end > bytes.byteLength || order === undefined || shapeText === undefined)
    throw broken('its header is broken')
  const dtype = Object.hasOwn(types, code) ? types[code] : undefined
  if (!dtype || order === '>' || /'fortran_order':\s*True/.test(header)) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${label}: arrays of ${order}${code}, or in column-major order, are not read`,
    )
  }
  const shape = shapeText.split(',').flatMap(size => (size.trim() ? [Number(size)] : []))
  const kind = elementArrayOf(dtype)
  const count = elementCount(shape)
  const data = Uint8Array.from(bytes.subarray(end, end + count * kind.BYTES_PER_ELEMENT))
  if (data.byteLength !== count * kind.BYTES_PER_ELEMENT) throw broken('elements are missing at its end')
  const array: ElementArray = new kind(data.buffer, 0, count)
  return Tensor.of(array as TypedArrayOf<ElementType>, shape, dtype)
}
