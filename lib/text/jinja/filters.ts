// filters.ts: filters of templates, those of Jinja2 and the tojson of transformers.
import { countUnits, TemplateError } from './budget.js'
import { capitalized, joined, replaced, stripped, titled } from './methods.js'
import { binary } from './operators.js'
import { percentFormat, rounded } from './string-format.js'
import { testOf } from './tests.js'
import { toJson } from './to-json.js'
import {
  compare,
  expectInt,
  expectItems,
  Float,
  fromJavaScript,
  isEqual,
  isTrue,
  numberOf,
  orUndefined,
  Tuple,
  textOf,
  typeOf,
  Undefined,
  type Value,
} from './values.js'

/** What a filter works with besides its operand. */
interface FilterCall {
  readonly args: readonly Value[]
  readonly named: ReadonlyMap<string, Value>
}

type Filter = (value: Value, call: FilterCall) => Value

/** An argument by its position or its name. */
function argument({ args, named }: FilterCall, index: number, name: string, otherwise: Value): Value {
  const given = index < args.length ? args[index] : named.get(name)
  return given === undefined ? otherwise : given
}

/** The value at a path such as `function.name` or `0`. */
function attribute(value: Value, path: Value): Value {
  return textOf(path)
    .split('.')
    .reduce<Value>((found, name) => {
      const item =
        found instanceof Map ? found.get(name) : Array.isArray(found) ? found[Number(name)] : undefined
      return orUndefined(item, name)
    }, value)
}

/** Texts that are compared without regard to case. */
const folded = (value: Value, isCaseSensitive: boolean): Value =>
  typeof value === 'string' && !isCaseSensitive ? value.toLowerCase() : value

function sorted(value: Value, call: FilterCall): Value[] {
  const [reverse, sensitive] = [
    argument(call, 0, 'reverse', false),
    argument(call, 1, 'case_sensitive', false),
  ]
  const path = argument(call, 2, 'attribute', null)
  const key = (item: Value): Value => folded(path === null ? item : attribute(item, path), isTrue(sensitive))
  const sign = isTrue(reverse) ? -1 : 1
  return [...expectItems(value)].sort((a, b) => sign * compare(key(a), key(b)))
}

function dictSorted(value: Value, call: FilterCall): Value[] {
  if (!(value instanceof Map)) throw new TemplateError(`dictsort needs a dict, got ${typeOf(value)}`)
  const [sensitive, by] = [argument(call, 0, 'case_sensitive', false), argument(call, 1, 'by', 'key')]
  const part = by === 'value' ? 1 : 0
  const key = (item: readonly [Value, Value]): Value => folded(item[part], isTrue(sensitive))
  const sign = isTrue(argument(call, 2, 'reverse', false)) ? -1 : 1
  return [...value]
    .sort((a, b) => sign * compare(key(a), key(b)))
    .map(([k, v]) => Tuple.of<Value>(k, v) as Tuple)
}

/** select, reject, selectattr and rejectattr. */
const selecting =
  (isKept: boolean, byAttribute: boolean): Filter =>
  (value, { args }) => {
    const [path = '', ...rest] = byAttribute ? args : ['', ...args]
    const test = rest[0] === undefined ? isTrue : testOf(textOf(rest[0]))
    const subject = (item: Value): Value => (byAttribute ? attribute(item, path) : item)
    return expectItems(value).filter(item => test(subject(item), rest[1] ?? null) === isKept)
  }

function mapped(value: Value, call: FilterCall): Value[] {
  const items = expectItems(value)
  const path = call.named.get('attribute')
  if (path !== undefined) {
    const otherwise = call.named.get('default')
    return items.map(item => {
      const found = attribute(item, path)
      return found instanceof Undefined && otherwise !== undefined ? otherwise : found
    })
  }
  const [name = null, ...args] = call.args
  return items.map(item => applyFilter(textOf(name), item, { ...call, args }))
}

function unique(value: Value): Value[] {
  const found: Value[] = []
  const seen = new Set<Value>()
  for (const item of expectItems(value)) {
    const key = folded(item, false)
    const isKnown = seen.has(key) || (typeof key === 'object' && found.some(other => isEqual(other, item)))
    if (!isKnown) found.push(item)
    seen.add(key)
  }
  return found
}

function indented(value: Value, call: FilterCall): string {
  const width = argument(call, 0, 'width', 4)
  const [first, blank] = [argument(call, 1, 'first', false), argument(call, 2, 'blank', false)]
  const size = typeof width === 'string' ? width.length : Math.max(0, expectInt(width, 'width'))
  const lines = textOf(value).split('\n')
  countUnits(size * lines.length)
  const indent = typeof width === 'string' ? width : ' '.repeat(size)
  const isIndented = (line: string, i: number): boolean =>
    i === 0 ? isTrue(first) : line !== '' || isTrue(blank)
  return lines.map((line, i) => (isIndented(line, i) ? indent + line : line)).join('\n')
}

