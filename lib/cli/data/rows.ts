// rows.ts: rows of data as a table, lines of JSON or CSV, on stdout or in a file, written as they come.
import path from 'node:path'
import { printable, printableJson } from '../../core/printable.js'
import { makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { printPieces } from '../output.js'

/** How rows are written. */
export const rowFormats = ['table', 'jsonl', 'csv'] as const
export type RowFormat = (typeof rowFormats)[number]

/** A value of a row; null where there is none. */
export type Cell = number | string | null

/** Lines of rows, the names of their columns first where the format has them there. */
export async function* rowLines(
  names: readonly string[],
  rows: Iterable<readonly Cell[]> | AsyncIterable<readonly Cell[]>,
  format: RowFormat,
): AsyncGenerator<string, void, undefined> {
  const widths = names.map(name => Math.max(12, name.length))
  const line = (cells: readonly string[], pad: 'padStart' | 'padEnd' = 'padStart'): string =>
    cells
      .map((cell, i) => cell[pad](widths[i]!))
      .join('  ')
      .trimEnd()
  if (format === 'csv') yield names.map(quoted).join(',')
  if (format === 'table') yield line(names.map(printable))
  for await (const cells of rows) {
    if (format === 'csv') yield cells.map(cell => (cell === null ? '' : quoted(String(cell)))).join(',')
    else if (format === 'table') yield line(cells.map(tableCell))
    else yield jsonLine(Object.fromEntries(names.map((name, i) => [name, cells[i]])))
  }
}

/** A text as a cell of CSV. */
function quoted(text: string): string {
  const safe = printable(text)
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}

function tableCell(cell: Cell): string {
  if (cell === null) return '-'
  return typeof cell === 'string' ? printable(cell) : String(Number(cell.toPrecision(8)))
}

/** A value as one line of JSON: bigint as text, typed arrays as arrays, NaN and Infinity as text. */
export function jsonLine(value: unknown): string {
  return printableJson(
    JSON.stringify(value, (_key, inner: unknown) => {
      if (typeof inner === 'bigint') return String(inner)
      if (typeof inner === 'number' && !Number.isFinite(inner)) return String(inner)
      return ArrayBuffer.isView(inner) ? Array.from(inner as Uint8Array) : inner
    }),
  )
}

/** Characters that are written at once. */
const pieceSize = 1 << 16

async function* pieces(lines: AsyncIterable<string>): AsyncGenerator<string, void, undefined> {
  let piece = ''
  for await (const line of lines) {
    piece += `${line}\n`
    if (piece.length < pieceSize) continue
    yield piece
    piece = ''
  }
  if (piece !== '') yield piece
}

async function* encoded(texts: AsyncIterable<string>): AsyncGenerator<Uint8Array, void, undefined> {
  const encoder = new TextEncoder()
  for await (const text of texts) yield encoder.encode(text)
}

/**
 * Writes printable lines to stdout, or to a file, which is there once it is complete.
 * @throws SparkError ERR_IO
 */
export async function writeLines(lines: AsyncIterable<string>, output: string | undefined): Promise<void> {
  if (output === undefined) return printPieces(pieces(lines))
  const target = path.resolve(output)
  await makeFolder(path.dirname(target))
  await writeFileAtomic(target, encoded(pieces(lines)))
}
