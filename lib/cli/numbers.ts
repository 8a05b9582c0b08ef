// numbers.ts: numbers on the command line.
import { InvalidArgumentError } from 'commander'

/** Reads an integer from `least` on. */
export const integerFrom =
  (least: number) =>
  (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isSafeInteger(value) && value >= least) return value
    throw new InvalidArgumentError(`expected an integer from ${least} on`)
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
