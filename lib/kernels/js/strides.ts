// strides.ts: loops over strided operands, and checks of their axes.
import { argumentError, expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'

const maxAxes = 8

/** Calls body(a, b) with the offsets of two operands at each index of `shape`, in row-major order. */
export function forEachIndex(
  shape: readonly number[],
  aStrides: readonly number[],
  bStrides: readonly number[],
  body: (a: number, b: number) => void,
): void {
  const walk = (axis: number, a: number, b: number): void => {
    if (axis === shape.length) {
      body(a, b)
      return
    }
    for (let i = 0; i < shape[axis]!; i++) walk(axis + 1, a + i * aStrides[axis]!, b + i * bStrides[axis]!)
  }
  walk(0, 0, 0)
}

/** Elements an operand must have so that a loop from `offset` on stays inside; negative when it would start before it. */
export function reach(offset: number, shape: readonly number[], strides: readonly number[]): number {
  if (shape.includes(0)) return 0
  let [low, high] = [offset, offset]
  shape.forEach((size, axis) => {
    const far = (size - 1) * strides[axis]!
    if (far < 0) low += far
    else high += far
  })
  return low < 0 ? low : high + 1
}

/** Throws unless the argument `name` is a list of integers, one for each axis. */
export function expectAxes<Args extends object>(args: Args, name: keyof Args & string, min = 0): void {
  const value: unknown = args[name]
  if (!Array.isArray(value)) throw argumentError(name, 'an array of integers', value)
  if (value.length > maxAxes) throw new SparkError('ERR_SHAPE', `${name} has more than ${maxAxes} entries`)
  value.forEach((entry, i) => {
    expectInteger(`${name}[${i}]`, entry, min)
  })
}

/** Throws unless `axes` are the sizes of a loop, and `strides` have an entry of at least `min` for each. */
export function expectLoop<Args extends object>(
  args: Args,
  axes: keyof Args & string,
  strides: readonly (keyof Args & string)[],
  min = 0,
): void {
  expectAxes(args, axes)
  const rank = (args[axes] as readonly number[]).length
  for (const name of strides) {
    expectAxes(args, name, min)
    const { length } = args[name] as readonly number[]
    if (length === rank) continue
    throw new SparkError('ERR_SHAPE', `${name} has ${length} entries for ${rank} axes`)
  }
}
