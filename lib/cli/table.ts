// table.ts: tables on stdout.
import Table from 'cli-table3'
import { type Printed, shown, styled } from './output.js'

/** A table with light borders. Numbers (cells that begin with a digit) are aligned to the right by `right`. */
export function printTable(
  head: readonly string[],
  rows: readonly (readonly Printed[])[],
  right: number[] = [],
): void {
  const table = new Table({
    head: head.map(text => shown(styled('bold', text))),
    colAligns: head.map((_, column) => (right.includes(column) ? 'right' : 'left')),
    style: { head: [], border: [], compact: true },
    wordWrap: true,
  })
  for (const row of rows) table.push(row.map(shown))
  process.stdout.write(`${table.toString()}\n`)
}
