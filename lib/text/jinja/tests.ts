// tests.ts: tests of values, `is defined`, and those that filters name.
import { TemplateError } from './budget.js'
import { compare, Float, isEqual, itemsOf, Namespace, numberOf, Undefined, type Value } from './values.js'

type Test = (value: Value, other: Value) => boolean

const isOrdered =
  (holds: (order: number) => boolean): Test =>
  (a, b) =>
    holds(compare(a, b))
const remainder = (value: Value, divisor: number): number => {
  const number = numberOf(value)
  if (number === undefined) throw new TemplateError('odd, even and divisibleby need a number')
  return Math.abs(number % divisor)
}
const equal: Test = isEqual
const different: Test = (a, b) => !isEqual(a, b)
const [less, atMost] = [isOrdered(order => order < 0), isOrdered(order => order <= 0)]
const [greater, atLeast] = [isOrdered(order => order > 0), isOrdered(order => order >= 0)]

/** Tests by name. */
export const tests: Readonly<Record<string, Test>> = {
  defined: value => !(value instanceof Undefined),
  undefined: value => value instanceof Undefined,
  none: value => value === null,
  boolean: value => typeof value === 'boolean',
  true: value => value === true,
  false: value => value === false,
  string: value => typeof value === 'string',
  number: value => numberOf(value) !== undefined,
  integer: value => typeof value === 'number',
  float: value => value instanceof Float,
  mapping: value => value instanceof Map,
  sequence: value => typeof value === 'string' || Array.isArray(value) || value instanceof Map,
  iterable: value => itemsOf(value) !== undefined,
  callable: value => typeof value === 'function',
  namespace: value => value instanceof Namespace,
  odd: value => remainder(value, 2) === 1,
  even: value => remainder(value, 2) === 0,
  divisibleby: (value, other) => remainder(value, numberOf(other) ?? 1) === 0,
  upper: value => typeof value === 'string' && value === value.toUpperCase(),
  lower: value => typeof value === 'string' && value === value.toLowerCase(),
  in: (value, other) => (itemsOf(other) ?? []).some(item => isEqual(item, value)),
  ...{ equalto: equal, eq: equal, '==': equal, ne: different, '!=': different },
  ...{ lt: less, lessthan: less, '<': less, le: atMost, '<=': atMost },
  ...{ gt: greater, greaterthan: greater, '>': greater, ge: atLeast, '>=': atLeast },
}

/** A test by its name. */
export function testOf(name: string): Test {
  if (!Object.hasOwn(tests, name)) throw new TemplateError(`the test '${name}' is not known`)
  return tests[name]!
}
