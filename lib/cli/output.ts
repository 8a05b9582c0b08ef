// output.ts: how commands print. Data goes to stdout, everything else to stderr.
import { readFileSync } from 'node:fs'
import { styleText } from 'node:util'
import Table from 'cli-table3'

type Style = Parameters<typeof styleText>[0]

/** The version in package.json. */
export function packageVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  return manifest.version
}

/** `text` in a style where stdout is a terminal that wants colours. */
export function styled(style: Style, text: string): string {
  return process.stdout.isTTY && !process.env.NO_COLOR ? styleText(style, text) : text
}

/** One JSON document on stdout. Bytes that JSON cannot hold (NaN, Infinity) become strings. */
export function printJson(value: unknown): void {
  const strict = (_key: string, inner: unknown): unknown =>
    typeof inner === 'number' && !Number.isFinite(inner) ? String(inner) : inner
  process.stdout.write(`${JSON.stringify(value, strict, 2)}\n`)
}

/** One line on stdout. */
export function print(line = ''): void {
  process.stdout.write(`${line}\n`)
}

/** One line on stderr. */
export function printError(line: string): void {
  process.stderr.write(`dgx-spark: ${line}\n`)
}

/** A table with light borders. Numbers (cells that begin with a digit) are aligned to the right by `right`. */
export function printTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  right: number[] = [],
): void {
  const table = new Table({
    head: head.map(text => styled('bold', text)),
    colAligns: head.map((_, column) => (right.includes(column) ? 'right' : 'left')),
    style: { head: [], border: [], compact: true },
    wordWrap: true,
  })
  for (const row of rows) table.push([...row])
  print(table.toString())
}

/** Two columns without borders: names and values. */
export function printPairs(pairs: readonly (readonly [string, string])[]): void {
  const width = pairs.reduce((longest, [name]) => Math.max(longest, name.length), 0)
  for (const [name, value] of pairs) print(`  ${name.padEnd(width)}  ${value}`)
}

/** Bytes with a unit people read: 1.5 GiB. */
export function formatBytes(bytes: number | null): string {
  if (bytes === null) return 'unknown'
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** power
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`
}
