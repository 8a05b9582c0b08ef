// numbers.ts: parsers of numbers and paths on the command line.
import { InvalidArgumentError } from 'commander'

/** Reads an integer from `min` on, up to `max`. */
export const integerFrom =
  (min: number, max = Number.MAX_SAFE_INTEGER) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isSafeInteger(value) && value >= min && value <= max) return value
    const upper = max === Number.MAX_SAFE_INTEGER ? 'on' : `to ${max}`
    throw new InvalidArgumentError(`expected an integer from ${min} ${upper}`)
  }

/** Reads a number above 0. */
export function positive(text: string): number {
  const value = Number(text)
  if (value > 0 && value < Number.POSITIVE_INFINITY) return value
  throw new InvalidArgumentError('expected a number above 0')
}

/** Reads a path. */
export function pathFrom(text: string): string {
  if (text !== '') return text
  throw new InvalidArgumentError('expected a path')
}

/** Reads a number from `min` to less than `end`. */
export const numberFrom =
  (min: number, end = Number.POSITIVE_INFINITY) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && value >= min && value < end) return value
    const upper = end === Number.POSITIVE_INFINITY ? 'on' : `to less than ${end}`
    throw new InvalidArgumentError(`expected a number from ${min} ${upper}`)
  }
