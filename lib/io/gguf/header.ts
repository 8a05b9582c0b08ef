// header.ts: the header of a GGUF file, checked completely before any element is read: "GGUF", version (u32), numbers of
// tensors and of keys (u64), keys with their values, tensors with name, sizes, type and offset; then, aligned, the elements.
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { type BlockFormat, blockBytes, blockFormatOf, blockFormats } from '../../weights/blocks/formats.js'
import { Incomplete, Prefix } from './prefix.js'
import type { GgufValue } from './values.js'

/** Where a tensor is in its file. */
export interface TensorInfo {
  readonly name: string
  readonly format: BlockFormat
  /** Sizes of the dimensions, outermost first. */
  readonly shape: readonly number[]
  /** First byte, counted from the start of the file. */
  readonly begin: number
  readonly byteLength: number
}

/** A checked header. */
export interface Header {
  readonly version: number
  readonly alignment: number
  readonly metadata: Map<string, GgufValue>
  /** In the order of the file. */
  readonly tensors: readonly TensorInfo[]
}

/** What the elements begin at a multiple of, where the file names nothing else. */
export const defaultAlignment = 32

/** Dimensions a tensor may have at most. */
export const maxDimensions = 4

/** Bytes that a key, or a tensor, takes at least. */
const minKeyBytes = 8 + 1 + 4 + 1
const minTensorBytes = 8 + 1 + 4 + 4 + 8

/** A tensor as its file describes it, before the end of the header is known. */
interface RawTensor extends Omit<TensorInfo, 'begin'> {
  readonly offset: number
}

/** Parses a header as far as the bytes that are there go, and goes on when there are more. */
export class HeaderParser {
  readonly #label: string
  readonly #fileBytes: number
  readonly #metadata = new Map<string, GgufValue>()
  readonly #tensors: RawTensor[] = []
  readonly #names = new Set<string>()
  #start: { version: number; tensors: number; keys: number } | undefined
  #position = 0

  /** @param fileBytes - bytes of the whole file */
  constructor(label: string, fileBytes: number) {
    this.#label = label
    this.#fileBytes = fileBytes
  }

  /**
   * Goes on with the first bytes of the file.
   * @returns the header, or how many bytes it needs at least
   * @throws SparkError ERR_FORMAT naming the file and the key or tensor; ERR_UNSUPPORTED for a version that is not read
   */
  parse(bytes: Uint8Array): Header | number {
    const prefix = new Prefix(this.#label, bytes, this.#fileBytes)
    try {
      for (;;) {
        prefix.position = this.#position
        const isDone = this.#next(prefix)
        if (isDone) return this.#finished()
        this.#position = prefix.position
      }
    } catch (error) {
      if (error instanceof Incomplete) return error.bytes
      throw error
    }
  }

  /** Reads one more part; gives whether it was all. */
  #next(prefix: Prefix): boolean {
    if (!this.#start) {
      this.#start = this.#readStart(prefix)
      return false
    }
    const { keys, tensors } = this.#start
    if (this.#metadata.size < keys) {
      const key = this.#name(prefix, `key ${this.#metadata.size + 1} of ${keys}`)
      if (this.#metadata.has(key)) throw this.#error(`key '${key}' is there twice`)
      this.#metadata.set(key, prefix.value(`key '${key}'`))
      return false
    }
    if (this.#tensors.length < tensors) {
      this.#tensors.push(this.#readTensor(prefix, `tensor ${this.#tensors.length + 1} of ${tensors}`))
      return false
    }
    return true
  }

  #readStart(prefix: Prefix): { version: number; tensors: number; keys: number } {
    prefix.expectMagic()
    const version = prefix.u32('the version')
    if (version > 0 && version % 0x10000 === 0)
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${this.#label} is big-endian; only little-endian files are read`,
      )
    if (version !== 2 && version !== 3)
      throw new SparkError('ERR_UNSUPPORTED', `${this.#label} has GGUF version ${version}; 2 and 3 are read`)
    const tensors = prefix.u64('the number of tensors')
    const keys = prefix.u64('the number of keys')
    const rest = this.#fileBytes - prefix.position
    if (keys * minKeyBytes + tensors * minTensorBytes > rest) {
      throw this.#error(`${keys} keys and ${tensors} tensors do not fit in the ${rest} bytes after its start`)
    }
    return { version, tensors, keys }
  }

  #name(prefix: Prefix, which: string): string {
    const name = prefix.text(`the name of ${which}`)
    if (name === '') throw this.#error(`${which} has no name`)
    return name
  }

  #readTensor(prefix: Prefix, which: string): RawTensor {
    const name = this.#name(prefix, which)
    const what = `tensor '${name}'`
    if (this.#names.has(name)) throw this.#error(`${what} is there twice`)
    const rank = prefix.u32(what)
    if (rank > maxDimensions)
      throw this.#error(`${what} has ${rank} dimensions; the limit is ${maxDimensions}`)
    const shape = Array.from({ length: rank }, () => prefix.u64(what)).reverse()
    const id = prefix.u32(what)
    const format = blockFormatOf(id)
    if (!format)
      throw this.#error(
        `${what} has type ${id}, which is none of GGUF, or one that is newer than this library`,
      )
    const offset = prefix.u64(what)
    const { elements } = blockFormats[format]
    const cols = shape.at(-1) ?? 1
    if (cols % elements !== 0)
      throw this.#error(
        `${what} is ${format} with rows of ${cols} elements, which are no blocks of ${elements}`,
      )
    const count = numel(shape)
    const byteLength = blockBytes(format, count)
    if (!Number.isSafeInteger(count) || byteLength > this.#fileBytes)
      throw this.#error(
        `${what} is ${format} [${shape.join(', ')}], more than the ${this.#fileBytes} bytes of the file`,
      )
    this.#names.add(name)
    return { name, format, shape, offset, byteLength }
  }

  #finished(): Header {
    const { version } = this.#start!
    const alignment = this.#alignment()
    const start = Math.ceil(this.#position / alignment) * alignment
    const dataBytes = Math.max(0, this.#fileBytes - start)
    for (const { name, offset, byteLength } of this.#tensors) {
      const what = `tensor '${name}'`
      if (offset % alignment !== 0)
        throw this.#error(
          `${what} is at byte ${offset} of the data, which is no multiple of the alignment, ${alignment}`,
        )
      if (offset + byteLength > dataBytes) {
        const end = `ends at byte ${offset + byteLength} of the data, but the file has ${dataBytes} of them`
        throw this.#error(`${what} ${end}: it is truncated`)
      }
    }
    this.#expectApart()
    const tensors = this.#tensors.map(({ offset, ...tensor }) => ({ ...tensor, begin: start + offset }))
    return { version, alignment, metadata: this.#metadata, tensors }
  }

  #alignment(): number {
    const found = this.#metadata.get('general.alignment')
    if (!found) return defaultAlignment
    const { type, value } = found
    if (type === 'u32' && value > 0 && (value & (value - 1)) === 0) return value
    throw this.#error(`general.alignment must be a power of two of type u32, got ${type} ${value}`)
  }

  #expectApart(): void {
    const sorted = this.#tensors
      .filter(({ byteLength }) => byteLength > 0)
      .sort((a, b) => a.offset - b.offset)
    for (const [i, { name, offset }] of sorted.entries()) {
      const before = sorted[i - 1]
      if (before && before.offset + before.byteLength > offset)
        throw this.#error(`tensors '${before.name}' and '${name}' overlap at byte ${offset} of the data`)
    }
  }

  #error(what: string): SparkError {
    return new SparkError('ERR_FORMAT', `${this.#label}: ${what}`)
  }
}
