// methods.ts: methods of Python's str, list and dict that templates call.
import { countUnits, TemplateError } from './budget.js'
import { braceFormat } from './string-format.js'
import {
  type Callable,
  expectInt,
  expectItems,
  expectString,
  isEqual,
  Tuple,
  textOf,
  type Value,
} from './values.js'

type Method<T> = (self: T, args: readonly Value[], named: ReadonlyMap<string, Value>) => Value

/** Without the characters, white space by default, at one or both ends. */
export function stripped(text: string, given: Value | undefined, sides: 'both' | 'left' | 'right'): string {
  if (given === undefined || given === null) {
    if (sides === 'left') return text.trimStart()
    return sides === 'right' ? text.trimEnd() : text.trim()
  }
  const characters = new Set(expectString(given, 'the characters to strip'))
  const all = Array.from(text)
  let [begin, end] = [0, all.length]
  if (sides !== 'right') while (begin < end && characters.has(all[begin]!)) begin++
  if (sides !== 'left') while (end > begin && characters.has(all[end - 1]!)) end--
  return all.slice(begin, end).join('')
}

function splitAtSpaces(text: string, max: number): string[] {
  const parts: string[] = []
  let rest = text.trimStart()
  while (rest !== '') {
    const end = parts.length === max ? -1 : rest.search(/\s/)
    parts.push(end < 0 ? rest : rest.slice(0, end))
    rest = end < 0 ? '' : rest.slice(end).trimStart()
  }
  return parts
}

function split(text: string, [separator = null, max = -1]: readonly Value[], fromRight: boolean): string[] {
  const limit = expectInt(max, 'maxsplit') < 0 ? Number.POSITIVE_INFINITY : (max as number)
  if (separator === null) return splitAtSpaces(text, limit)
  const by = expectString(separator, 'the separator')
  if (by === '') throw new TemplateError('split needs a separator that is not empty')
  const parts = text.split(by)
  const joined = parts.length - 1 - limit
  if (joined <= 0) return parts
  return fromRight
    ? [parts.slice(0, joined + 1).join(by), ...parts.slice(joined + 1)]
    : [...parts.slice(0, limit), parts.slice(limit).join(by)]
}

/** Replaces a text everywhere, or at the first `count` of its occurrences. */
export function replaced(text: string, [from, to, count]: readonly Value[]): string {
  const [old, by] = [expectString(from ?? null, 'the old text'), expectString(to ?? null, 'the new text')]
  const times = count === undefined || count === null ? -1 : expectInt(count, 'count')
  const parts = old === '' ? ['', ...text, ''] : text.split(old)
  countUnits(text.length + parts.length * by.length)
  const joined = times < 0 ? parts.length - 1 : Math.min(times, parts.length - 1)
  return (
    parts.slice(0, joined + 1).join(by) +
    parts
      .slice(joined + 1)
      .map(part => old + part)
      .join('')
  )
}

/** The first letter large, others small; of each word for `title`. */
export const capitalized = (text: string): string =>
  text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase()
export const titled = (text: string): string => text.replace(/\p{L}+/gu, capitalized)

const affix = (args: readonly Value[], test: (affix: string) => boolean): boolean =>
  (args[0] instanceof Tuple ? args[0] : [args[0] ?? null]).some(item => test(expectString(item, 'the text')))

const matches =
  (pattern: RegExp): Method<string> =>
  text =>
    pattern.test(text)

function justified(side: 'left' | 'right' | 'both'): Method<string> {
  return (text, [width = 0, fill = ' ']) => {
    const missing = Math.max(0, expectInt(width, 'width') - Array.from(text).length)
    countUnits(missing)
    const before = side === 'left' ? 0 : side === 'right' ? missing : Math.floor(missing / 2)
    const character = expectString(fill, 'the fill character')
    return character.repeat(before) + text + character.repeat(missing - before)
  }
}

