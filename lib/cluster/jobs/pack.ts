// pack.ts: values of jobs as bytes: JSON, with the elements of typed arrays behind it.
//
//   length of the JSON u32, little-endian | JSON | elements, each array at a multiple of 8
//
// Equal values have equal bytes: keys of objects are sorted. What JSON lacks is an object with one key: `$array`, `$number`, `$bigint`;
// a key of the value that begins with $ gets another one.
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'

/** What jobs take and give: JSON, and besides it typed arrays, bigints and numbers that are not finite. */
export type JobValue =
  | null
  | undefined
  | boolean
  | number
  | string
  | bigint
  | ArrayBufferView
  | readonly JobValue[]
  | { readonly [key: string]: JobValue }

const arrays = {
  Uint8Array,
  Int8Array,
  Uint8ClampedArray,
  Uint16Array,
  Int16Array,
  Uint32Array,
  Int32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
} as const
type ArrayName = keyof typeof arrays

const maxDepth = 64

/**
 * A value as bytes.
 * @throws SparkError ERR_ARGUMENT for functions, class instances and what is nested too deeply
 */
export function pack(value: JobValue): Buffer {
  const pieces: Uint8Array[] = []
  let at = 0
  const array = (view: ArrayBufferView): unknown => {
    const name = view.constructor.name === 'Buffer' ? 'Uint8Array' : view.constructor.name
    if (!Object.hasOwn(arrays, name)) throw argumentError('a value of a job', 'JSON or a typed array', view)
    const { length } = view as Uint8Array
    pieces.push(new Uint8Array(view.buffer, view.byteOffset, view.byteLength))
    const begin = at
    at += padded(view.byteLength)
    return { $array: [name, begin, length] }
  }
  const plain = (value: JobValue, depth: number): unknown => {
    if (depth > maxDepth) throw argumentError('a value of a job', `nested at most ${maxDepth} deep`, value)
    if (typeof value === 'bigint') return { $bigint: String(value) }
    if (typeof value === 'number')
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { $number: Object.is(value, -0) ? '-0' : String(value) }
    if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
    if (ArrayBuffer.isView(value)) return array(value)
    if (Array.isArray(value)) return value.map(item => plain(item ?? null, depth + 1))
    if (typeof value !== 'object' || ![Object.prototype, null].includes(Object.getPrototypeOf(value)))
      throw argumentError('a value of a job', 'JSON or a typed array', value)
    const entries = Object.entries(value as Record<string, JobValue>)
      .filter(([, item]) => item !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1))
    return Object.fromEntries(
      entries.map(([key, item]) => [key.startsWith('$') ? `$${key}` : key, plain(item, depth + 1)]),
    )
  }
  const json = Buffer.from(JSON.stringify(plain(value ?? null, 0)))
  const start = padded(4 + json.length)
  const bytes = Buffer.alloc(start + at)
  bytes.writeUInt32LE(json.length)
  json.copy(bytes, 4)
  let to = start
  for (const piece of pieces) {
    bytes.set(piece, to)
    to += padded(piece.byteLength)
  }
  return bytes
}

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8

/**
 * The value of bytes that {@link pack} made; they may come from anywhere.
 * @throws SparkError ERR_FORMAT
 */
export function unpack(bytes: Uint8Array): JobValue {
  const { buffer, byteOffset, byteLength } = bytes
  const view = new DataView(buffer, byteOffset, byteLength)
  const length = byteLength < 4 ? Number.NaN : view.getUint32(0, true)
  if (!(4 + length <= byteLength)) throw formatError('they end within their JSON')
  const start = padded(4 + length)
  let left = byteLength - start
  const array = (given: unknown): ArrayBufferView => {
    const [name, begin, count] = Array.isArray(given) ? given : []
    if (typeof name !== 'string' || !Object.hasOwn(arrays, name))
      throw formatError('they have an unknown array')
    const type = arrays[name as ArrayName]
    const isPlace = [begin, count].every(number => Number.isSafeInteger(number) && number >= 0)
    const end = start + begin + count * type.BYTES_PER_ELEMENT
    if (!isPlace || begin % 8 !== 0 || end > byteLength) throw formatError('an array lies beyond their end')
    left -= count * type.BYTES_PER_ELEMENT
    if (left < 0) throw formatError('arrays lie in one another')
    return new type(buffer.slice(byteOffset + start + begin, byteOffset + end) as ArrayBuffer)
  }
  const value = (given: unknown, depth: number): JobValue => {
    if (depth > maxDepth) throw formatError('they are nested too deeply')
    if (Array.isArray(given)) return given.map(item => value(item, depth + 1))
    if (typeof given !== 'object' || given === null) return given as JobValue
    const entries = Object.entries(given)
    const [[key, only] = ['', undefined]] = entries
    if (entries.length === 1 && key === '$array') return array(only)
    if (entries.length === 1 && key === '$number') return Number(only)
    if (entries.length === 1 && key === '$bigint') return bigint(only)
    return Object.fromEntries(
      entries.map(([name, item]) => [name.startsWith('$') ? name.slice(1) : name, value(item, depth + 1)]),
    )
  }
  try {
    return value(JSON.parse(Buffer.from(buffer, byteOffset + 4, length).toString()), 0)
  } catch (error) {
    throw error instanceof SparkError ? error : formatError('their JSON cannot be read')
  }
}

function bigint(text: unknown): bigint {
  if (typeof text !== 'string' || !/^-?\d{1,1000}$/.test(text)) throw formatError('they have no integer')
  return BigInt(text)
}

const formatError = (why: string): SparkError =>
  new SparkError('ERR_FORMAT', `the bytes of a job or its result are damaged: ${why}`)
