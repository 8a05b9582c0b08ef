// size.ts: arithmetic with sizes that are numbers, or polynomials of symbols whose values are known when a run begins. Code
// that asks how two sizes compare gets the answer for the example sizes, and their scope keeps the question as a guard.
import { SparkError } from './errors.js'
import { boundsOf, type Size, SizeExpression, type SizeScope, type Term } from './size-scope.js'

export type { Size, SizeExpression, SizeScope } from './size-scope.js'

/** Whether something is a size. */
export const isSize = (value: unknown): value is Size =>
  typeof value === 'number' || value instanceof SizeExpression

/** Whether a size is an integer that is exact, as those of symbols are. */
export const isWhole = (size: Size): boolean => typeof size !== 'number' || Number.isSafeInteger(size)

/** Whether all sizes are numbers. */
export const areNumbers = (sizes: readonly unknown[]): sizes is readonly number[] =>
  sizes.every(size => typeof size === 'number')

/** The value of a size for the example sizes: for messages and estimates, as it leaves no guard. */
export const hintOf = (size: Size): number => (typeof size === 'number' ? size : size.hint)

/** The sum. */
export function add(...sizes: readonly Size[]): Size {
  return total(sizes)
}

/** The sum of a list, however long. */
export function total(sizes: readonly Size[]): Size {
  return combine(sizes.map(size => [1, size]))
}

/** a − b. */
export function subtract(a: Size, b: Size): Size {
  return combine([
    [1, a],
    [-1, b],
  ])
}

/** The product. */
export function multiply(...sizes: readonly Size[]): Size {
  return sizes.reduce(multiplyTwo, 1)
}

/** Largest integer that is not above a / b, for b > 0. */
export function floorDivide(a: Size, b: Size): Size {
  if (typeof a === 'number' && typeof b === 'number') return Math.floor(a / b)
  if (b === 1) return a
  const exact = quotient(a, b)
  if (exact !== undefined) return exact
  if (typeof b !== 'number' || !(a instanceof SizeExpression)) return derive('floorDivide', floorOf, a, b)
  // What b divides comes out: floor((b·x + r) / b) = x + floor(r / b).
  const whole = a.terms.filter(term => term.coefficient % b === 0 && term.atoms.every(atom => atom.isInteger))
  const rest = a.terms.filter(term => !whole.includes(term))
  const outside = whole.map(({ coefficient, atoms }) => ({ coefficient: coefficient / b, atoms }))
  const inside = a.scope.expression(rest)
  const part = typeof inside === 'number' ? Math.floor(inside / b) : derive('floorDivide', floorOf, inside, b)
  return add(a.scope.expression(outside), part)
}

const floorOf = (a: number, b: number): number => Math.floor(a / b)

/** Smallest integer that is not below a / b, for b > 0. */
export const ceilDivide = (a: Size, b: Size): Size => floorDivide(subtract(add(a, b), 1), b)

/** Smallest multiple of `unit` that is not below `count`, for unit > 0. */
export function roundUp(count: number, unit: number): number
export function roundUp(count: Size, unit: number): Size
export function roundUp(count: Size, unit: number): Size {
  return typeof count === 'number' ? Math.ceil(count / unit) * unit : multiply(ceilDivide(count, unit), unit)
}

/** a − b · floor(a / b). */
export const modulo = (a: Size, b: Size): Size => subtract(a, multiply(b, floorDivide(a, b)))

/** a / b where b divides a; undefined where it does not. Leaves a guard where that depends on symbols. */
export function exactDivide(a: Size, b: Size): Size | undefined {
  if (sameSize(b, 0)) return undefined
  return quotient(a, b) ?? (sameSize(modulo(a, b), 0) ? floorDivide(a, b) : undefined)
}

/** One of equal parts of a size that shape inference has found to have them; 0 for one that has not. */
export const partOf = (size: Size, parts: Size): Size => exactDivide(size, parts) ?? 0

/** The smaller one. */
export function minimum(a: Size, b: Size): Size {
  const [low, high] = boundsOf(subtract(a, b))
  if (high <= 0) return a
  return low >= 0 ? b : derive('minimum', Math.min, a, b)
}

/** The larger one. */
export function maximum(a: Size, b: Size): Size {
  const [low, high] = boundsOf(subtract(a, b))
  if (high <= 0) return b
  return low >= 0 ? a : derive('maximum', Math.max, a, b)
}

/**
 * An integer function of sizes.
 * @param name - says which function it is: equal names with equal arguments are one value
 * @param compute - has no side effects
 */
export function derive(
  name: string,
  compute: (...sizes: number[]) => number,
  ...sizes: readonly Size[]
): Size {
  return applied(name, compute, sizes, true)
}

/** As {@link derive}, for a function whose values are floats, rounded as their element type needs it. */
export function deriveFloat(
  name: string,
  compute: (...sizes: number[]) => number,
  ...sizes: readonly Size[]
): Size {
  return applied(name, compute, sizes, false)
}

