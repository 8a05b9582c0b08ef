// config-reader.ts: typed access to the values of a config.json, with errors that name file, key and value.
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'

/** Layers of a model at most; the deepest that are known have some hundreds. */
const mostLayers = 10_000

/** An object of a configuration file. */
export class ConfigReader {
  readonly #values: Readonly<Record<string, unknown>>
  readonly #where: string

  /** @param where - what messages call it, such as config.json */
  constructor(values: unknown, where: string) {
    if (typeof values !== 'object' || values === null || Array.isArray(values))
      throw argumentError(where, 'an object', values, 'ERR_FORMAT')
    this.#values = values as Record<string, unknown>
    this.#where = where
  }

  /** What messages call the value of a key. */
  nameOf(key: string): string {
    return `${key} of ${this.#where}`
  }

  /** All keys. */
  get keys(): readonly string[] {
    return Object.keys(this.#values)
  }

  /** Whether a key has a value. */
  has(key: string): boolean {
    return Object.hasOwn(this.#values, key) && this.#values[key] != null
  }

  /** A finite number. */
  number(key: string, fallback?: number): number {
    const value = this.#value(key, fallback)
    return Number.isFinite(value) ? (value as number) : this.#refuse(key, 'a number')
  }

  /** An integer of at least `least`, 1 unless given. */
  integer(key: string, fallback?: number, least = 1): number {
    const value = this.#value(key, fallback)
    if (Number.isSafeInteger(value) && (value as number) >= least) return value as number
    return this.#refuse(key, `an integer of at least ${least}`)
  }

  /** How many layers there are; a file that lies must not take the memory of all that it claims. */
  get layerCount(): number {
    const count = this.integer('num_hidden_layers')
    return count <= mostLayers ? count : this.#refuse('num_hidden_layers', `at most ${mostLayers}`)
  }

  /** A text. */
  text(key: string, fallback?: string): string {
    const value = this.#value(key, fallback)
    return typeof value === 'string' ? value : this.#refuse(key, 'a text')
  }

  /** true or false. */
  flag(key: string, fallback?: boolean): boolean {
    const value = this.#value(key, fallback)
    return typeof value === 'boolean' ? value : this.#refuse(key, 'true or false')
  }

  /** A list of finite numbers. */
  numbers(key: string): readonly number[] {
    const value = this.#value(key, undefined)
    const isList = Array.isArray(value) && value.every(Number.isFinite)
    return isList ? (value as number[]) : this.#refuse(key, 'a list of numbers')
  }

  /** A list of `count` texts. */
  texts(key: string, count: number): readonly string[] {
    const value = this.#value(key, undefined)
    const isList =
      Array.isArray(value) && value.length === count && value.every(item => typeof item === 'string')
    return isList ? (value as string[]) : this.#refuse(key, `a list of ${count} texts`)
  }

  /** An object; an empty one where it is missing. */
  object(key: string): ConfigReader {
    return new ConfigReader(this.has(key) ? this.#values[key] : {}, this.nameOf(key))
  }

  /** The value of a key as it is; undefined where it is missing or null. */
  raw(key: string): unknown {
    return this.has(key) ? this.#values[key] : undefined
  }

  #value(key: string, fallback: unknown): unknown {
    if (this.has(key)) return this.#values[key]
    if (fallback === undefined)
      throw new SparkError('ERR_FORMAT', `${this.#where} has no ${key}, which its model needs`)
    return fallback
  }

  #refuse(key: string, wanted: string): never {
    throw argumentError(this.nameOf(key), wanted, this.#values[key], 'ERR_FORMAT')
  }
}
