// output.ts: terminal output of commands. Data goes to stdout, everything else to stderr; text from files is escaped.
import { once } from 'node:events'
import { styleText } from 'node:util'
import { printable, printableJson, printableLines } from '../core/printable.js'

type Style = Parameters<typeof styleText>[0]

/** A text in a style. */
export class Styled {
  readonly #style: Style
  readonly #text: string

  constructor(style: Style, text: string) {
    this.#style = style
    this.#text = printable(text)
  }

  /** Characters of the text. */
  get length(): number {
    return this.#text.length
  }

  /** Characters of the text in the same style. */
  slice(start: number, end?: number): Styled {
    return new Styled(this.#style, this.#text.slice(start, end))
  }

  /** With escape sequences where stdout is a terminal that wants colours. */
  toString(): string {
    return process.stdout.isTTY && !process.env.NO_COLOR ? styleText(this.#style, this.#text) : this.#text
  }
}

/** Printed text: any of it may contain names from files, so escape sequences come from styles only. */
export type Printed = string | Styled

/** `text` in a style where stdout is a terminal that wants colours. */
export const styled = (style: Style, text: string): Styled => new Styled(style, text)

/** The text of a part, safe for a terminal. */
export const shown = (part: Printed): string => (typeof part === 'string' ? printable(part) : String(part))

/** A value as printable JSON. Numbers that JSON cannot hold (NaN, Infinity) become strings. */
export function jsonText(value: unknown, indent = 0): string {
  const strict = (_key: string, inner: unknown): unknown =>
    typeof inner === 'number' && !Number.isFinite(inner) ? String(inner) : inner
  return printableJson(JSON.stringify(value, strict, indent))
}

/** One JSON document on stdout, as {@link jsonText} writes it. */
export function printJson(value: unknown, indent = 2): void {
  process.stdout.write(`${jsonText(value, indent)}\n`)
}

/** One line on stdout. */
export function print(...parts: readonly Printed[]): void {
  process.stdout.write(`${parts.map(shown).join('')}\n`)
}

/** Texts that are printable, such as many lines at once, on stdout, no faster than they are read. */
export async function printPieces(texts: AsyncIterable<string>): Promise<void> {
  for await (const text of texts) if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}

/** One line on stderr. */
export function printError(line: string): void {
  process.stderr.write(`dgx-spark: ${printable(line)}\n`)
}

/** Where commander writes its lines, which quote the command line. */
export const commanderOutput = {
  writeOut: (text: string): void => {
    process.stdout.write(printableLines(text))
  },
  writeErr: (text: string): void => {
    process.stderr.write(printableLines(text))
  },
}

/** Two columns without borders: names and values. */
export function printPairs(pairs: readonly (readonly [string, string])[]): void {
  const lines = pairs.map(([name, value]) => [printable(name), value] as const)
  const width = lines.reduce((longest, [name]) => Math.max(longest, name.length), 0)
  for (const [name, value] of lines) print(`  ${name.padEnd(width)}  ${value}`)
}

/** Bytes with a unit people read: 1.5 GiB. */
export function formatBytes(bytes: number | null): string {
  if (bytes === null) return 'unknown'
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** power
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`
}