function truncated(value: Value, call: FilterCall): string {
  const [length, killsWords] = [argument(call, 0, 'length', 255), argument(call, 1, 'killwords', false)]
  const [end, leeway] = [argument(call, 2, 'end', '...'), argument(call, 3, 'leeway', 5)]
  const characters = Array.from(textOf(value))
  const max = expectInt(length, 'length')
  if (characters.length <= max + expectInt(leeway, 'leeway')) return textOf(value)
  const kept = characters.slice(0, Math.max(0, max - textOf(end).length)).join('')
  const lastSpace = kept.lastIndexOf(' ')
  return (isTrue(killsWords) || lastSpace < 0 ? kept : kept.slice(0, lastSpace)) + textOf(end)
}

function parsed(value: Value, isInteger: boolean, otherwise: Value): Value {
  const text = typeof value === 'string' ? value.trim() : undefined
  const number = text === undefined ? numberOf(value) : text === '' ? Number.NaN : Number(text)
  if (number === undefined || !Number.isFinite(number)) return otherwise
  return isInteger ? Math.trunc(number) : new Float(number)
}

function lengthOf(value: Value): number {
  if (value instanceof Map) return value.size
  return expectItems(value).length
}

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', "'": '&#39;', '"': '&#34;' }
const escaped: Filter = value => textOf(value).replace(/[&<>'"]/g, character => escapes[character]!)
const defaulted: Filter = (value, call) => {
  const isMissing =
    value instanceof Undefined || (isTrue(argument(call, 1, 'boolean', false)) && !isTrue(value))
  return isMissing ? argument(call, 0, 'default_value', '') : value
}
const edge =
  (index: number): Filter =>
  value =>
    orUndefined(expectItems(value).at(index), 'an item of an empty list')
const extreme =
  (sign: number): Filter =>
  value =>
    expectItems(value).reduce<Value>(
      (best, item) => (best instanceof Undefined || sign * compare(item, best) > 0 ? item : best),
      new Undefined('an item of an empty list'),
    )

function items(value: Value): Value[] {
  if (value instanceof Undefined) return []
  if (!(value instanceof Map)) throw new TemplateError(`items needs a dict, got ${typeOf(value)}`)
  return [...value].map(([key, item]) => Tuple.of<Value>(key, item) as Tuple)
}

function fromJson(value: Value): Value {
  try {
    return fromJavaScript(JSON.parse(textOf(value)), 'JSON')
  } catch {
    throw new TemplateError('from_json got a text that is no JSON')
  }
}

const filters: Readonly<Record<string, Filter>> = {
  abs: value =>
    value instanceof Float ? new Float(Math.abs(value.value)) : Math.abs(expectInt(value, 'abs')),
  capitalize: value => capitalized(textOf(value)),
  ...{ d: defaulted, default: defaulted },
  dictsort: dictSorted,
  ...{ e: escaped, escape: escaped },
  ...{ first: edge(0), last: edge(-1) },
  float: (value, call) => parsed(value, false, argument(call, 0, 'default', new Float(0))),
  format: (value, { args }) => percentFormat(textOf(value), args),
  from_json: fromJson,
  indent: indented,
  int: (value, call) => parsed(value, true, argument(call, 0, 'default', 0)),
  items,
  join: (value, call) => joinedBy(value, call),
  ...{ length: lengthOf, count: lengthOf },
  list: value => [...expectItems(value)],
  lower: value => textOf(value).toLowerCase(),
  map: mapped,
  ...{ max: extreme(1), min: extreme(-1) },
  ...{ select: selecting(true, false), reject: selecting(false, false) },
  ...{ selectattr: selecting(true, true), rejectattr: selecting(false, true) },
  replace: (value, { args }) => replaced(textOf(value), args),
  reverse: value => {
    const reversed = [...expectItems(value)].reverse()
    return typeof value === 'string' ? reversed.join('') : reversed
  },
  round: (value, call) =>
    rounded(value, argument(call, 0, 'precision', 0), textOf(argument(call, 1, 'method', 'common'))),
  safe: value => value,
  sort: sorted,
  string: textOf,
  sum: (value, call) => {
    const path = argument(call, 0, 'attribute', null)
    const terms = expectItems(value).map(item => (path === null ? item : attribute(item, path)))
    return terms.reduce<Value>((sum, item) => binary('+', sum, item), argument(call, 1, 'start', 0))
  },
  title: value => titled(textOf(value)),
  tojson: (value, { args, named }) =>
    toJson(value, args[0] === undefined ? named : new Map([['indent', args[0]]])),
  trim: (value, { args }) => stripped(textOf(value), args[0], 'both'),
  truncate: truncated,
  unique,
  upper: value => textOf(value).toUpperCase(),
  wordcount: value => textOf(value).split(/\s+/).filter(Boolean).length,
}

function joinedBy(value: Value, call: FilterCall): string {
  const [separator, path] = [argument(call, 0, 'd', ''), argument(call, 1, 'attribute', null)]
  const found = expectItems(value).map(item => (path === null ? item : attribute(item, path)))
  return joined(found, textOf(separator))
}

/** Applies a filter by its name; the characters of its result count. */
export function applyFilter(name: string, value: Value, call: FilterCall): Value {
  if (!Object.hasOwn(filters, name)) throw new TemplateError(`the filter '${name}' is not known`)
  countUnits(typeof value === 'string' ? value.length : 1)
  const result = filters[name]!(value, call)
  countUnits(typeof result === 'string' || Array.isArray(result) ? result.length : 1)
  return result
}
