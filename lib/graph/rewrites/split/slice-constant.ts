// slice-constant.ts: parts of constants; weights in blocks stay in their blocks.
import { elementBits } from '../../../core/dtype.js'
import { numel } from '../../../core/shape.js'
import { filePieces } from '../../../weights/file-parts.js'
import { lengthOf, type Range } from '../../../weights/range.js'
import { sliceWeight, whyUncut } from '../../../weights/slice.js'
import { Constant, type NumericType } from '../../constant.js'
import { weightConstant } from '../../weight-constant.js'

/** The rows and columns of a weight that are a part of a constant. */
function weightParts(
  { shape, weight }: Constant,
  axis: number,
  ranges: readonly Range[],
): { rows?: readonly Range[]; cols?: readonly Range[] } {
  const isColumns = weight!.transposed ? axis === 0 : axis === shape.length - 1
  if (isColumns) return { cols: ranges }
  if (weight!.transposed) return { rows: ranges }
  // Rows are all dimensions but the last one.
  const inner = numel(shape.slice(axis + 1, -1))
  const rows: Range[] = []
  for (let outer = 0; outer < numel(shape.slice(0, axis)); outer++)
    for (const { begin, end } of ranges) {
      const base = outer * shape[axis]!
      rows.push({ begin: (base + begin) * inner, end: (base + end) * inner })
    }
  return { rows }
}

/** Why a constant cannot be cut there; undefined where it can. */
export function whyWhole(constant: Constant, axis: number, ranges: readonly Range[]): string | undefined {
  const { weight, shape, dtype } = constant
  if (weight) {
    const { rows, cols } = weightParts(constant, axis, ranges)
    if (cols && weight.order) return 'its columns are in an order of their own'
    return whyUncut(weight.shared, rows, cols)
  }
  if (dtype === 'string') return 'it is one of strings'
  const bits = elementBits[dtype] * numel(shape.slice(axis + 1))
  const inside = [...ranges.flatMap(({ begin, end }) => [begin, end]), shape[axis]!].some(
    at => (at * bits) % 8 !== 0,
  )
  return inside ? `elements of ${dtype} share bytes there` : undefined
}

/** A part of a constant that {@link whyWhole} has nothing against. */
export function sliceConstant(constant: Constant, axis: number, ranges: readonly Range[]): Constant {
  const shape = constant.shape.map((size, i) => (i === axis ? lengthOf(ranges) : size))
  if (constant.weight) {
    const { shared, ...use } = constant.weight
    const { rows, cols } = weightParts(constant, axis, ranges)
    return weightConstant(shape, sliceWeight(shared.lazy ?? shared.kept, rows, cols), use)
  }
  const dtype = constant.dtype as NumericType
  const byteLength = Math.ceil((numel(shape) * elementBits[dtype]) / 8)
  const pieces = (): Generator<Range> => bytePieces(constant, axis, ranges)
  const [first] = pieces()
  if (first && first.end - first.begin === byteLength) {
    const part = constant.part(first.begin, byteLength)
    if (part) return Constant.lazy(dtype, shape, part)
  }
  const cut = (bytes: Uint8Array): Uint8Array => joinPieces(bytes, pieces(), byteLength)
  if (constant.inMemory) return Constant.from(dtype, shape, cut(constant.bytes))
  const { load } = constant
  const loading = load && { load: async () => cut(await load()) }
  return Constant.lazy(dtype, shape, {
    byteLength,
    read: () => cut(constant.bytes),
    ...loading,
    get fileParts() {
      return filePieces(constant.fileParts, pieces())
    },
  })
}

/** The bytes of a part of a constant: pieces of those of the whole. */
function* bytePieces(
  { shape, dtype }: Constant,
  axis: number,
  ranges: readonly Range[],
): Generator<Range, void, void> {
  const inner = (numel(shape.slice(axis + 1)) * elementBits[dtype]) / 8
  const outer = numel(shape.slice(0, axis))
  for (let i = 0; i < outer; i++)
    for (const { begin, end } of ranges) {
      const base = i * shape[axis]!
      yield { begin: (base + begin) * inner, end: (base + end) * inner }
    }
}

function joinPieces(bytes: Uint8Array, pieces: Iterable<Range>, byteLength: number): Uint8Array {
  const joined = new Uint8Array(byteLength)
  let at = 0
  for (const { begin, end } of pieces) {
    joined.set(bytes.subarray(begin, end), at)
    at += end - begin
  }
  return joined
}
