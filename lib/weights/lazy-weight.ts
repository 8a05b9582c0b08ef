// lazy-weight.ts: frozen weights whose elements are still in a file.
import { elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { FilePart } from './file-parts.js'
import { type BlockWeightFormat, formatInfo, type WeightFormat, weightSizes } from './formats.js'
import { arraysOf, type FloatWeight, type Weight } from './weight.js'

/** Frees memory that nobody else has, so that it goes at once. */
export type Release = (buffer: ArrayBuffer) => void

/** A weight in rows whose elements are read when somebody asks for them, each time anew. */
export interface LazyWeight {
  /** Name of the format. */
  readonly format: WeightFormat
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
  /** Reads it, and waits. */
  read(): Weight
  /**
   * Reads it to memory that nobody else has, without holding the JavaScript thread up.
   * @param release - for what was needed in between. Default: the garbage collector frees it
   */
  load(release?: Release): Promise<Weight>
  /** Where in files what it reads is, for a weight in rows one row after the other; missing where it is in none. */
  readonly fileParts?: readonly FilePart[]
  /** Reads the bytes of the rows from `from` on, as many as fit; missing where rows cannot be read on their own. */
  loadRows?(from: number, bytes: Uint8Array): Promise<void>
}

/** Whether the elements of a weight are still in a file. */
export const isLazy = (weight: Weight | LazyWeight): weight is LazyWeight => 'load' in weight

/** The weight, read if need be. */
export const readWeight = (weight: Weight | LazyWeight): Weight => (isLazy(weight) ? weight.read() : weight)

/** What `change` makes of a weight when its elements are read; its format stays. */
export function changedWhenRead(
  weight: LazyWeight,
  rows: number,
  cols: number,
  change: (read: Weight) => Weight,
): LazyWeight {
  const { format } = weight
  return {
    format,
    rows,
    cols,
    read: () => change(weight.read()),
    async load(release) {
      const read = await weight.load(release)
      const changed = change(read)
      const kept = new Set(arraysOf(changed).map(([, { buffer }]) => buffer))
      for (const [, { buffer }] of arraysOf(read)) if (!kept.has(buffer)) release?.(buffer as ArrayBuffer)
      return changed
    },
  }
}

/** Bytes that are somewhere else, such as in a file. */
export interface StoredBytes {
  /** How many there are. */
  readonly byteLength: number
  /** Where in files they are, one part after the other; none where they are in no file. */
  readonly fileParts: readonly FilePart[]
  /** Reads all, and waits. */
  read(): Uint8Array
  /** Reads all to memory that nobody else has. */
  load(): Promise<Uint8Array>
  /** Fills `bytes` with those from `begin` on. */
  loadInto(begin: number, bytes: Uint8Array): Promise<void>
}

/** Formats of one array. */
type RowFormat = FloatWeight['format'] | BlockWeightFormat

/** A weight in one array, whose rows follow one another. */
export class LazyRows implements LazyWeight {
  readonly format: RowFormat
  readonly rows: number
  readonly cols: number
  readonly #stored: StoredBytes

  /** @throws SparkError ERR_SHAPE when the bytes are not those of so many rows */
  constructor(format: RowFormat, rows: number, cols: number, stored: StoredBytes) {
    this.format = format
    this.rows = rows
    this.cols = cols
    this.#stored = stored
    const { byteLength } = stored
    if (byteLength === bytesOfRows(this, rows)) return
    throw new SparkError('ERR_SHAPE', `[${rows}, ${cols}] of ${format} is not ${byteLength} bytes`)
  }

  /** Weights of one format and one number of columns below each other. */
  static concat([first, ...others]: readonly [LazyRows, ...LazyRows[]]): LazyRows {
    const all = [first, ...others]
    const rows = all.reduce((sum, each) => sum + each.rows, 0)
    return new LazyRows(first.format, rows, first.cols, new JoinedBytes(all.map(each => each.#stored)))
  }

  read(): Weight {
    return weightOfBytes(this, this.rows, this.#stored.read())
  }

  get fileParts(): readonly FilePart[] {
    return this.#stored.fileParts
  }

  async load(): Promise<Weight> {
    return weightOfBytes(this, this.rows, await this.#stored.load())
  }

  loadRows(from: number, bytes: Uint8Array): Promise<void> {
    return this.#stored.loadInto(bytesOfRows(this, from), bytes)
  }
}

type Columns = Pick<LazyWeight, 'format' | 'cols'>

/** Bytes of `data` of some rows. */
export const bytesOfRows = ({ format, cols }: Columns, rows: number): number =>
  weightSizes(format, rows, cols).data * elementArrayOf(formatInfo(format).dtype).BYTES_PER_ELEMENT

/** Bytes of all arrays of a weight when it is read. */
export function storedBytes({ format, rows, cols }: Pick<LazyWeight, 'format' | 'rows' | 'cols'>): number {
  const { data, rowScale, blockScale } = weightSizes(format, rows, cols)
  return data * elementArrayOf(formatInfo(format).dtype).BYTES_PER_ELEMENT + 4 * rowScale + blockScale
}

/** A weight of one array with the elements that some bytes are, copied where they are not aligned. */
export function weightOfBytes({ format, cols }: Columns, rows: number, bytes: Uint8Array): Weight {
  const array = elementArrayOf(formatInfo(format).dtype)
  const width = array.BYTES_PER_ELEMENT
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % width === 0 ? bytes : bytes.slice()
  return { format, rows, cols, data: new array(buffer, byteOffset, byteLength / width) } as Weight
}

/** Bytes from several places, one after the other. */
class JoinedBytes implements StoredBytes {
  readonly byteLength: number
  readonly fileParts: readonly FilePart[]
  readonly #parts: readonly StoredBytes[]

  constructor(parts: readonly StoredBytes[]) {
    this.byteLength = parts.reduce((sum, part) => sum + part.byteLength, 0)
    this.fileParts = parts.flatMap(part => part.fileParts)
    this.#parts = parts
  }

  read(): Uint8Array {
    const bytes = new Uint8Array(this.byteLength)
    let at = 0
    for (const part of this.#parts) {
      bytes.set(part.read(), at)
      at += part.byteLength
    }
    return bytes
  }

  async load(): Promise<Uint8Array> {
    const bytes = new Uint8Array(this.byteLength)
    await this.loadInto(0, bytes)
    return bytes
  }

  async loadInto(begin: number, bytes: Uint8Array): Promise<void> {
    const end = begin + bytes.byteLength
    let at = 0
    for (const part of this.#parts) {
      const [first, last] = [Math.max(begin, at), Math.min(end, at + part.byteLength)]
      if (first < last) await part.loadInto(first - at, bytes.subarray(first - begin, last - begin))
      at += part.byteLength
    }
  }
}
