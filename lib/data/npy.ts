// npy.ts: NumPy's format of one array: magic, version, the length of a header, a Python dictionary, the elements.
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { volume } from '../core/shape.js'
import { decode } from '../precision/casts.js'
import type { BatchTensor } from '../training/dataset.js'

const magic = '\x93NUMPY'

const arrays = {
  f8: Float64Array,
  f4: Float32Array,
  f2: Uint16Array,
  i8: BigInt64Array,
  i4: Int32Array,
  i2: Int16Array,
  i1: Int8Array,
  u8: BigUint64Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
  b1: Uint8Array,
} as const

/**
 * Reads the bytes of a .npy file; numbers of 16 bits become f32. `label` names them in errors.
 * @throws SparkError ERR_FORMAT for anything else, and for a file that is cut off or too long; ERR_DTYPE for elements that
 * are no numbers; ERR_UNSUPPORTED for an array in Fortran's order
 */
export function parseNpy(bytes: Uint8Array, label = 'npy'): BatchTensor {
  const fail = (what: string): SparkError => new SparkError('ERR_FORMAT', `${label} is no npy file: ${what}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (bytes.byteLength < 12 || Buffer.from(bytes.subarray(0, 6)).toString('latin1') !== magic) {
    throw fail('it does not begin with \\x93NUMPY')
  }
  const wide = bytes[6]! >= 2
  const start = (wide ? 12 : 10) + (wide ? view.getUint32(8, true) : view.getUint16(8, true))
  if (start > bytes.byteLength) throw fail('the header is cut off')
  const header = Buffer.from(bytes.subarray(wide ? 12 : 10, start)).toString('latin1')
  const type = /'descr':\s*'([<>|=])(\w\d+)'/.exec(header)
  const sizes = /'shape':\s*\(([\d,\s]*)\)/.exec(header)?.[1]
  if (!type || sizes === undefined) throw fail('the header names no element type or shape')
  const array = (arrays as Record<string, (typeof arrays)[keyof typeof arrays] | undefined>)[type[2]!]
  if (!array)
    throw new SparkError('ERR_DTYPE', `${label} has elements of type ${type[2]}, which are not supported`)
  if (/'fortran_order':\s*True/.test(header)) {
    const remedy = 'save numpy.ascontiguousarray of it'
    throw new SparkError('ERR_UNSUPPORTED', `${label} is in Fortran's order: ${remedy}`)
  }
  const shape = sizes
    .split(',')
    .filter(size => size.trim() !== '')
    .map(Number)
  const count = volume(shape)
  const width = array.BYTES_PER_ELEMENT
  if (count * width !== bytes.byteLength - start) {
    const there = bytes.byteLength - start
    throw fail(`[${shape.join(', ')}] needs ${count * width} bytes, but there are ${there}`)
  }
  const body = Uint8Array.from(bytes.subarray(start))
  if (type[1] === '>') swapBytes(body, width)
  const data = new array(body.buffer) as ElementArray
  return { shape, data: type[2] === 'f2' ? decode(data as Uint16Array, 'f16') : data }
}

function swapBytes(bytes: Uint8Array, width: number): void {
  for (let start = 0; start < bytes.length; start += width) bytes.subarray(start, start + width).reverse()
}
