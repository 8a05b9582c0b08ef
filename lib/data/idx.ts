// idx.ts: reader of the IDX format of MNIST: u16 0, u8 type, u8 rank, u32 sizes, then the elements, all big-endian.
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import type { BatchTensor } from '../training/dataset.js'

interface ElementReader {
  readonly bytes: number
  readonly make: (count: number) => ElementArray
  readonly get: (view: DataView, at: number) => number
}

const readers: Readonly<Record<number, ElementReader>> = {
  8: { bytes: 1, make: count => new Uint8Array(count), get: (view, at) => view.getUint8(at) },
  9: { bytes: 1, make: count => new Int8Array(count), get: (view, at) => view.getInt8(at) },
  11: { bytes: 2, make: count => new Int16Array(count), get: (view, at) => view.getInt16(at) },
  12: { bytes: 4, make: count => new Int32Array(count), get: (view, at) => view.getInt32(at) },
  13: { bytes: 4, make: count => new Float32Array(count), get: (view, at) => view.getFloat32(at) },
  14: { bytes: 8, make: count => new Float64Array(count), get: (view, at) => view.getFloat64(at) },
}

/**
 * Reads the bytes of an IDX file; `label` names them in errors.
 * @throws SparkError ERR_FORMAT for another format and for a file of the wrong length
 */
export function parseIdx(bytes: Uint8Array, label = 'idx'): BatchTensor {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const fail = (what: string): SparkError =>
    new SparkError('ERR_FORMAT', `${label} is not an IDX file: ${what}`)
  if (bytes.byteLength < 4 || view.getUint16(0) !== 0) throw fail('it does not begin with two zero bytes')
  const [reader, rank] = [readers[bytes[2]!], bytes[3]!]
  if (!reader) throw fail(`element type ${bytes[2]} is not known`)
  const start = 4 + 4 * rank
  if (rank === 0 || bytes.byteLength < start)
    throw fail(`${bytes.byteLength} bytes do not hold ${rank} sizes`)
  const shape = Array.from({ length: rank }, (_, axis) => view.getUint32(4 + 4 * axis))
  const count = numel(shape)
  if (count * reader.bytes !== bytes.byteLength - start) {
    const there = bytes.byteLength - start
    throw fail(`[${shape.join(', ')}] needs ${count * reader.bytes} bytes, but there are ${there}`)
  }
  const data = reader.make(count)
  if (data instanceof Uint8Array) data.set(bytes.subarray(start))
  else for (let i = 0; i < count; i++) data[i] = reader.get(view, start + i * reader.bytes)
  return { shape, data }
}
