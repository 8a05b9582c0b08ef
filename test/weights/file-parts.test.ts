// Where pieces of weights are in their files.
import t from 'tap'
import { filePieces } from '#lib/weights/file-parts.js'
import { LazyRows, type LazyWeight } from '#lib/weights/lazy-weight.js'
import type { Range } from '#lib/weights/range.js'
import { sliceWeight } from '#lib/weights/slice.js'
import { storedBytes } from '../fixtures/weights/stored-bytes.js'

const mebibyte = 2 ** 20
const part = (file: string, begin: number, byteLength: number) => ({ file, begin, byteLength })

t.test('pieces of several parts, of which neighbours are one', async t => {
  const parts = [part('a', 100, 10), part('b', 0, 4 * mebibyte), part('b', 8 * mebibyte, 20)]
  const pieces = (...ranges: [number, number][]) =>
    filePieces(
      parts,
      ranges.map(([begin, end]) => ({ begin, end })),
    )
  t.strictSame(pieces([0, 10]), [part('a', 100, 10)])
  t.strictSame(pieces([2, 12]), [part('a', 102, 8), part('b', 0, 2)])
  t.strictSame(pieces([12, 20], [30, 40]), [part('b', 2, 28)], 'a gap of less than a mebibyte is read')
  t.strictSame(pieces([10, 20], [10 + 2 * mebibyte, 20 + 2 * mebibyte]), [
    part('b', 0, 10),
    part('b', 2 * mebibyte, 10),
  ])
  t.strictSame(pieces([0, 30 + 4 * mebibyte]), [
    part('a', 100, 10),
    part('b', 0, 4 * mebibyte),
    part('b', 8 * mebibyte, 20),
  ])
  t.strictSame(pieces([5, 5]), [])
})

t.test('rows of a weight, and columns, which lie between others', async t => {
  const stored = (file: string, bytes: number) => ({
    ...storedBytes(new Uint8Array(bytes)),
    fileParts: [part(file, 1000, bytes)],
  })
  const half = (file: string): LazyRows => new LazyRows('q8_0', 4, 64, stored(file, 4 * 68))
  const weight = LazyRows.concat([half('a'), half('b')])
  const sliced = (rows?: readonly Range[], cols?: readonly Range[]): LazyWeight =>
    sliceWeight(weight, rows, cols) as LazyWeight
  const rows = [{ begin: 3, end: 6 }]
  const own = [part('a', 1000 + 3 * 68, 68), part('b', 1000, 2 * 68)]
  t.strictSame(sliced(rows).fileParts, own)
  t.strictSame(sliced(undefined, [{ begin: 32, end: 64 }]).fileParts, weight.fileParts)
  const column = sliced(rows, [{ begin: 0, end: 32 }])
  t.strictSame(column.fileParts, weight.fileParts)
  const again = sliceWeight(column, [{ begin: 0, end: 1 }], undefined) as LazyWeight
  t.strictSame(again.fileParts, weight.fileParts, 'rows of columns are not neighbours')
})
