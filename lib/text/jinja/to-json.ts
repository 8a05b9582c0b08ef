// to-json.ts: JSON as Python's json.dumps writes it, which is how transformers defines the filter tojson.
import { countUnits, itemUnits, TemplateError } from './budget.js'
import { Float, isTrue, Namespace, textOf, typeOf, Undefined, type Value } from './values.js'

interface JsonOptions {
  readonly indent: string | undefined
  readonly separators: readonly [string, string]
  readonly sortKeys: boolean
  readonly ascii: boolean
}

const escapeAscii = (text: string): string =>
  text.replace(/[\x7f-\uffff]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

function dump(value: Value, options: JsonOptions, line: string): string {
  countUnits(itemUnits + line.length + (typeof value === 'string' ? value.length : 0))
  if (value === null) return 'null'
  if (typeof value === 'string') {
    const text = JSON.stringify(value)
    return options.ascii ? escapeAscii(text) : text
  }
  if (value instanceof Float) {
    if (Number.isFinite(value.value)) return textOf(value)
    return Number.isNaN(value.value) ? 'NaN' : value.value > 0 ? 'Infinity' : '-Infinity'
  }
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const inner = options.indent === undefined ? '' : line + options.indent
  const [comma, colon] = options.separators
  const joined = (items: readonly string[], [open, close]: readonly [string, string]): string => {
    if (items.length === 0) return open + close
    return `${open}${inner}${items.join(comma + inner)}${options.indent === undefined ? '' : line}${close}`
  }
  if (Array.isArray(value))
    return joined(
      value.map(item => dump(item, options, inner)),
      ['[', ']'],
    )
  if (!(value instanceof Map)) {
    const what = value instanceof Undefined || value instanceof Namespace ? typeOf(value) : 'a function'
    throw new TemplateError(`${what} can not be written as JSON`)
  }
  const entries = [...value].map(
    ([key, item]) => [dumpKey(key, options), dump(item, options, inner)] as const,
  )
  if (options.sortKeys) entries.sort(([a], [b]) => (a < b ? -1 : Number(a > b)))
  return joined(
    entries.map(([key, item]) => key + colon + item),
    ['{', '}'],
  )
}

function dumpKey(key: Value, options: JsonOptions): string {
  const text = typeof key === 'string' ? key : dump(key, options, '')
  return dump(text, options, '')
}

/** The filter tojson. */
export function toJson(value: Value, named: ReadonlyMap<string, Value>): string {
  const given = named.get('indent') ?? null
  const indent = typeof given === 'number' ? ' '.repeat(Math.min(given, 32)) : undefined
  const separators = named.get('separators')
  const [comma, colon] = Array.isArray(separators)
    ? separators.map(textOf)
    : [indent === undefined ? ', ' : ',', ': ']
  const options = {
    indent,
    separators: [comma ?? '', colon ?? ''] as const,
    sortKeys: isTrue(named.get('sort_keys') ?? false),
    ascii: isTrue(named.get('ensure_ascii') ?? false),
  }
  return dump(value, options, '\n')
}
