// header-bytes.ts: numbers, strings and metadata values as GGUF files have them.
import { argumentError, expectObject } from '../../core/checks.js'
import { arrayId, arraysOf, type GgufScalar, type GgufValue, scalarTypes, stringId } from './values.js'

/** Smallest and largest number of the integer types. */
const ranges: Readonly<Partial<Record<GgufScalar, readonly [min: bigint, max: bigint]>>> = Object.fromEntries(
  [8, 16, 32, 64].flatMap(bits => [
    [`u${bits}`, [0n, 2n ** BigInt(bits) - 1n]],
    [`i${bits}`, [-(2n ** BigInt(bits - 1)), 2n ** BigInt(bits - 1) - 1n]],
  ]),
)

/** The header of a file while it grows. */
export class HeaderBytes {
  readonly #chunks: Uint8Array[] = []

  raw(bytes: Uint8Array): void {
    this.#chunks.push(bytes)
  }

  u32(value: number): void {
    this.raw(new Uint8Array(Uint32Array.of(value).buffer))
  }

  u64(value: number): void {
    this.raw(new Uint8Array(BigUint64Array.of(BigInt(value)).buffer))
  }

  text(value: string): void {
    const bytes = Buffer.from(value)
    this.u64(bytes.length)
    this.raw(bytes)
  }

  /**
   * Writes the type of a value, and the value.
   * @throws SparkError ERR_ARGUMENT naming `what` when they do not fit each other
   */
  value(what: string, given: GgufValue): void {
    expectObject(what, 'an object with type and value', given)
    if (given.type === 'array') {
      this.#array(what, given.of, given.value)
      return
    }
    this.u32(this.#idOf(`${what}.type`, given.type))
    this.#element(what, given.type, given.value)
  }

  #array(what: string, of: GgufScalar | 'string', values: ArrayLike<unknown>): void {
    this.u32(arrayId)
    this.u32(this.#idOf(`${what}.of`, of))
    const isNumeric = of !== 'string' && of !== 'bool'
    const wanted = isNumeric ? arraysOf[of] : Array
    if (!(values instanceof wanted)) throw argumentError(`${what}.value`, `a ${wanted.name}`, values)
    this.u64(values.length)
    if (ArrayBuffer.isView(values))
      this.raw(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
    else for (const value of values as unknown[]) this.#element(what, of, value)
  }

  #idOf(what: string, type: GgufScalar | 'string'): number {
    if (type === 'string') return stringId
    if (Object.hasOwn(scalarTypes, type)) return scalarTypes[type].id
    throw argumentError(what, `one of ${Object.keys(scalarTypes).join(', ')}, string, array`, type)
  }

  #element(what: string, type: GgufScalar | 'string', value: unknown): void {
    if (type === 'string') {
      if (typeof value !== 'string') throw argumentError(what, 'a string', value)
      this.text(value)
      return
    }
    if (type === 'bool') {
      if (typeof value !== 'boolean') throw argumentError(what, 'true or false', value)
      this.raw(Uint8Array.of(value ? 1 : 0))
      return
    }
    const isBig = type === 'u64' || type === 'i64'
    if (isBig !== (typeof value === 'bigint') || (!isBig && typeof value !== 'number'))
      throw argumentError(what, isBig ? 'a bigint' : 'a number', value)
    const range = ranges[type]
    const isInteger = typeof value === 'bigint' || Number.isInteger(value)
    if (range && !(isInteger && (value as number) >= range[0] && (value as number) <= range[1]))
      throw argumentError(what, `an integer in [${range[0]}, ${range[1]}] (${type})`, value)
    this.raw(new Uint8Array(arraysOf[type].of(value as never).buffer))
  }

  /** What was written, and zeros up to a multiple of `alignment`. */
  bytes(alignment: number): Uint8Array {
    const written = Buffer.concat(this.#chunks)
    return Buffer.concat([written, new Uint8Array(-written.length & (alignment - 1))])
  }
}