function applied(
  name: string,
  compute: (...sizes: number[]) => number,
  sizes: readonly Size[],
  isInteger: boolean,
): Size {
  if (areNumbers(sizes)) return compute(...sizes)
  return scopeOf(sizes)?.apply(name, compute, sizes, isInteger) ?? Number.NaN
}

/** Whether two sizes are the same. Leaves a guard where that depends on symbols. */
export function sameSize(a: Size, b: Size): boolean {
  if (a === b) return true
  const difference = subtract(a, b)
  if (typeof difference === 'number') return difference === 0
  const [low, high] = boundsOf(difference)
  if (low > 0 || high < 0) return false
  return difference.scope.decide(difference, 'zero')
}

/** Whether a is less than b. Leaves a guard where that depends on symbols. */
export function lessThan(a: Size, b: Size): boolean {
  const difference = subtract(a, b)
  if (typeof difference === 'number') return difference < 0
  const [low, high] = boundsOf(difference)
  if (high < 0) return true
  if (low >= 0) return false
  return difference.scope.decide(difference, 'negative')
}

/** Whether shapes have the same sizes. Leaves guards where that depends on symbols. */
export const sameSizes = (a: readonly Size[], b: readonly Size[]): boolean =>
  a.length === b.length && a.every((size, i) => sameSize(size, b[i]!))

/** The number that a size is for the example sizes; what is made of it holds for this number only, and a guard says so. */
export function fixSize(size: Size): number {
  if (typeof size === 'number') return size
  if (!sameSize(size, size.hint))
    throw new SparkError('ERR_INTERNAL', `the size ${size.formula} has no value`)
  return size.hint
}

/** {@link fixSize} of each. */
export const fixSizes = (sizes: readonly Size[]): number[] => sizes.map(fixSize)

/** Where the symbols come from; undefined where a size is missing, which makes NaN as in arithmetic of numbers. */
function scopeOf(sizes: readonly Size[]): SizeScope | undefined {
  if (!sizes.every(isSize)) return undefined
  return sizes.find(size => size instanceof SizeExpression)?.scope
}

/** A sum of multiples. */
function combine(parts: readonly (readonly [factor: number, size: Size])[]): Size {
  const sizes = parts.map(([, size]) => size)
  if (areNumbers(sizes)) return parts.reduce((sum, [factor], i) => sum + factor * sizes[i]!, 0)
  const scope = scopeOf(sizes)
  if (!scope) return Number.NaN
  return scope.expression(
    parts.flatMap(([factor, size]) =>
      termsOf(size).map(({ coefficient, atoms }) => ({ coefficient: factor * coefficient, atoms })),
    ),
  )
}

function termsOf(size: Size): readonly Term[] {
  if (typeof size !== 'number') return size.terms
  return size === 0 ? [] : [{ coefficient: size, atoms: [] }]
}

function multiplyTwo(a: Size, b: Size): Size {
  if (typeof a === 'number' && typeof b === 'number') return a * b
  const scope = scopeOf([a, b])
  if (!scope) return Number.NaN
  if (a === 1) return b
  if (b === 1) return a
  const products = termsOf(a).flatMap(left =>
    termsOf(b).map(right => ({
      coefficient: left.coefficient * right.coefficient,
      atoms: [...left.atoms, ...right.atoms],
    })),
  )
  return scope.expression(products)
}

/** The polynomial whose product with b is a; undefined when there is none. Leaves no guard. */
export function quotient(a: Size, b: Size): Size | undefined {
  if (b === 1) return a
  if (typeof a === 'number' && typeof b === 'number') return a % b === 0 ? a / b : undefined
  const [lead] = scopeOf([a, b]) ? termsOf(b) : []
  if (!lead) return undefined
  let [result, rest]: [Size, Size] = [0, a]
  // The first terms of a product are those of its factors, so each round takes the first term of the rest away.
  for (let left = termsOf(a).length; !isNumber(rest, 0) && left > 0; left--) {
    const part = quotientOfTerms(termsOf(rest)[0]!, lead)
    if (!part) return undefined
    const term = scopeOf([a, b])?.expression([part]) ?? Number.NaN
    result = add(result, term)
    rest = subtract(rest, multiply(term, b))
  }
  return isNumber(rest, 0) ? result : undefined
}

const isNumber = (size: Size, number: number): boolean => size === number

function quotientOfTerms(a: Term, b: Term): Term | undefined {
  const atoms = [...a.atoms]
  for (const atom of b.atoms) {
    const at = atoms.indexOf(atom)
    if (at < 0) return undefined
    atoms.splice(at, 1)
  }
  const coefficient = a.coefficient / b.coefficient
  return Number.isInteger(coefficient) ? { coefficient, atoms } : undefined
}
