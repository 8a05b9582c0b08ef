// safetensors-header.ts: the JSON header of a safetensors file, validated completely before any element is read.
import { SparkError } from '../core/errors.js'

/** Bytes a header may have at most, as in the reference implementation. */
export const maxHeaderBytes = 100_000_000

/** Typed array constructors that hold elements of a file. */
type ElementArray =
  | Float64ArrayConstructor
  | Float32ArrayConstructor
  | BigInt64ArrayConstructor
  | BigUint64ArrayConstructor
  | Int32ArrayConstructor
  | Uint32ArrayConstructor
  | Int16ArrayConstructor
  | Uint16ArrayConstructor
  | Int8ArrayConstructor
  | Uint8ArrayConstructor

interface ElementType {
  /** Bits of one element; smaller ones are packed. */
  readonly bits: number
  readonly array: ElementArray
  /** Writers sort tensors by descending rank. */
  readonly rank: number
}

/** Every element type of the format, by ascending alignment. */
export const safetensorsDTypes = {
  BOOL: { bits: 8, array: Uint8Array, rank: 0 },
  F4: { bits: 4, array: Uint8Array, rank: 1 },
  F6_E2M3: { bits: 6, array: Uint8Array, rank: 2 },
  F6_E3M2: { bits: 6, array: Uint8Array, rank: 3 },
  U8: { bits: 8, array: Uint8Array, rank: 4 },
  I8: { bits: 8, array: Int8Array, rank: 5 },
  F8_E5M2: { bits: 8, array: Uint8Array, rank: 6 },
  F8_E4M3: { bits: 8, array: Uint8Array, rank: 7 },
  F8_E8M0: { bits: 8, array: Uint8Array, rank: 8 },
  I16: { bits: 16, array: Int16Array, rank: 9 },
  U16: { bits: 16, array: Uint16Array, rank: 10 },
  F16: { bits: 16, array: Uint16Array, rank: 11 },
  BF16: { bits: 16, array: Uint16Array, rank: 12 },
  I32: { bits: 32, array: Int32Array, rank: 13 },
  U32: { bits: 32, array: Uint32Array, rank: 14 },
  F32: { bits: 32, array: Float32Array, rank: 15 },
  C64: { bits: 64, array: Float32Array, rank: 16 },
  F64: { bits: 64, array: Float64Array, rank: 17 },
  I64: { bits: 64, array: BigInt64Array, rank: 18 },
  U64: { bits: 64, array: BigUint64Array, rank: 19 },
} as const satisfies Record<string, ElementType>

/** Element types of the safetensors format. */
export type SafetensorsDType = keyof typeof safetensorsDTypes

/** The byte range [begin, end) of a tensor after the header. */
export interface TensorEntry {
  readonly dtype: SafetensorsDType
  readonly shape: readonly number[]
  readonly begin: number
  readonly end: number
}

/** A checked header; tensors are in the order of their data and cover it without holes. */
export interface Header {
  readonly tensors: Map<string, TensorEntry>
  readonly metadata: Map<string, string>
}

const pointer = Buffer.from('version https://git-lfs')

/** Throws ERR_FORMAT when `bytes` begin a Git LFS pointer file. */
export function expectNotPointer(label: string, bytes: Uint8Array): void {
  if (pointer.equals(bytes.subarray(0, pointer.byteLength))) {
    throw new SparkError(
      'ERR_FORMAT',
      `${label} is a Git LFS pointer, not the file itself: run 'git lfs pull'`,
    )
  }
}

/**
 * Bytes of the header of a file that begins with `prefix`, of at least 8 bytes, and has `fileBytes`.
 * @throws SparkError ERR_FORMAT
 */
export function headerLength(label: string, prefix: Uint8Array, fileBytes: number): number {
  if (fileBytes < 8) {
    throw new SparkError('ERR_FORMAT', `${label}: ${fileBytes} bytes are too few for a safetensors file`)
  }
  const length = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true)
  if (length > maxHeaderBytes) {
    throw formatError(label, `the header claims ${length} bytes, the limit is ${maxHeaderBytes}`)
  }
  if (Number(length) > fileBytes - 8) {
    throw formatError(
      label,
      `the header claims ${length} bytes, the file has ${fileBytes}: it is truncated or not safetensors`,
    )
  }
  return Number(length)
}

/**
 * Parses and checks a header; `dataBytes` is what follows it.
 * @throws SparkError ERR_FORMAT naming `label` and the tensor
 */
