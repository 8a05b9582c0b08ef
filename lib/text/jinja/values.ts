// values.ts: the values of templates, Python's by their meaning: how they print, compare and count.
import { countUnits, itemUnits, TemplateError } from './budget.js'

/** A float; whole numbers without it are ints. */
export class Float {
  readonly value: number

  constructor(value: number) {
    this.value = value
  }
}

/** A name without a value: prints nothing, is false, has no attributes. */
export class Undefined {
  readonly name: string

  constructor(name: string) {
    this.name = name
  }
}

/** A value that may be missing: None is one, undefined is not. */
export const orUndefined = (value: Value | undefined, name: string): Value =>
  value === undefined ? new Undefined(name) : value

/** A list that prints with parentheses. */
export class Tuple extends Array<Value> {}

/** What `namespace()` makes: attributes that `set` can change. */
export class Namespace {
  readonly values: Map<Value, Value>

  constructor(values: Map<Value, Value>) {
    this.values = values
  }
}

/** A function of a template: positional and named arguments. */
export type Callable = (args: readonly Value[], named: ReadonlyMap<string, Value>) => Value

/** A value of a template; null is None. */
export type Value =
  | string
  | number
  | boolean
  | null
  | Float
  | Undefined
  | Namespace
  | Callable
  | Value[]
  | Map<Value, Value>

/** Python's name of the type of a value. */
export function typeOf(value: Value): string {
  if (value === null) return 'None'
  if (value instanceof Undefined) return `undefined '${value.name}'`
  if (value instanceof Float) return 'float'
  if (value instanceof Map) return 'dict'
  if (Array.isArray(value)) return value instanceof Tuple ? 'tuple' : 'list'
  if (value instanceof Namespace) return 'namespace'
  const names: Record<string, string> = {
    string: 'str',
    number: 'int',
    boolean: 'bool',
    function: 'function',
  }
  return names[typeof value] ?? typeof value
}

/** The number that a value counts as: bool is 0 or 1; undefined for no number. */
export function numberOf(value: Value): number | undefined {
  if (value instanceof Float) return value.value
  if (typeof value === 'boolean') return Number(value)
  return typeof value === 'number' ? value : undefined
}

export function isTrue(value: Value): boolean {
  if (value instanceof Map) return value.size > 0
  if (Array.isArray(value)) return value.length > 0
  if (value instanceof Float) return value.value !== 0
  return !(value instanceof Undefined) && Boolean(value)
}

export function isEqual(a: Value, b: Value): boolean {
  if (typeof a === 'string' && typeof b === 'string' && a.length === b.length) countUnits(a.length)
  const [left, right] = [numberOf(a), numberOf(b)]
  if (left !== undefined && right !== undefined) return left === right
  if (a instanceof Undefined && b instanceof Undefined) return true
  if (Array.isArray(a) && Array.isArray(b)) {
    countUnits(itemUnits * a.length)
    return a.length === b.length && a.every((item, i) => isEqual(item, b[i]!))
  }
  if (a instanceof Map && b instanceof Map) {
    countUnits(itemUnits * a.size)
    return a.size === b.size && [...a].every(([key, value]) => b.has(key) && isEqual(value, b.get(key)!))
  }
  return a === b
}

/** Negative, 0 or positive. Lists compare by their first different items. */
export function compare(a: Value, b: Value): number {
  const [left, right] = [numberOf(a), numberOf(b)]
  if (left !== undefined && right !== undefined) return left - right
  countUnits(itemUnits)
  if (typeof a === 'string' && typeof b === 'string') return a < b ? -1 : Number(a > b)
  if (Array.isArray(a) && Array.isArray(b)) {
    const differing = a.findIndex((item, i) => i < b.length && !isEqual(item, b[i]!))
    return differing < 0 ? a.length - b.length : compare(a[differing]!, b[differing]!)
  }
  throw new TemplateError(`${typeOf(a)} and ${typeOf(b)} can not be compared`)
}

function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf'
  const size = Math.abs(value)
  if (size !== 0 && (size >= 1e16 || size < 1e-4)) {
    const [digits = '', exponent = ''] = value.toExponential().split('e')
    return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, '0')}`
  }
  if (Object.is(value, -0)) return '-0.0'
  return Number.isInteger(value) ? value.toFixed(1) : String(value)
}

/** A text as Python's repr writes it. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'"
  const escapes: Record<string, string> = {
    '\n': '\\n',
    '\r': '\\r',
    '\t': '\\t',
    '\\': '\\\\',
    [quote]: `\\${quote}`,
  }
  const written = Array.from(text, character => escapes[character] ?? character).join('')
  return quote + written + quote
}

function repr(value: Value): string {
  countUnits(itemUnits + (typeof value === 'string' ? value.length : 0))
  return typeof value === 'string' ? quoted(value) : textOf(value)
}

/** A value as Python's str writes it. */
export function textOf(value: Value): string {
  if (typeof value === 'string') return value
  if (value === null) return 'None'
  if (value instanceof Undefined) return ''
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (value instanceof Float) return floatText(value.value)
  if (value instanceof Tuple) return `(${value.map(repr).join(', ')}${value.length === 1 ? ',' : ''})`
  if (Array.isArray(value)) return `[${value.map(repr).join(', ')}]`
  if (value instanceof Map)
    return `{${[...value].map(([key, item]) => `${repr(key)}: ${repr(item)}`).join(', ')}}`
  if (value instanceof Namespace) return `<Namespace ${textOf(value.values)}>`
  return typeof value === 'function' ? '<function>' : String(value)
}

/** The items that a loop over a value runs through; undefined for what can not be iterated. */
export function itemsOf(value: Value): readonly Value[] | undefined {
  if (Array.isArray(value)) return value
  if (typeof value === 'string') return Array.from(value)
  if (value instanceof Map) return [...value.keys()]
  return value instanceof Undefined ? [] : undefined
}

/** As {@link itemsOf}, with an error for what can not be iterated. */
export function expectItems(value: Value): readonly Value[] {
  const items = itemsOf(value)
  if (!items) throw new TemplateError(`${typeOf(value)} can not be iterated`)
  countUnits(items.length)
  return items
}

/** An integer argument. */
export function expectInt(value: Value, name: string): number {
  const number = numberOf(value)
  if (number === undefined || value instanceof Float)
    throw new TemplateError(`${name} must be an int, got ${typeOf(value)}`)
  return number
}

/** A text argument. */
export function expectString(value: Value, name: string): string {
  if (typeof value !== 'string') throw new TemplateError(`${name} must be a str, got ${typeOf(value)}`)
  return value
}

/** A value of JavaScript as one of templates: objects become dicts, numbers with a fraction floats. */
export function fromJavaScript(value: unknown, path: string, depth = 0): Value {
  if (depth > 100) throw new TemplateError(`${path} is nested deeper than 100 levels`, 'limit')
  if (value === undefined || value === null) return null
  if (typeof value === 'string' || typeof value === 'boolean') return value
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : new Float(value)
  if (typeof value === 'bigint' && Number.isSafeInteger(Number(value))) return Number(value)
  if (Array.isArray(value)) return value.map((item, i) => fromJavaScript(item, `${path}[${i}]`, depth + 1))
  if (typeof value === 'object') {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    return new Map(entries.map(([key, item]) => [key, fromJavaScript(item, `${path}.${key}`, depth + 1)]))
  }
  throw new TemplateError(`${path} is a ${typeof value}, which no template can use`)
}
