// string-format.ts: Python's `'%s' % value` and `'{}'.format(value)`.
import { countUnits, TemplateError } from './budget.js'
import { expectInt, Float, numberOf, textOf, typeOf, type Value } from './values.js'

/** A width or precision; larger ones would only fill the memory. */
const maxWidth = 1000

function sized(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined
  const size = Number(text)
  if (size > maxWidth) throw new TemplateError(`a width of ${text} is more than ${maxWidth}`, 'limit')
  return size
}

function padded(text: string, width: number, flags: string): string {
  if (flags.includes('-') || flags.includes('<')) return text.padEnd(width)
  const sign = /^[+-]/.test(text) ? text[0]! : ''
  return flags.includes('0')
    ? sign + text.slice(sign.length).padStart(width - sign.length, '0')
    : text.padStart(width)
}

function converted(value: Value, conversion: string, precision: number | undefined): string {
  if (conversion === 's' || conversion === '') {
    const text = textOf(value)
    return precision === undefined ? text : text.slice(0, precision)
  }
  const number = numberOf(value)
  if (number === undefined) throw new TemplateError(`%${conversion} needs a number, got ${typeOf(value)}`)
  if (conversion === 'd' || conversion === 'i') return String(Math.trunc(number))
  if (conversion === 'x') return Math.trunc(number).toString(16)
  if (conversion === 'f') return number.toFixed(Math.min(precision ?? 6, 100))
  if (conversion === 'g') return String(Number(number.toPrecision(precision || 6)))
  throw new TemplateError(`the conversion %${conversion} is not known`)
}

/** `'%05.1f|%s' % (a, b)`. */
export function percentFormat(format: string, values: readonly Value[]): string {
  let next = 0
  const text = format.replace(
    /%([-+0 #]*)(\d*)(?:\.(\d+))?([a-z%])/gi,
    (_, flags: string, width: string, precision: string | undefined, conversion: string) => {
      if (conversion === '%') return '%'
      if (next >= values.length)
        throw new TemplateError('there are not enough arguments for the format string')
      const written = converted(values[next++]!, conversion, sized(precision))
      const signed = flags.includes('+') && !written.startsWith('-') ? `+${written}` : written
      countUnits(signed.length)
      return padded(signed, sized(width) ?? 0, flags)
    },
  )
  if (next < values.length) throw new TemplateError('not all arguments are used by the format string')
  return text
}

/** `'{} {name}'.format(a, name=b)`; attributes and items of arguments are not reached. */
export function braceFormat(
  format: string,
  values: readonly Value[],
  named: ReadonlyMap<string, Value>,
): string {
  let next = 0
  return format.replace(
    /\{\{|\}\}|\{(\w*)(?::([<>]?)(0?)(\d*)(?:\.(\d+))?([a-z]?))?\}/g,
    (match, ...groups) => {
      if (match === '{{' || match === '}}') return match[0]!
      const [name, align, zero, width, precision, conversion = ''] = groups as (string | undefined)[]
      const value =
        name === '' ? values[next++] : /^\d+$/.test(name!) ? values[Number(name)] : named.get(name!)
      if (value === undefined) throw new TemplateError(`format has no argument '${name || next - 1}'`)
      const written = converted(value, conversion, sized(precision))
      countUnits(written.length)
      const isText = numberOf(value) === undefined && align === ''
      return padded(written, sized(width) ?? 0, (isText ? '<' : align!) + (zero ?? ''))
    },
  )
}

/** Rounds to `precision` digits after the point, as a float. */
export function rounded(value: Value, precision: Value, method: string): Float {
  const number = numberOf(value)
  if (number === undefined) throw new TemplateError(`round needs a number, got ${typeOf(value)}`)
  const scale = 10 ** Math.max(-100, Math.min(100, expectInt(precision, 'precision')))
  const round = method === 'ceil' ? Math.ceil : method === 'floor' ? Math.floor : Math.round
  return new Float(round(number * scale) / scale)
}
