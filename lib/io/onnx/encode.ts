// encode.ts: messages to the protobuf wire format, as chunks, so that the bytes of tensors are neither copied nor in
// memory before their turn comes.
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { SparkError } from '../../core/errors.js'
import type { ConstantSource } from '../../graph/constant.js'
import {
  type Field,
  fieldsOf,
  type Message,
  type MessageName,
  messageNames,
  type ScalarName,
} from './messages.js'

/** Bytes that are at hand or are read when they are written. */
export type LazyBytes = Uint8Array | ConstantSource

/** An encoded message. */
export interface Encoded {
  readonly byteLength: number
  readonly chunks: readonly LazyBytes[]
}

/** Bytes of one message at most, as the wire format has it. */
const maxMessageBytes = 2 ** 31 - 1

/** Bytes up to which a part is copied into the chunk around it. */
const maxCopiedBytes = 1 << 14

const fields = Object.fromEntries(messageNames.map(name => [name, fieldsOf(name)])) as Record<
  MessageName,
  Field[]
>

interface Scalar {
  readonly wire: WireType
  write(writer: BinaryWriter, value: never): void
}

const numbers: Record<Exclude<ScalarName, 'string' | 'bytes'>, Scalar> = {
  int32: { wire: WireType.Varint, write: (writer, value: number) => writer.int32(value) },
  int64: { wire: WireType.Varint, write: (writer, value: bigint) => writer.int64(value) },
  uint64: { wire: WireType.Varint, write: (writer, value: bigint) => writer.uint64(value) },
  float: { wire: WireType.Bit32, write: (writer, value: number) => writer.float(Math.fround(value)) },
  double: { wire: WireType.Bit64, write: (writer, value: number) => writer.double(value) },
}

/**
 * Encodes a message; fields that are undefined are left out.
 * @throws SparkError ERR_UNSUPPORTED when it is too large
 */
export function encodeMessage<N extends MessageName>(name: N, message: Message<N, LazyBytes>): Encoded {
  return encode(name, message as Readonly<Record<string, unknown>>)
}

function encode(name: MessageName, message: Readonly<Record<string, unknown>>): Encoded {
  const output = new Output()
  for (const field of fields[name]) {
    const value = message[field.name]
    if (value === undefined) continue
    if (!field.repeated) writeValue(output, field, value)
    else if (isNumber(field.type)) writePacked(output, field, value as readonly never[])
    else for (const element of value as readonly unknown[]) writeValue(output, field, element)
  }
  return output.finish()
}

/** Repeated numbers take one tag for all of them. */
function writePacked(output: Output, { number, type }: Field, values: readonly never[]): void {
  if (values.length === 0) return
  const { write } = numbers[type as keyof typeof numbers]
  const { writer } = output
  writer.tag(number, WireType.LengthDelimited).fork()
  for (const value of values) write(writer, value)
  writer.join()
}

function writeValue(output: Output, { number, type }: Field, value: unknown): void {
  const { writer } = output
  if (isNumber(type)) {
    writer.tag(number, numbers[type].wire)
    numbers[type].write(writer, value as never)
    return
  }
  writer.tag(number, WireType.LengthDelimited)
  if (type === 'string') {
    writer.string(value as string)
  } else if (type === 'bytes') {
    const bytes = value as LazyBytes
    output.append({ byteLength: bytes.byteLength, chunks: [bytes] })
  } else {
    output.append(encode(type as MessageName, value as Readonly<Record<string, unknown>>))
  }
}

function isNumber(type: Field['type']): type is keyof typeof numbers {
  return Object.hasOwn(numbers, type)
}

/** Chunks of a message under construction. */
class Output {
  readonly writer = new BinaryWriter()
  readonly #chunks: LazyBytes[] = []
  #byteLength = 0

  /** Appends a length and as many bytes. */
  append({ byteLength, chunks }: Encoded): void {
    if (byteLength > maxMessageBytes) {
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `a part of ${byteLength} bytes does not fit into an ONNX file, which holds at most ${maxMessageBytes}`,
      )
    }
    this.writer.uint32(byteLength)
    if (byteLength <= maxCopiedBytes && chunks.every(chunk => chunk instanceof Uint8Array)) {
      for (const chunk of chunks) this.writer.raw(chunk)
      return
    }
    this.#flush()
    for (const chunk of chunks) this.#chunks.push(chunk)
    this.#byteLength += byteLength
  }

  finish(): Encoded {
    this.#flush()
    return { byteLength: this.#byteLength, chunks: this.#chunks }
  }

  #flush(): void {
    const bytes = this.writer.finish()
    if (bytes.byteLength > 0) this.#chunks.push(bytes)
    this.#byteLength += bytes.byteLength
  }
}