export function parseHeader(label: string, bytes: Uint8Array, dataBytes: number): Header {
  const { text, root } = decodeHeader(label, bytes)
  expectUniqueKeys(label, text)
  const metadata = new Map<string, string>()
  const entries: [string, TensorEntry][] = []
  for (const [name, value] of Object.entries(root)) {
    if (name === '__metadata__') readMetadata(label, value, metadata)
    else entries.push([name, readEntry(label, name, value)])
  }
  entries.sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)
  let covered = 0
  for (const [name, { begin, end }] of entries) {
    if (end > dataBytes) {
      throw formatError(
        label,
        `tensor '${name}' ends at byte ${end}, but the file holds ${dataBytes} bytes of data`,
      )
    }
    if (begin !== covered) {
      const kind = begin < covered ? 'overlaps the one before it' : 'leaves a hole before it'
      throw formatError(label, `tensor '${name}' begins at byte ${begin} instead of ${covered}: it ${kind}`)
    }
    covered = end
  }
  if (covered !== dataBytes) {
    throw formatError(label, `the tensors cover ${covered} of ${dataBytes} bytes of data`)
  }
  return { tensors: new Map(entries), metadata }
}

function decodeHeader(label: string, bytes: Uint8Array): { text: string; root: object } {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    if (text[0] !== '{') throw new SyntaxError("it does not begin with '{'")
    return { text, root: JSON.parse(text) }
  } catch (error) {
    throw formatError(label, `the header is not JSON: ${(error as Error).message}`)
  }
}

function readMetadata(label: string, value: unknown, metadata: Map<string, string>): void {
  if (!isObject(value)) throw formatError(label, '__metadata__ is not an object')
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== 'string') throw formatError(label, `__metadata__ '${key}' is not a string`)
    metadata.set(key, text)
  }
}

function readEntry(label: string, name: string, value: unknown): TensorEntry {
  const fail = (what: string): SparkError => formatError(label, `tensor '${name}' ${what}`)
  if (!isObject(value)) throw fail('is not described by an object')
  const { dtype, shape, data_offsets: offsets } = value
  if (typeof dtype !== 'string' || !Object.hasOwn(safetensorsDTypes, dtype)) {
    throw fail(`has the unknown dtype ${JSON.stringify(dtype)}`)
  }
  if (!isSizes(shape)) throw fail(`has the shape ${JSON.stringify(shape)}, which is not a list of sizes`)
  if (!isSizes(offsets) || offsets.length !== 2 || offsets[0]! > offsets[1]!) {
    throw fail(`has the data_offsets ${JSON.stringify(offsets)}, which are not [begin, end]`)
  }
  const [begin, end] = offsets as [number, number]
  const bits = shape.reduce(
    (product, size) => product * size,
    safetensorsDTypes[dtype as SafetensorsDType].bits,
  )
  if (bits !== (end - begin) * 8) {
    throw fail(`is ${dtype} [${shape.join(', ')}], which does not fit its ${end - begin} bytes`)
  }
  return { dtype: dtype as SafetensorsDType, shape, begin, end }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every(size => Number.isSafeInteger(size) && size >= 0)
}

function formatError(label: string, what: string): SparkError {
  return new SparkError('ERR_FORMAT', `${label}: ${what}`)
}

/** Brackets a header may open inside each other; a tensor needs three. */
const maxDepth = 16

/**
 * Throws for a key that an object of `json` has twice: JSON.parse would keep the last one in silence, and two readers
 * of one file could then see different tensors. `json` is valid.
 */
function expectUniqueKeys(label: string, json: string): void {
  const open: Set<string>[] = []
  for (let i = 0; i < json.length; i++) {
    const char = json[i]
    if (char === '{' || char === '[') open.push(new Set())
    else if (char === '}' || char === ']') open.pop()
    if (open.length > maxDepth) throw formatError(label, `the header is nested deeper than ${maxDepth}`)
    if (char !== '"') continue
    const start = i
    for (i++; json[i] !== '"'; i++) if (json[i] === '\\') i++
    let next = i + 1
    while (json.charCodeAt(next) <= 0x20) next++
    if (json[next] !== ':') continue
    const key = JSON.parse(json.slice(start, i + 1)) as string
    const keys = open[open.length - 1]!
    if (keys.has(key)) throw formatError(label, `the header has the key '${key}' twice`)
    keys.add(key)
  }
}
