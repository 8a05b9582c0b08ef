// npy.ts: arrays in NumPy's file format. "\x93NUMPY", major and minor version, the length of the header (2 bytes, from
// version 2 on 4), the header (a Python dictionary), the elements.
import {
  type ElementArray,
  type ElementType,
  elementArrayOf,
  elementBits,
  type TypedArrayOf,
} from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { transpose } from '../core/transpose.js'
import type { NumericType } from '../graph/constant.js'
import { Tensor } from '../memory/tensor.js'

const magic = '\x93NUMPY'

/** Element types by their descriptor without the byte order. */
const types: Readonly<Record<string, NumericType>> = {
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
 * A tensor of the bytes of a .npy file. Texts of n bytes (`S8`) are u8 with n elements more in the last dimension.
 * @param label - names the file in errors
 * @throws SparkError ERR_FORMAT for a file that is broken, cut off or too long; ERR_DTYPE for elements that are not numbers;
 * ERR_UNSUPPORTED for a column-major array of more than two dimensions
 */
export function parseNpy(bytes: Uint8Array, label = 'npy'): Tensor<NumericType> {
  const broken = (what: string): SparkError =>
    new SparkError('ERR_FORMAT', `${label} is no .npy file: ${what}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (bytes.byteLength < 12 || Buffer.from(bytes.subarray(0, 6)).toString('latin1') !== magic) {
    throw broken('it does not begin with \\x93NUMPY')
  }
  const wide = bytes[6]! >= 2
  const start = wide ? 12 : 10
  const end = start + (wide ? view.getUint32(8, true) : view.getUint16(8, true))
  if (end > bytes.byteLength) throw broken('the header is cut off')
  const header = Buffer.from(bytes.subarray(start, end)).toString('latin1')
  const [, order, code = ''] = /'descr':\s*'([<>|=])(\w\d+)'/.exec(header) ?? []
  const [, sizes] = /'shape':\s*\(([\d,\s]*)\)/.exec(header) ?? []
  if (order === undefined || sizes === undefined) throw broken('the header names no element type or shape')
  const text = /^S(\d+)$/.exec(code)?.[1]
  const dtype = text ? 'u8' : Object.hasOwn(types, code) ? types[code] : undefined
  if (!dtype)
    throw new SparkError('ERR_DTYPE', `${label} has elements of type ${code}, which are not supported`)
  const shape = sizes.split(',').flatMap(size => (size.trim() ? [Number(size)] : []))
  const isColumnMajor = /'fortran_order':\s*True/.test(header)
  if (isColumnMajor && shape.length > 2) {
    const remedy = 'save numpy.ascontiguousarray of it'
    throw new SparkError('ERR_UNSUPPORTED', `${label} is in Fortran's order: ${remedy}`)
  }
  if (text) shape.push(Number(text))
  const kind = elementArrayOf(dtype)
  const [needed, there] = [numel(shape) * kind.BYTES_PER_ELEMENT, bytes.byteLength - end]
  if (needed !== there) throw broken(`[${shape.join(', ')}] needs ${needed} bytes, but there are ${there}`)
  const body = Uint8Array.from(bytes.subarray(end))
  if (order === '>') swapBytes(body, kind.BYTES_PER_ELEMENT)
  const elements = new kind(body.buffer, 0, numel(shape))
  const [rows = 1, cols = 1] = shape
  const data = isColumnMajor && !text ? transpose(elements, cols, rows) : elements
  return Tensor.of(data as TypedArrayOf<NumericType>, shape, dtype)
}

function swapBytes(bytes: Uint8Array, width: number): void {
  for (let start = 0; start < bytes.length; start += width) bytes.subarray(start, start + width).reverse()
}

/**
 * The bytes of a .npy file, row-major and little-endian.
 * @param label - names the tensor in errors
 * @throws SparkError ERR_DTYPE for elements that {@link parseNpy} would not read: texts, bf16, FP8, less than 8 bits
 */
export function serializeNpy(tensor: Tensor<ElementType>, label = 'the tensor'): Uint8Array[] {
  const { dtype, shape, data } = tensor
  const code = Object.keys(types).find(code => types[code] === dtype)
  if (!code) throw new SparkError('ERR_DTYPE', `${label} is of ${dtype}, which .npy files cannot hold`)
  const order = elementBits[dtype] > 8 ? '<' : '|'
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(', ')
  const dictionary = `{'descr': '${order}${code}', 'fortran_order': False, 'shape': (${sizes}), }`
  // The elements begin at a multiple of 64; a line feed ends the header.
  const length = Math.ceil((10 + dictionary.length + 1) / 64) * 64 - 10
  const header = Buffer.alloc(10 + length, ' ')
  header.write(magic, 'latin1')
  header.set([1, 0, length & 0xff, length >>> 8], 6)
  header.write(dictionary, 10, 'latin1')
  header.write('\n', header.length - 1, 'latin1')
  const { buffer, byteOffset, byteLength } = data as ElementArray
  return [header, new Uint8Array(buffer, byteOffset, byteLength)]
}
