// operators.ts: operators of templates, with Python's meaning.
import { countUnits, TemplateError } from './budget.js'
import { percentFormat } from './string-format.js'
import {
  compare,
  Float,
  isEqual,
  itemsOf,
  numberOf,
  Tuple,
  textOf,
  typeOf,
  Undefined,
  type Value,
} from './values.js'

const arithmetic: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '//': (a, b) => Math.floor(a / b),
  '%': (a, b) => ((a % b) + b) % b,
  '**': (a, b) => a ** b,
}

function calculate(operator: string, left: Value, right: Value): Value {
  const [a, b] = [numberOf(left)!, numberOf(right)!]
  if (b === 0 && ['/', '//', '%'].includes(operator)) throw new TemplateError('division by zero')
  const result = arithmetic[operator]!(a, b)
  const isFloat =
    operator === '/' || left instanceof Float || right instanceof Float || (operator === '**' && b < 0)
  if (!Number.isFinite(result)) throw new TemplateError(`${a} ${operator} ${b} is no finite number`)
  return isFloat ? new Float(result) : result
}

function repeated(value: string | Value[], count: number): Value {
  const times = Math.max(0, Math.trunc(count))
  countUnits(value.length * times)
  if (typeof value === 'string') return value.repeat(times)
  return Array.from({ length: times }, () => value).flat(1) as Value[]
}

function contains(item: Value, container: Value): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') throw new TemplateError(`'in <str>' needs a str, got ${typeOf(item)}`)
    countUnits(container.length)
    return container.includes(item)
  }
  if (container instanceof Map) return container.has(item)
  const items = itemsOf(container)
  countUnits(items?.length ?? 0)
  if (!items) throw new TemplateError(`${typeOf(container)} can not be searched with 'in'`)
  return items.some(other => isEqual(other, item))
}

function refuseUndefined(...values: readonly Value[]): void {
  const missing = values.find(value => value instanceof Undefined)
  if (missing) throw new TemplateError(`'${(missing as Undefined).name}' is undefined`)
}

function combine(operator: string, left: Value, right: Value): Value {
  refuseUndefined(left, right)
  if (operator === '%' && typeof left === 'string')
    return percentFormat(left, right instanceof Tuple ? right : [right])
  if (numberOf(left) !== undefined && numberOf(right) !== undefined) return calculate(operator, left, right)
  if (operator === '+' && typeof left === 'string' && typeof right === 'string') {
    countUnits(left.length + right.length)
    return left + right
  }
  if (operator === '+' && Array.isArray(left) && Array.isArray(right)) {
    countUnits(left.length + right.length)
    return [...left, ...right]
  }
  if (operator === '*') {
    for (const [value, count] of [
      [left, right],
      [right, left],
    ] as const) {
      const isSequence = typeof value === 'string' || Array.isArray(value)
      if (isSequence && typeof count === 'number') return repeated(value, count)
    }
  }
  throw new TemplateError(`${typeOf(left)} and ${typeOf(right)} can not be combined by ${operator}`)
}

/** The value of `left operator right`; `and` and `or` are not among the operators. */
export function binary(operator: string, left: Value, right: Value): Value {
  switch (operator) {
    case '==':
      return isEqual(left, right)
    case '!=':
      return !isEqual(left, right)
    case 'in':
      return contains(left, right)
    case 'not in':
      return !contains(left, right)
    case '~': {
      const texts = [textOf(left), textOf(right)] as const
      countUnits(texts[0].length + texts[1].length)
      return texts[0] + texts[1]
    }
  }
  if (Object.hasOwn(arithmetic, operator)) return combine(operator, left, right)
  refuseUndefined(left, right)
  const order = compare(left, right)
  switch (operator) {
    case '<':
      return order < 0
    case '<=':
      return order <= 0
    case '>':
      return order > 0
    case '>=':
      return order >= 0
    default:
      throw new TemplateError(`the operator ${operator} is not known`)
  }
}

/** The value of `operator argument`. */
export function unary(operator: string, argument: Value): Value {
  const number = numberOf(argument)
  if (number === undefined) throw new TemplateError(`${operator} needs a number, got ${typeOf(argument)}`)
  const result = operator === '-' ? -number : number
  return argument instanceof Float ? new Float(result) : result
}
