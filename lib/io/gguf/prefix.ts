// prefix.ts: numbers, strings and metadata values in the first bytes of a GGUF file.
import { SparkError } from '../../core/errors.js'
import { expectNotPointer } from '../safetensors-header.js'
import {
  arrayId,
  arraysOf,
  type GgufArray,
  type GgufValue,
  scalarOf,
  scalarTypes,
  stringId,
} from './values.js'

/** There are fewer bytes than the part that is read needs; the file has them. */
export class Incomplete extends Error {
  /** How many of the first bytes of the file are needed at least. */
  readonly bytes: number

  constructor(bytes: number) {
    super(`${bytes} bytes are needed`)
    this.bytes = bytes
  }
}

/**
 * The first bytes of a file, and a position in them. `what` says in errors what is read. Its methods throw
 * {@link Incomplete} where the file goes on, and ERR_FORMAT where it ends.
 */
export class Prefix {
  /** The next byte. */
  position = 0
  readonly #label: string
  readonly #bytes: Buffer
  readonly #fileBytes: number

  /** @param fileBytes - bytes of the whole file */
  constructor(label: string, bytes: Uint8Array, fileBytes: number) {
    this.#label = label
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#fileBytes = fileBytes
  }

  /** Passes over bytes and gives where they begin. */
  #take(count: number, what: string): number {
    const begin = this.position
    const end = begin + count
    if (end > this.#fileBytes) {
      const ends = `${what} ends at byte ${end}, but the file has ${this.#fileBytes} bytes`
      throw this.error(`${ends}: it is truncated or no GGUF file`)
    }
    if (end > this.#bytes.length) throw new Incomplete(end)
    this.position = end
    return begin
  }

  expectMagic(): void {
    if (this.#fileBytes < 4) throw this.error(`${this.#fileBytes} bytes are too few for a GGUF file`)
    expectNotPointer(this.#label, this.#bytes)
    const begin = this.#take(4, 'the start')
    const magic = this.#bytes.toString('latin1', begin, begin + 4)
    if (magic !== 'GGUF') throw this.error(`it begins with '${magic}', not with 'GGUF'`)
  }

  u32(what: string): number {
    return this.#bytes.readUInt32LE(this.#take(4, what))
  }

  u64(what: string): number {
    const value = this.#bytes.readBigUInt64LE(this.#take(8, what))
    if (value > Number.MAX_SAFE_INTEGER) throw this.error(`${what}: ${value} is too large`)
    return Number(value)
  }

  text(what: string): string {
    const length = this.u64(what)
    const begin = this.#take(length, what)
    return this.#bytes.toString('utf8', begin, begin + length)
  }

  value(what: string): GgufValue {
    const id = this.u32(what)
    if (id === stringId) return { type: 'string', value: this.text(what) }
    if (id === arrayId) return this.#array(what)
    const type = scalarOf(id)
    if (!type) throw this.error(`${what} has type ${id}; GGUF has the types 0 to 12`)
    const at = this.#take(scalarTypes[type].bytes, what)
    if (type === 'bool') return { type, value: this.#flag(at, what) }
    const { buffer, byteOffset } = this.#bytes
    const bytes = new Uint8Array(buffer, byteOffset + at, scalarTypes[type].bytes)
    return { type, value: new arraysOf[type](bytes.slice().buffer)[0] } as GgufValue
  }

  #flag(at: number, what: string): boolean {
    const byte = this.#bytes[at]!
    if (byte > 1) throw this.error(`${what} is a bool of ${byte}; expected 0 or 1`)
    return byte === 1
  }

  #array(what: string): GgufArray {
    const id = this.u32(what)
    const count = this.u64(what)
    if (id === arrayId) throw this.error(`${what} is an array of arrays, which nobody reads`)
    if (id === stringId) return { type: 'array', of: 'string', value: this.#texts(count, what) }
    const of = scalarOf(id)
    if (!of) throw this.error(`${what} is an array of type ${id}; GGUF has the types 0 to 12`)
    const byteLength = count * scalarTypes[of].bytes
    const begin = this.#take(byteLength, what)
    if (of === 'bool')
      return {
        type: 'array',
        of,
        value: Array.from({ length: count }, (_, i) => this.#flag(begin + i, what)),
      }
    // Copied, so that the values neither keep the header in memory nor need be aligned.
    const bytes = Uint8Array.prototype.slice.call(this.#bytes, begin, begin + byteLength)
    return { type: 'array', of, value: new arraysOf[of](bytes.buffer) } as GgufArray
  }

  /** Vocabularies have 10^5 and more of them. */
  #texts(count: number, what: string): string[] {
    const begin = this.position
    if (count * 8 > this.#fileBytes - begin)
      throw this.error(`${what} has ${count} strings, more than the file has bytes for`)
    const bytes = this.#bytes
    const end = bytes.length
    const texts: string[] = []
    let at = begin
    for (let i = 0; i < count; i++) {
      const start = at + 8
      // The high half of a length is 0; where it is not, or bytes are missing, the careful way says what is wrong.
      const length = start <= end && bytes.readUInt32LE(at + 4) === 0 ? bytes.readUInt32LE(at) : -1
      if (length < 0 || start + length > end) {
        this.position = at
        this.text(`string ${i + 1} of ${what}`)
        throw new Incomplete(end + 1)
      }
      at = start + length
      texts.push(bytes.toString('utf8', start, at))
    }
    this.position = at
    return texts
  }

  error(what: string): SparkError {
    return new SparkError('ERR_FORMAT', `${this.#label}: ${what}`)
  }
}
