// messages.ts: words and tensors by name, as the frames of one message.
//
//   first frame   u32 length of the head, little-endian | head, JSON | bytes of the tensors …
//   next frames   … with the same id, until all bytes that the head tells of are there
import { arrayBytes, type ElementType, elementArrayOf, elementBits } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { Tensor } from '../../memory/tensor.js'

/** Tensors by name. */
export type NamedTensors = Readonly<Record<string, Tensor<ElementType>>>

/** What one node tells the other. */
export interface Message {
  /** JSON. */
  readonly words: Readonly<Record<string, unknown>>
  readonly tensors: NamedTensors
}

interface Head {
  readonly words: Message['words']
  readonly tensors: readonly (readonly [name: string, dtype: ElementType, shape: readonly number[]])[]
}

const frameBytes = 1 << 20
const maxHeadBytes = 32 << 20
const maxTensors = 4096
const maxDimensions = 64
/** Bytes of the tensors of a message. */
const maxMessageBytes = 2 ** 32

/**
 * The payloads of the frames of a message.
 * @throws SparkError ERR_UNSUPPORTED for strings, ERR_RANGE for what is too long
 */
export function* encodeMessage({ words, tensors }: Message): Generator<Uint8Array> {
  const named = Object.entries(tensors)
  const text = named.find(([, { dtype }]) => dtype === 'string')
  if (text) throw new SparkError('ERR_UNSUPPORTED', `${text[0]} has strings, which stay on their node`)
  const head: Head = { words, tensors: named.map(([name, { dtype, shape }]) => [name, dtype, shape]) }
  const json = Buffer.from(JSON.stringify(head))
  const bodies = named.map(([, { data }]) => {
    const { buffer, byteOffset, byteLength } = data as Uint8Array
    return Buffer.from(buffer, byteOffset, byteLength)
  })
  const total = bodies.reduce((sum, { length }) => sum + length, 0)
  if (json.length > maxHeadBytes || total > maxMessageBytes || named.length > maxTensors)
    throw new SparkError(
      'ERR_RANGE',
      `a message of ${named.length} tensors, ${total} bytes, is more than ${maxTensors} or ${maxMessageBytes}`,
    )
  const length = Buffer.alloc(4)
  length.writeUInt32LE(json.length)
  let parts: Buffer[] = [length, json]
  let left = frameBytes - json.length - 4
  for (const body of bodies) {
    for (let at = 0; at < body.length; ) {
      if (left <= 0) {
        yield Buffer.concat(parts)
        ;[parts, left] = [[], frameBytes]
      }
      const piece = body.subarray(at, at + left)
      parts.push(piece)
      at += piece.length
      left -= piece.length
    }
  }
  yield Buffer.concat(parts)
}

/** A message of which frames are still to come. */
export class PartialMessage {
  readonly #words: Message['words']
  readonly #tensors: [string, Tensor<ElementType>, Uint8Array][]
  #tensor = 0
  #filled = 0

  /** @throws SparkError ERR_FORMAT for what no node of ours sends; nothing is allocated then */
  constructor(first: Uint8Array) {
    const bytes = Buffer.from(first.buffer, first.byteOffset, first.byteLength)
    const length = bytes.length >= 4 ? bytes.readUInt32LE(0) : Infinity
    if (length > maxHeadBytes || length + 4 > bytes.length) throw wrong('no head')
    const head = readHead(bytes.toString('utf8', 4, 4 + length))
    this.#words = head.words
    this.#tensors = head.tensors.map(([name, dtype, shape]) => {
      const data = new (elementArrayOf(dtype))(shape.reduce((product, size) => product * size, 1))
      const view = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
      return [name, Tensor.of(data as never, shape, dtype), view]
    })
    this.add(bytes.subarray(4 + length))
  }

  /** Takes the bytes of a frame. @throws SparkError ERR_FORMAT where there are more than the head told of */
  add(bytes: Uint8Array): void {
    let at = 0
    this.#skipFull()
    while (at < bytes.length) {
      const [, , view] = this.#tensors[this.#tensor] ?? []
      if (!view) throw wrong('more bytes than its tensors')
      const piece = bytes.subarray(at, at + view.length - this.#filled)
      view.set(piece, this.#filled)
      this.#filled += piece.length
      at += piece.length
      this.#skipFull()
    }
  }

  /** The message, once all of it is there. */
  get whole(): Message | undefined {
    if (this.#tensor < this.#tensors.length) return undefined
    return {
      words: this.#words,
      tensors: Object.fromEntries(this.#tensors.map(([name, tensor]) => [name, tensor])),
    }
  }

  #skipFull(): void {
    while (this.#tensors[this.#tensor]?.[2].length === this.#filled) {
      this.#tensor++
      this.#filled = 0
    }
  }
}

const wrong = (what: string): SparkError => new SparkError('ERR_FORMAT', `a message of stages has ${what}`)

const isTensorType = (dtype: unknown): dtype is ElementType =>
  typeof dtype === 'string' && Object.hasOwn(elementBits, dtype) && dtype !== 'string'

function readHead(text: string): Head {
  let head: Partial<Head> | null = null
  try {
    head = JSON.parse(text)
  } catch {}
  const { words, tensors } = head ?? {}
  if (typeof words !== 'object' || words === null || !Array.isArray(tensors)) throw wrong('a head of no use')
  if (tensors.length > maxTensors) throw wrong(`${tensors.length} tensors`)
  let total = 0
  for (const entry of tensors) {
    const [name, dtype, shape] = Array.isArray(entry) ? entry : []
    const isTensor =
      typeof name === 'string' &&
      isTensorType(dtype) &&
      Array.isArray(shape) &&
      shape.length <= maxDimensions &&
      shape.every(size => Number.isSafeInteger(size) && size >= 0)
    if (!isTensor) throw wrong('a tensor without name, type or shape')
    total += arrayBytes(
      dtype,
      shape.reduce((product, size) => product * size, 1),
    )
    if (!(total <= maxMessageBytes)) throw wrong(`tensors of ${total} bytes`)
  }
  return { words, tensors }
}
