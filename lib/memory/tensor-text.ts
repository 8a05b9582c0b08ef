// tensor-text.ts: tensors as text, shortened as NumPy does.
import { type DType, type DTypeArray, type ElementType, isDType, type TypedArrayOf } from '../core/dtype.js'
import { printable } from '../core/printable.js'
import { numel } from '../core/shape.js'
import { decode } from '../precision/casts.js'

/** Elements of a tensor of which all are shown. */
const maxShown = 1000

/** Characters of a line. */
const width = 80

/** What is shown of a tensor. */
interface Shown {
  readonly dtype: ElementType
  readonly shape: readonly number[]
  readonly data: TypedArrayOf<ElementType>
}

/** `f32 [2, 3]` */
export const tensorHeader = ({ dtype, shape }: Shown): string => `Tensor ${dtype} [${shape.join(', ')}]`

/** A tensor with its elements, the middle of long dimensions left out, without control characters. */
export function tensorText(tensor: Shown): string {
  const { dtype, shape, data } = tensor
  const header = tensorHeader(tensor)
  const perElement = dtype === 'c64' || dtype === 'c128' ? 2 : 1
  const count = numel(shape)
  if (data.length !== count * perElement) return `${header} (detached)`
  const edge = count <= maxShown ? Number.POSITIVE_INFINITY : edgeFor(shape)
  if (edge === 0) return header
  const rows = new Rows(shape, edge, positions => positions.map(at => elementText(tensor, at)))
  const body = rows.text()
  return `${header}${body.includes('\n') ? '\n' : ' '}${body}`
}

/** Elements shown at each end of a long dimension; 0 when even one would be too many. */
function edgeFor(shape: readonly number[]): number {
  for (const edge of [3, 2, 1])
    if (shape.reduce((product, size) => product * Math.min(size, 2 * edge), 1) <= maxShown) return edge
  return 0
}

function elementText({ dtype, data }: Shown, at: number): string {
  if (dtype === 'c64' || dtype === 'c128') {
    const [re, im] = [data[2 * at], data[2 * at + 1]] as [number, number]
    return `${numberText(re)}${im < 0 || Object.is(im, -0) ? '' : '+'}${numberText(im)}i`
  }
  if (dtype === 'string') return printable(JSON.stringify(data[at]))
  if (dtype === 'bool') return data[at] ? 'true' : 'false'
  if (typeof data[at] === 'bigint') return String(data[at])
  const codes = data as DTypeArray
  if (isDType(dtype) && dtype !== 'f32')
    return numberText(decode(codes.slice(at, at + 1) as TypedArrayOf<DType>, dtype)[0]!)
  return numberText(codes[at]!)
}

function numberText(value: number): string {
  if (Object.is(value, -0)) return '-0'
  const rounded = Number(value.toPrecision(6))
  if (Math.abs(value) < 1e15) return String(Number.isInteger(value) ? value : rounded)
  return Number.isFinite(value) ? rounded.toExponential() : String(value)
}

/** Nested brackets with the elements that are shown. */
class Rows {
  readonly #shape: readonly number[]
  readonly #edge: number
  readonly #texts: (positions: readonly number[]) => string[]
  #pad = 0

  constructor(shape: readonly number[], edge: number, texts: (positions: readonly number[]) => string[]) {
    this.#shape = shape
    this.#edge = edge
    this.#texts = texts
  }

  text(): string {
    if (this.#shape.length === 0) return this.#texts([0])[0]!
    const shown = this.#level(0, 0)
    this.#pad = shown.reduce(
      (most, row) => row.reduce((longest, { length }) => Math.max(longest, length), most),
      0,
    )
    let next = 0
    return this.#join(0, () => this.#line(shown[next++]!))
  }

  /** Indices along a dimension; undefined for those that are left out. */
  #indices(axis: number): (number | undefined)[] {
    const size = this.#shape[axis]!
    if (size <= 2 * this.#edge) return Array.from({ length: size }, (_, i) => i)
    const first = Array.from({ length: this.#edge }, (_, i) => i)
    return [...first, undefined, ...first.map(i => size - this.#edge + i)]
  }

  /** The texts of the innermost rows that are shown. */
  #level(axis: number, offset: number): string[][] {
    const stride = numel(this.#shape.slice(axis + 1))
    const indices = this.#indices(axis)
    if (axis === this.#shape.length - 1) {
      const texts = this.#texts(indices.filter(i => i !== undefined).map(i => offset + i))
      const gap = indices.indexOf(undefined)
      return [gap < 0 ? texts : [...texts.slice(0, gap), '…', ...texts.slice(gap)]]
    }
    return indices.flatMap(i => (i === undefined ? [] : this.#level(axis + 1, offset + i * stride)))
  }

  #join(axis: number, line: () => string): string {
    if (axis === this.#shape.length - 1) return line()
    const indent = ' '.repeat(axis + 1)
    const parts = this.#indices(axis).map(i => (i === undefined ? '…' : this.#join(axis + 1, line)))
    const between = `,${'\n'.repeat(Math.min(2, this.#shape.length - 1 - axis))}${indent}`
    return `[${parts.join(between)}]`
  }

  #line(texts: readonly string[]): string {
    const indent = ' '.repeat(this.#shape.length)
    let [text, column] = ['[', indent.length]
    for (const [i, item] of texts.entries()) {
      const padded = this.#shape.length > 1 ? item.padStart(item === '…' ? 0 : this.#pad) : item
      const piece = `${padded}${i < texts.length - 1 ? ',' : ''}`
      if (i > 0 && column + piece.length + 1 > width) {
        text += `\n${indent}`
        column = indent.length
      } else if (i > 0) {
        text += ' '
        column++
      }
      text += piece
      column += piece.length
    }
    return `${text}]`
  }
}
