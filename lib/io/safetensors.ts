// safetensors.ts: the safetensors format. A file is N (u64, little-endian), a JSON header of N bytes, then the
// elements of all tensors, back to back.
import type { FileHandle } from 'node:fs/promises'
import path from 'node:path'
import {
  argumentError,
  expectAttached,
  expectKnownOptions,
  expectObject,
  expectText,
} from '../core/checks.js'
import type { DType, ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { elementCount, Tensor } from '../memory/tensor.js'
import { ioError, writeFileAtomic } from './atomic-write.js'
import { fill, openFile } from './read-file.js'
import {
  expectNotPointer,
  headerLength,
  maxHeaderBytes,
  parseHeader,
  type SafetensorsDType,
  safetensorsDTypes,
  type TensorEntry,
} from './safetensors-header.js'

export type { SafetensorsDType } from './safetensors-header.js'

/** Elements as they are stored: 16-bit, 8-bit and smaller floats are bit patterns, BOOL is 0 or 1. */
export type SafetensorsData = ElementArray

/** A tensor of a file. */
export interface SafetensorsTensor {
  /** Element type, by the name in the file. */
  readonly dtype: SafetensorsDType
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
  /** The elements, row-major. */
  readonly data: SafetensorsData
}

/** The content of a file. */
export interface SafetensorsFile {
  /** The tensors by name, in the order of their data. */
  readonly tensors: Map<string, SafetensorsTensor>
  /** What `__metadata__` holds; empty when there is none. */
  readonly metadata: Map<string, string>
}

/**
 * Reads a whole file. Everything that the format forbids is refused: holes, overlaps, duplicate names, sizes that do
 * not fit, bytes that no tensor owns.
 *
 * @param source - a path, or the bytes of a file; tensors of given bytes are views of them where alignment allows
 * @throws SparkError ERR_FORMAT naming the tensor, ERR_IO when the file cannot be read, ERR_OUT_OF_MEMORY,
 * ERR_ARGUMENT
 */
export async function readSafetensors(source: string | Uint8Array): Promise<SafetensorsFile> {
  if (source instanceof Uint8Array) return parseSafetensors(source)
  if (typeof source !== 'string') throw argumentError('source', 'a path or a Uint8Array', source)
  const handle = await openFile(source)
  try {
    return await readFile(handle, source)
  } catch (error) {
    throw ioError('read', source, error)
  } finally {
    await handle.close()
  }
}

/**
 * Reads the bytes of a file; `label` names them in errors.
 * @throws SparkError ERR_FORMAT
 */
export function parseSafetensors(bytes: Uint8Array, label = 'safetensors'): SafetensorsFile {
  if (!(bytes instanceof Uint8Array)) throw argumentError('bytes', 'a Uint8Array', bytes)
  expectAttached('bytes', bytes)
  expectNotPointer(label, bytes)
  const headerBytes = headerLength(label, bytes, bytes.byteLength)
  const start = 8 + headerBytes
  const header = parseHeader(label, bytes.subarray(8, start), bytes.byteLength - start)
  const tensors = new Map<string, SafetensorsTensor>()
  for (const [name, entry] of header.tensors) {
    tensors.set(name, recordOf(entry, bytes.subarray(start + entry.begin, start + entry.end)))
  }
  return { tensors, metadata: header.metadata }
}

async function readFile(handle: FileHandle, file: string): Promise<SafetensorsFile> {
  const { size } = await handle.stat()
  const prefix = await readRange(handle, file, 0, Math.min(size, 64))
  expectNotPointer(file, prefix)
  const start = 8 + headerLength(file, prefix, size)
  const header = parseHeader(file, await readRange(handle, file, 8, start), size - start)
  const tensors = new Map<string, SafetensorsTensor>()
  for (const [name, entry] of header.tensors) {
    const bytes = await readRange(handle, file, start + entry.begin, start + entry.end)
    tensors.set(name, recordOf(entry, bytes))
  }
  return { tensors, metadata: header.metadata }
}

async function readRange(handle: FileHandle, file: string, begin: number, end: number): Promise<Uint8Array> {
  let bytes: Uint8Array
  try {
    bytes = new Uint8Array(end - begin)
  } catch (error) {
    throw new SparkError('ERR_OUT_OF_MEMORY', `${file}: no memory for ${end - begin} bytes`, { cause: error })
  }
  await fill(handle, file, bytes, begin)
  return bytes
}

/** A tensor of a header with its bytes, which are copied where they are not aligned. */
export function recordOf(
  { dtype, shape }: Pick<TensorEntry, 'dtype' | 'shape'>,
  bytes: Uint8Array,
): SafetensorsTensor {
  const { array } = safetensorsDTypes[dtype]
  const width = array.BYTES_PER_ELEMENT
  const aligned = bytes.byteOffset % width === 0 ? bytes : new Uint8Array(bytes)
  const data = new array(aligned.buffer as ArrayBuffer, aligned.byteOffset, aligned.byteLength / width)
  return { dtype, shape, data }
}

/**
 * A tensor of a file as a {@link Tensor}, without a copy; `name` is for the error.
 * @throws SparkError ERR_DTYPE when it is not f32, f16, bf16 or f8
 */
export function tensorFromRecord(name: string, record: SafetensorsTensor): Tensor {
  expectObject('record', 'a tensor of readSafetensors', record)
  const dtype = String(record.dtype).toLowerCase() as DType
  if (!['f32', 'f16', 'bf16', 'f8_e4m3', 'f8_e5m2'].includes(dtype)) {
    throw new SparkError('ERR_DTYPE', `tensor '${name}' is ${record.dtype}; expected F32, F16, BF16 or F8`)
  }
  return Tensor.from(record.data as Float32Array, { shape: record.shape, dtype })
}

/** The tensors for {@link writeSafetensors}: a Map, an array of pairs or an object. */
export type SafetensorsInput =
  | Iterable<readonly [string, Tensor | SafetensorsTensor]>
  | Readonly<Record<string, Tensor | SafetensorsTensor>>

/** Options of {@link writeSafetensors}. */
export interface WriteSafetensorsOptions {
  /** Goes into `__metadata__`; by default `{ format: 'pt' }`, which PEFT and transformers ask for. null: none. */
  metadata?: Readonly<Record<string, string>> | ReadonlyMap<string, string> | null
}

/**
 * Writes a file, byte for byte as the reference implementation does: tensors by descending alignment, then by name;
 * the header padded with spaces to a multiple of 8. The file appears whole or not at all.
 *
 * @throws SparkError ERR_ARGUMENT for a name that cannot be written, ERR_SHAPE for data that do not fit their shape,
 * ERR_IO when the disk is full or the file cannot be written
 */
export async function writeSafetensors(
  file: string,
  tensors: SafetensorsInput,
  options: WriteSafetensorsOptions = {},
): Promise<void> {
  expectText('file', file)
  await writeFileAtomic(path.resolve(file), serializeSafetensors(tensors, options))
}

/** The chunks of a file as {@link writeSafetensors} writes it; tensors are not copied. */
export function serializeSafetensors(
  tensors: SafetensorsInput,
  options: WriteSafetensorsOptions = {},
): Uint8Array[] {
  expectKnownOptions('options', options, ['metadata'])
  const metadata = options.metadata === undefined ? { format: 'pt' } : options.metadata
  const records = entriesOf(tensors).map(toNamedRecord)
  records.sort(compareRecords)
  const fields: string[] = []
  if (metadata !== null) {
    const pairs = metadata instanceof Map ? metadata : Object.entries(metadata)
    const members = Array.from(
      pairs,
      ([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(String(value))}`,
    )
    fields.push(`"__metadata__":{${members.join(',')}}`)
  }
  let offset = 0
  for (const [index, { name, dtype, shape, bytes }] of records.entries()) {
    if (records[index - 1]?.name === name) throw badName(name, 'occurs twice')
    const end = offset + bytes.byteLength
    fields.push(
      `${JSON.stringify(name)}:{"dtype":"${dtype}","shape":[${shape.join(',')}],"data_offsets":[${offset},${end}]}`,
    )
    offset = end
  }
  const json = Buffer.from(`{${fields.join(',')}}`)
  const padded = Math.ceil(json.byteLength / 8) * 8
  if (padded > maxHeaderBytes) {
    throw new SparkError('ERR_ARGUMENT', `a header of ${padded} bytes exceeds the limit of ${maxHeaderBytes}`)
  }
  const head = Buffer.alloc(8 + padded, ' ')
  head.writeBigUInt64LE(BigInt(padded))
  head.set(json, 8)
  return [head, ...records.map(record => record.bytes)]
}

function entriesOf(tensors: SafetensorsInput): readonly (readonly [string, Tensor | SafetensorsTensor])[] {
  expectObject(
    'tensors',
    'a Map, an array of pairs or an object of tensors by name',
    Array.isArray(tensors) ? {} : tensors,
  )
  const entries = [...(Symbol.iterator in tensors ? tensors : Object.entries(tensors))]
  for (const [i, entry] of entries.entries()) {
    const tensor = Array.isArray(entry) ? entry[1] : undefined
    if (
      !Array.isArray(tensor?.shape) ||
      !ArrayBuffer.isView(tensor?.data) ||
      typeof tensor.dtype !== 'string'
    )
      throw argumentError(`tensors[${i}]`, 'a name and a tensor', entry)
  }
  return entries
}

interface NamedRecord {
  name: string
  dtype: SafetensorsDType
  shape: readonly number[]
  bytes: Uint8Array
}

function toNamedRecord([name, tensor]: readonly [string, Tensor | SafetensorsTensor]): NamedRecord {
  if (typeof name !== 'string' || name === '__metadata__') throw badName(name, 'is reserved')
  const dtype = tensor.dtype.toUpperCase() as SafetensorsDType
  const type = safetensorsDTypes[dtype]
  if (!type) throw new SparkError('ERR_DTYPE', `tensor '${name}': '${tensor.dtype}' is no safetensors dtype`)
  const { buffer, byteOffset, byteLength } = tensor.data
  if (elementCount(tensor.shape) * type.bits !== byteLength * 8) {
    throw new SparkError(
      'ERR_SHAPE',
      `tensor '${name}' is ${dtype} [${tensor.shape.join(', ')}] but has ${byteLength} bytes`,
    )
  }
  return { name, dtype, shape: tensor.shape, bytes: new Uint8Array(buffer, byteOffset, byteLength) }
}

function compareRecords(a: NamedRecord, b: NamedRecord): number {
  const rank = safetensorsDTypes[b.dtype].rank - safetensorsDTypes[a.dtype].rank
  return rank || Buffer.compare(Buffer.from(a.name), Buffer.from(b.name))
}

function badName(name: unknown, why: string): SparkError {
  return new SparkError('ERR_ARGUMENT', `the tensor name '${String(name)}' ${why}`)
}
