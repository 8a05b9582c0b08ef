// file.ts: what a GGUF file holds. Elements are read when somebody asks for them.
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { decodePaced } from '../../weights/blocks/decode.js'
import type { BlockFormat } from '../../weights/blocks/formats.js'
import type { FilePart } from '../../weights/file-parts.js'
import type { KeptFile } from '../kept-file.js'
import type { Header, TensorInfo } from './header.js'
import type { GgufValue } from './values.js'

/** Where the bytes of a file are. */
export type GgufBytes = KeptFile | Uint8Array

/**
 * A tensor of a GGUF file. Its elements are read each time anew, unless the file was given as bytes.
 * @example
 * const { tensors } = await readGguf('model.gguf')
 * const norm = tensors.get('output_norm.weight')
 * console.log(norm?.format, norm?.shape, await norm?.values())
 */
export class GgufTensor {
  /** Its name, such as `blk.0.attn_q.weight`. */
  readonly name: string
  /** How its elements are stored. */
  readonly format: BlockFormat
  /** Sizes of the dimensions, outermost first: [out features, in features] of a matrix. The file has them reversed. */
  readonly shape: readonly number[]
  /** Elements. */
  readonly count: number
  /** Bytes of the elements in the file. */
  readonly byteLength: number
  /**
   * Whether reading costs nothing.
   * @internal
   */
  readonly inMemory: boolean
  readonly #bytes: GgufBytes
  readonly #begin: number

  /** @internal */
  constructor({ name, format, shape, begin, byteLength }: TensorInfo, bytes: GgufBytes) {
    this.name = name
    this.format = format
    this.shape = Object.freeze(shape)
    this.count = numel(shape)
    this.byteLength = byteLength
    this.inMemory = bytes instanceof Uint8Array
    this.#bytes = bytes
    this.#begin = begin
  }

  /**
   * Where in its file the elements are; nowhere for a file that was given as bytes.
   * @internal
   */
  get fileParts(): readonly FilePart[] {
    if (this.#bytes instanceof Uint8Array) return []
    return [{ file: this.#bytes.path, begin: this.#begin, byteLength: this.byteLength }]
  }

  /**
   * The elements as they are stored: blocks of the format, row after row.
   * @throws SparkError ERR_FORMAT when the file has changed since, ERR_IO, ERR_OUT_OF_MEMORY
   */
  read(): Uint8Array {
    if (this.#bytes instanceof Uint8Array)
      return this.#bytes.subarray(this.#begin, this.#begin + this.byteLength)
    return this.#bytes.read(this.#begin, this.byteLength)
  }

  /**
   * As {@link GgufTensor.read}, to memory that nobody else has and without holding the JavaScript thread up.
   * @throws SparkError as {@link GgufTensor.read}
   */
  async load(): Promise<Uint8Array> {
    if (this.#bytes instanceof Uint8Array) return this.read().slice()
    return this.#bytes.load(this.#begin, this.byteLength)
  }

  /**
   * Fills `bytes` with those of the elements from `begin` on.
   * @internal
   * @throws SparkError as {@link GgufTensor.read}
   */
  async loadInto(begin: number, bytes: Uint8Array): Promise<void> {
    if (this.#bytes instanceof Uint8Array) bytes.set(this.read().subarray(begin, begin + bytes.byteLength))
    else await this.#bytes.loadInto(this.#begin + begin, bytes)
  }

  /**
   * The elements as f32, row-major.
   * @returns a new array
   * @throws SparkError as {@link GgufTensor.read}; ERR_UNSUPPORTED for a format that cannot be decoded
   */
  async values(): Promise<Float32Array> {
    const bytes = await this.load()
    return new Pacer().do(decodePaced(this.format, bytes))
  }
}

/**
 * A GGUF file, or all parts of one that is split.
 * @example
 * const model = await readGguf('model.gguf')
 * console.log(model.text('general.architecture'), model.number('llama.block_count'), model.tensors.size)
 */
export class GgufFile {
  /** Path of each part, or the label of given bytes. */
  readonly parts: readonly string[]
  /** Version of the format: 2 or 3. */
  readonly version: number
  /** What the bytes of tensors begin at a multiple of. */
  readonly alignment: number
  /** The metadata by key, in the order of the file; of a split file those of its first part. */
  readonly metadata: ReadonlyMap<string, GgufValue>
  /** The tensors by name, in the order of the files. */
  readonly tensors: ReadonlyMap<string, GgufTensor>

  /** @internal */
  constructor(parts: readonly string[], first: Header, tensors: ReadonlyMap<string, GgufTensor>) {
    this.parts = parts
    this.version = first.version
    this.alignment = first.alignment
    this.metadata = first.metadata
    this.tensors = tensors
  }

  /**
   * A string of the metadata; undefined when there is none.
   * @throws SparkError ERR_FORMAT when it is something else
   */
  text(key: string): string | undefined {
    const found = this.metadata.get(key)
    if (!found || found.type === 'string') return found?.value
    throw this.#wrongType(key, found, 'a string')
  }

  /**
   * A number of the metadata; undefined when there is none.
   * @throws SparkError ERR_FORMAT when it is something else, or an integer beyond 2^53
   */
  number(key: string): number | undefined {
    const found = this.metadata.get(key)
    return found && this.#numberOf(key, found)
  }

  /**
   * The numbers of an array of the metadata, or a number that is there alone; undefined when there are none.
   * @throws SparkError ERR_FORMAT when it is something else, or an integer is beyond 2^53
   */
  numbers(key: string): number[] | undefined {
    const found = this.metadata.get(key)
    if (!found) return undefined
    if (found.type !== 'array') return [this.#numberOf(key, found)]
    if (found.of === 'string' || found.of === 'bool') throw this.#wrongType(key, found, 'numbers')
    return Array.from(found.value as ArrayLike<number | bigint>, value => this.#exact(key, value))
  }

  /**
   * True or false of the metadata; undefined when there is neither.
   * @throws SparkError ERR_FORMAT when it is something else
   */
  flag(key: string): boolean | undefined {
    const found = this.metadata.get(key)
    if (!found || found.type === 'bool') return found?.value
    throw this.#wrongType(key, found, 'a bool')
  }

  /**
   * The strings of an array of the metadata, such as a vocabulary; undefined when there are none.
   * @throws SparkError ERR_FORMAT when it is something else
   */
  texts(key: string): readonly string[] | undefined {
    const found = this.metadata.get(key)
    if (!found) return undefined
    if (found.type === 'array' && found.of === 'string') return found.value
    throw this.#wrongType(key, found, 'an array of strings')
  }

  #numberOf(key: string, found: GgufValue): number {
    if (found.type === 'string' || found.type === 'bool' || found.type === 'array')
      throw this.#wrongType(key, found, 'a number')
    return this.#exact(key, found.value)
  }

  #exact(key: string, value: number | bigint): number {
    const number = Number(value)
    if (typeof value === 'number' || Number.isSafeInteger(number)) return number
    throw new SparkError('ERR_FORMAT', `${this.parts[0]}: ${key} is ${value}, which is beyond 2^53`)
  }

  #wrongType(key: string, found: GgufValue, expected: string): SparkError {
    const type = found.type === 'array' ? `an array of ${found.of}` : `of type ${found.type}`
    return new SparkError('ERR_FORMAT', `${this.parts[0]}: ${key} is ${type}; expected ${expected}`)
  }
}
