// checks.ts: one-line checks for the top of public methods. Each names the argument and shows its value.
import { inspect } from 'node:util'
import { didYouMean, didYouMeanOption } from './did-you-mean.js'
import { type ErrorCode, SparkError } from './errors.js'

/** A SparkError that names the argument, the expected value and the actual one. */
export function argumentError(
  name: string,
  expected: string,
  actual: unknown,
  code: ErrorCode = 'ERR_ARGUMENT',
): SparkError {
  const limits = { depth: 0, breakLength: Number.POSITIVE_INFINITY, maxStringLength: 60, maxArrayLength: 5 }
  const shown = inspect(actual, limits)
  return new SparkError(code, `${name} must be ${expected}, got ${shown}`)
}

/** Throws ERR_ARGUMENT unless `value` is an integer in [min, max]. */
export function expectInteger(
  name: string,
  value: unknown,
  min: number,
  max = Number.MAX_SAFE_INTEGER,
): asserts value is number {
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    const range = max === Number.MAX_SAFE_INTEGER ? `an integer >= ${min}` : `an integer in [${min}, ${max}]`
    throw argumentError(name, range, value)
  }
}

/** Throws ERR_ARGUMENT unless `value` is a finite number in [min, max]. */
export function expectNumber(
  name: string,
  value: unknown,
  min = -Number.MAX_VALUE,
  max = Number.MAX_VALUE,
): asserts value is number {
  if (typeof value !== 'number' || !(value >= min && value <= max)) {
    const range = min === -Number.MAX_VALUE ? 'a finite number' : `a number in [${min}, ${max}]`
    throw argumentError(name, range, value)
  }
}

/** Throws ERR_ARGUMENT unless `value` is true or false. */
export function expectBoolean(name: string, value: unknown): asserts value is boolean {
  if (typeof value !== 'boolean') throw argumentError(name, 'true or false', value)
}

/** Throws ERR_ARGUMENT unless `value` is an AbortSignal or undefined. */
export function expectSignal(name: string, value: unknown): asserts value is AbortSignal | undefined {
  if (value !== undefined && !(value instanceof AbortSignal))
    throw argumentError(name, 'an AbortSignal', value)
}

/** Throws ERR_ARGUMENT unless `value` is one of `choices`. */
export function expectOneOf<T extends string>(
  name: string,
  value: unknown,
  choices: readonly T[],
): asserts value is T {
  if (choices.includes(value as T)) return
  const error = argumentError(name, `one of ${choices.join(', ')}`, value)
  const hint = typeof value === 'string' ? didYouMean(value, choices) : ''
  throw hint === '' ? error : new SparkError(error.code, `${error.message}${hint}`)
}

/** Throws ERR_ARGUMENT unless `value` is a string of at least one character: a path, a name. */
export function expectText(name: string, value: unknown): asserts value is string {
  if (typeof value !== 'string' || value === '') throw argumentError(name, 'a non-empty string', value)
}

/** Throws ERR_ARGUMENT unless `value` is an object and not an array; `expected` describes it. */
export function expectObject(name: string, expected: string, value: unknown): asserts value is object {
  const isObject = typeof value === 'object' && value !== null
  if (!isObject || Array.isArray(value) || ArrayBuffer.isView(value))
    throw argumentError(name, expected, value)
}

/** Throws ERR_DISPOSED for a typed array whose memory was detached by transfer(), postMessage() or dispose(). */
export function expectAttached(name: string, { buffer, byteLength }: ArrayBufferView): void {
  if (byteLength > 0) return
  try {
    new Uint8Array(buffer)
  } catch (cause) {
    throw new SparkError('ERR_DISPOSED', `${name} lies in memory that has been detached or disposed`, {
      cause,
    })
  }
}

/** Throws ERR_ARGUMENT for a key of `options` that is not in `known`: a misspelled option must not be ignored. */
export function expectKnownOptions(name: string, options: object, known: readonly string[]): void {
  if (options === null || typeof options !== 'object') throw argumentError(name, 'an object', options)
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `${name} has no option '${key}'${didYouMeanOption(key, known)}; known: ${known.join(', ')}`,
      )
    }
  }
}

/**
 * Throws ERR_SHAPE unless `shape` has the given dimensions; null in `expected` matches any size.
 */
export function expectShape(
  name: string,
  shape: readonly number[],
  expected: readonly (number | null)[],
): void {
  const matches =
    shape.length === expected.length && expected.every((size, i) => size === null || size === shape[i])
  if (!matches) {
    const wanted = expected.map(size => size ?? '*').join(', ')
    throw new SparkError('ERR_SHAPE', `${name} must have shape [${wanted}], got [${shape.join(', ')}]`)
  }
}