const stringMethods: Readonly<Record<string, Method<string>>> = {
  strip: (text, [characters]) => stripped(text, characters, 'both'),
  lstrip: (text, [characters]) => stripped(text, characters, 'left'),
  rstrip: (text, [characters]) => stripped(text, characters, 'right'),
  split: (text, [separator, max], named) =>
    split(text, [separator ?? named.get('sep') ?? null, max ?? named.get('maxsplit') ?? -1], false),
  rsplit: (text, args) => split(text, args, true),
  splitlines: text => (text === '' ? [] : text.replace(/\r?\n$/, '').split(/\r\n|\r|\n/)),
  startswith: (text, args) => affix(args, start => text.startsWith(start)),
  endswith: (text, args) => affix(args, end => text.endsWith(end)),
  removeprefix: (text, [part = '']) =>
    text.startsWith(textOf(part)) ? text.slice(textOf(part).length) : text,
  removesuffix: (text, [part = '']) =>
    part !== '' && text.endsWith(textOf(part)) ? text.slice(0, -textOf(part).length) : text,
  upper: text => text.toUpperCase(),
  lower: text => text.toLowerCase(),
  title: titled,
  capitalize: capitalized,
  replace: (text, [from = null, to = null, count], named) =>
    replaced(text, [from, to, count ?? named.get('count') ?? null]),
  find: (text, [part = '']) => text.indexOf(expectString(part, 'the text')),
  rfind: (text, [part = '']) => text.lastIndexOf(expectString(part, 'the text')),
  count: (text, [part = '']) => text.split(expectString(part, 'the text')).length - 1,
  join: (text, [items = []]) => joined(expectItems(items), text),
  format: (text, args, named) => braceFormat(text, args, named),
  rjust: justified('right'),
  ljust: justified('left'),
  center: justified('both'),
  zfill: (text, [width = 0]) => justified('right')(text, [width, '0'], new Map()),
  isdigit: matches(/^\p{Nd}+$/u),
  isnumeric: matches(/^\p{N}+$/u),
  isalpha: matches(/^\p{L}+$/u),
  isalnum: matches(/^[\p{L}\p{N}]+$/u),
  isspace: matches(/^\s+$/),
  isupper: text => text !== text.toLowerCase() && text === text.toUpperCase(),
  islower: text => text !== text.toUpperCase() && text === text.toLowerCase(),
}

/** The texts of items with a separator between them. */
export function joined(items: readonly Value[], separator: string): string {
  const texts = items.map(textOf)
  countUnits(texts.reduce((sum, text) => sum + text.length + separator.length, 0))
  return texts.join(separator)
}

const listMethods: Readonly<Record<string, Method<Value[]>>> = {
  append: (list, [item = null]) => {
    list.push(item)
    return null
  },
  pop: list => list.pop() ?? null,
  index: (list, [item = null]) => list.findIndex(other => isEqual(other, item)),
  count: (list, [item = null]) => list.filter(other => isEqual(other, item)).length,
}

const dictMethods: Readonly<Record<string, Method<Map<Value, Value>>>> = {
  get: (dict, [key = null, otherwise = null]) => (dict.has(key) ? dict.get(key)! : otherwise),
  items: dict => [...dict].map(([key, value]) => Tuple.of<Value>(key, value) as Tuple),
  keys: dict => [...dict.keys()],
  values: dict => [...dict.values()],
  copy: dict => new Map(dict),
  pop: (dict, [key = null, otherwise = null]) => {
    const value = dict.has(key) ? dict.get(key)! : otherwise
    dict.delete(key)
    return value
  },
  update: (dict, [other = null], named) => {
    for (const [key, value] of other instanceof Map ? other : []) dict.set(key, value)
    for (const [key, value] of named) dict.set(key, value)
    return null
  },
}

/** A method of a value by its name; undefined for one that it does not have. */
export function methodOf(value: Value, name: string): Callable | undefined {
  const find = <T>(methods: Readonly<Record<string, Method<T>>>, self: T): Callable | undefined => {
    if (!Object.hasOwn(methods, name)) return undefined
    return (args, named) => {
      countUnits(typeof self === 'string' ? self.length : 1)
      return methods[name]!(self, args, named)
    }
  }
  if (typeof value === 'string') return find(stringMethods, value)
  if (value instanceof Map) return find(dictMethods, value)
  return Array.isArray(value) ? find(listMethods, value) : undefined
}
