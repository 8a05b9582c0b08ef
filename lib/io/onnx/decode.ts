// decode.ts: decoder of the protobuf wire format to the messages of messages.ts. Bytes are views, not copies.
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced } from '../../core/paced.js'
import {
  type Field,
  fieldsOf,
  type Message,
  type MessageName,
  messageNames,
  type ScalarName,
} from './messages.js'

/** Messages may lie inside each other this deep: a subgraph takes three levels, a tensor in it two. */
const maxDepth = 200

/** The fields of each message by number. */
const fields = Object.fromEntries(
  messageNames.map(name => [name, new Map(fieldsOf(name).map(field => [field.number, field]))]),
) as Record<MessageName, Map<number, Field>>

/** Wire type and reader of each scalar type. */
const scalars: Record<ScalarName, { wire: WireType; read(reader: BinaryReader): unknown }> = {
  int32: { wire: WireType.Varint, read: reader => reader.int32() },
  int64: { wire: WireType.Varint, read: reader => BigInt(reader.int64()) },
  uint64: { wire: WireType.Varint, read: reader => BigInt(reader.uint64()) },
  float: { wire: WireType.Bit32, read: reader => reader.float() },
  double: { wire: WireType.Bit64, read: reader => reader.double() },
  string: { wire: WireType.LengthDelimited, read: reader => reader.string(true) },
  bytes: { wire: WireType.LengthDelimited, read: reader => reader.bytes() },
}

/** Where in the file a message is: a field of another message, and which of several. */
interface FieldPath {
  readonly parent: FieldPath | undefined
  readonly field: string
  readonly index: number | undefined
}

/**
 * Decodes a message; unknown fields are skipped.
 * @param label - names the file in errors
 * @throws SparkError ERR_FORMAT naming the field that cannot be read
 */
export function decodeMessage<N extends MessageName>(
  label: string,
  message: N,
  bytes: Uint8Array,
): Message<N> {
  return atOnce(decodeMessagePaced(label, message, bytes))
}

/** {@link decodeMessage}, with a pause in each message. */
export function* decodeMessagePaced<N extends MessageName>(
  label: string,
  message: N,
  bytes: Uint8Array,
): Paced<Message<N>> {
  const root = { parent: undefined, field: message, index: undefined }
  return (yield* decode(label, message, bytes, root, 0)) as Message<N>
}

function* decode(
  label: string,
  message: MessageName,
  bytes: Uint8Array,
  path: FieldPath,
  depth: number,
): Paced<object> {
  if (depth > maxDepth) {
    throw new SparkError('ERR_FORMAT', `${label}: messages lie inside each other deeper than ${maxDepth}`)
  }
  const result: Record<string, unknown> = {}
  const reader = new BinaryReader(bytes)
  const inner = (field: string, index: number | undefined) => (type: MessageName, content: Uint8Array) =>
    decode(label, type, content, { parent: path, field, index }, depth + 1)
  let at = ''
  try {
    while (reader.pos < reader.len) {
      const [number, wire] = reader.tag()
      const field = fields[message].get(number)
      at = field?.name ?? `field ${number}`
      if (!field) {
        reader.skip(wire, number)
      } else if (field.repeated) {
        if (!Object.hasOwn(result, at)) result[at] = []
        const list = result[at] as unknown[]
        yield* readRepeated(reader, field, wire, list, inner(at, list.length))
      } else {
        result[at] = yield* readOne(reader, field.type, wire, inner(at, undefined))
      }
    }
    yield
    if (reader.pos > reader.len) throw new RangeError('it goes on after the end')
  } catch (error) {
    if (error instanceof SparkError) throw error
    const where = at === '' ? render(path) : `${render(path)}.${at}`
    const why = noField.test((error as Error).message) ? 'these bytes are no field' : (error as Error).message
    throw new SparkError(
      'ERR_FORMAT',
      `${label}: ${where} cannot be read (${why}): the file is truncated or no ONNX model`,
      { cause: error },
    )
  }
  return result
}

/** What the reader says of bytes that no writer makes. */
const noField = /cant skip|illegal tag/

/** Packed elements between two pauses. */
const pausedElements = 4096

/** Reads a nested message. */
type ReadMessage = (type: MessageName, content: Uint8Array) => Paced<object>

function* readRepeated(
  reader: BinaryReader,
  { type }: Field,
  wire: WireType,
  list: unknown[],
  readMessage: ReadMessage,
): Paced<void> {
  const packed = wire === WireType.LengthDelimited && isScalar(type) && scalars[type].wire !== wire
  if (!packed) {
    list.push(yield* readOne(reader, type, wire, readMessage))
    return
  }
  const content = new BinaryReader(reader.bytes())
  const { read } = scalars[type]
  while (content.pos < content.len) {
    list.push(read(content))
    if (list.length % pausedElements === 0) yield
  }
}

function* readOne(
  reader: BinaryReader,
  type: Field['type'],
  wire: WireType,
  readMessage: ReadMessage,
): Paced<unknown> {
  const expected = isScalar(type) ? scalars[type].wire : WireType.LengthDelimited
  if (wire !== expected) throw new RangeError(`its wire type is ${wire} instead of ${expected}`)
  return isScalar(type) ? scalars[type].read(reader) : yield* readMessage(type, reader.bytes())
}

function isScalar(type: Field['type']): type is ScalarName {
  return Object.hasOwn(scalars, type)
}

function render({ parent, field, index }: FieldPath): string {
  return `${parent ? `${render(parent)}.` : ''}${field}${index === undefined ? '' : `[${index}]`}`
}
