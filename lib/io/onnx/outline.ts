// outline.ts: the bytes of an ONNX file without the elements of its large tensors, which stay in the file.
import type { Pacer } from '../../core/paced.js'
import type { KeptFile } from '../kept-file.js'
import { type Field, fieldsOf, type MessageName, messageNames } from './messages.js'

/** A part of a file. */
export interface FileRange {
  readonly begin: number
  readonly byteLength: number
}

/** An ONNX file without the elements of its large tensors. */
export interface Outline {
  /** A model whose large tensors have one byte in the place of their raw elements. */
  readonly bytes: Uint8Array
  /** The elements that such a byte stands for, by its index. */
  readonly left: ReadonlyMap<number, FileRange>
}

/** What the bytes of an outline are made of. */
type Part = FileRange | Uint8Array | { readonly left: FileRange }

/** Messages lie inside each other this deep where tensors are left out; deeper ones are read whole. */
const maxDepth = 20

/** Bytes that are read at once while fields are looked for. */
const windowBytes = 1 << 18

/** Bytes that the number and the length of a field take at most. */
const maxHeadBytes = 20

/** The messages that tensors may be in, with what is in them by field number. */
const fields = new Map(
  messageNames.map(name => [name, new Map(fieldsOf(name).map(field => [field.number, field]))]),
)

/**
 * Reads an ONNX file without the raw elements of tensors that have at least `minBytes`. What is broken stays as it is: the
 * decoder of the outline says so.
 * @throws SparkError ERR_IO, ERR_FORMAT when the file changes meanwhile, ERR_OUT_OF_MEMORY
 */
export async function readOutline(file: KeptFile, minBytes: number, pacer: Pacer): Promise<Outline> {
  const whole = { begin: 0, byteLength: file.byteLength }
  const parts = await new Scanner(file, minBytes, pacer).partsOf('Model', whole, 0)
  return join(file, parts ?? [whole])
}

/** Finds the tensors of a file. */
class Scanner {
  readonly #file: KeptFile
  readonly #minBytes: number
  readonly #pacer: Pacer
  #window: Uint8Array = new Uint8Array(0)
  #begin = 0

  constructor(file: KeptFile, minBytes: number, pacer: Pacer) {
    this.#file = file
    this.#minBytes = minBytes
    this.#pacer = pacer
  }

  /** The parts of a message; undefined when nothing is left out. */
  async partsOf(message: MessageName, range: FileRange, depth: number): Promise<Part[] | undefined> {
    const end = range.begin + range.byteLength
    const parts: Part[] = []
    let copied = range.begin
    for (let at = range.begin; at < end; ) {
      if (!this.#has(at, end)) await this.#move(at)
      const head = readHead(this.#window.subarray(at - this.#begin), end - at)
      if (!head) break
      const body = { begin: at + head.bytes, byteLength: head.bodyBytes }
      const field = head.isDelimited ? fields.get(message)!.get(head.number) : undefined
      const inner =
        field && body.byteLength >= this.#minBytes ? await this.#inner(field, body, depth) : undefined
      if (inner) {
        parts.push({ begin: copied, byteLength: at + head.tagBytes - copied })
        parts.push(varint(bytesOf(inner)), ...inner)
        copied = body.begin + body.byteLength
      }
      at = body.begin + body.byteLength
    }
    if (parts.length === 0) return undefined
    return [...parts, { begin: copied, byteLength: end - copied }]
  }

  async #inner({ name, type }: Field, body: FileRange, depth: number): Promise<Part[] | undefined> {
    if (name === 'rawData' && type === 'bytes') return [{ left: body }]
    return fields.has(type as MessageName) && depth < maxDepth
      ? this.partsOf(type as MessageName, body, depth + 1)
      : undefined
  }

  /** Whether the window has the head of a field. */
  #has(at: number, end: number): boolean {
    const wanted = Math.min(at + maxHeadBytes, end)
    return at >= this.#begin && wanted <= this.#begin + this.#window.byteLength
  }

  async #move(at: number): Promise<void> {
    await this.#pacer.pause()
    this.#window = await this.#file.load(at, Math.min(windowBytes, this.#file.byteLength - at))
    this.#begin = at
  }
}

/** What is before the content of a field. */
interface Head {
  readonly number: number
  readonly isDelimited: boolean
  /** Bytes of the number and the wire type. */
  readonly tagBytes: number
  /** Bytes before the content. */
  readonly bytes: number
  /** Bytes of the content. */
  readonly bodyBytes: number
}

/** The head of the field at the start of some bytes; undefined when it is none, or has more than `limit` bytes with its content. */
function readHead(bytes: Uint8Array, limit: number): Head | undefined {
  const tag = readVarint(bytes, 0)
  if (!tag) return undefined
  const [wire, number] = [tag.value % 8, Math.floor(tag.value / 8)]
  const next = readVarint(bytes, tag.end)
  const sizes: Readonly<Record<number, [head: number, body: number] | undefined>> = {
    0: next && [tag.end, next.end - tag.end],
    1: [tag.end, 8],
    2: next && [next.end, next.value],
    5: [tag.end, 4],
  }
  const [head, bodyBytes] = sizes[wire] ?? []
  if (head === undefined || bodyBytes === undefined || head + bodyBytes > limit) return undefined
  return { number, isDelimited: wire === 2, tagBytes: tag.end, bytes: head, bodyBytes }
}

/** An integer of the wire format, exact up to 2^53; undefined when it does not end. */
function readVarint(bytes: Uint8Array, begin: number): { value: number; end: number } | undefined {
  let value = 0
  for (let i = begin; i < Math.min(bytes.byteLength, begin + 10); i++) {
    value += (bytes[i]! & 0x7f) * 2 ** (7 * (i - begin))
    if (bytes[i]! < 0x80) return { value, end: i + 1 }
  }
  return undefined
}

function varint(value: number): Uint8Array {
  const bytes: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Uint8Array.from([...bytes, rest])
    bytes.push((rest % 128) + 128)
  }
}

/** Bytes that parts have in an outline: those that are left out have a length and one byte. */
const bytesOf = (parts: readonly Part[]): number => parts.reduce((sum, part) => sum + lengthOf(part), 0)

const lengthOf = (part: Part): number => ('left' in part ? 1 : part.byteLength)

async function join(file: KeptFile, parts: readonly Part[]): Promise<Outline> {
  const bytes = new Uint8Array(bytesOf(parts))
  const left = new Map<number, FileRange>()
  let at = 0
  for (const part of parts) {
    if ('left' in part) left.set(at, part.left)
    else if (part instanceof Uint8Array) bytes.set(part, at)
    else if (part.byteLength > 0) bytes.set(await file.load(part.begin, part.byteLength), at)
    at += lengthOf(part)
  }
  return { bytes, left }
}
