// numbers.ts: numbers and paths on the command line.
import { InvalidArgumentError } from 'commander'

/** Reads an integer from `least` on, up to `most`. */
export const integerFrom =
  (least: number, most = Number.MAX_SAFE_INTEGER) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isSafeInteger(value) && value >= least && value <= most) return value
    const upper = most === Number.MAX_SAFE_INTEGER ? 'on' : `to ${most}`
    throw new InvalidArgumentError(`expected an integer from ${least} ${upper}`)
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

/** Reads a number from `least` to less than `end`. */
export const numberFrom =
  (least: number, end = Number.POSITIVE_INFINITY) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && value >= least && value < end) return value
    const upper = end === Number.POSITIVE_INFINITY ? 'on' : `to less than ${end}`
    throw new InvalidArgumentError(`expected a number from ${least} ${upper}`)
  }
