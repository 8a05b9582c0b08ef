// table.ts: in-memory dataset from files, checked row by row.
import { type ElementArray, type ElementType, elementArrayOf, isHalf, isInteger } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { encode } from '../precision/casts.js'
import { ArrayDataset, type Batch, type BatchTensor, type Dataset } from '../training/dataset.js'

/** Conversion and checks of a field. */
export interface FieldRule {
  /** Name in batches. Default: as in the file. */
  readonly name?: string
  /** Shape of a sample, to reshape those of the file; one size may be −1. */
  readonly shape?: readonly number[]
  /** Element type in batches. Default: as in the file; f16 and bf16 become f32. */
  readonly dtype?: ElementType
  /** Factor, for f32, f16 and bf16. Default: 1. */
  readonly scale?: number
  /** Added after scaling. Default: 0. */
  readonly offset?: number
  /** Number of classes: elements must be class indices from 0 to below this. */
  readonly classes?: number
}

/** Rules by the name of the field in the file. */
export type FieldRules = Readonly<Record<string, FieldRule>>

/** A row or file that was skipped. */
export interface BadRow {
  /** The file, with the row if only that was skipped. */
  readonly source: string
  /** Why it was skipped. */
  readonly reason: string
}

/**
 * Samples of one or more files in memory, without invalid rows.
 * @example
 * const data = await openData('digits.safetensors', { target: { classes: 10 } })
 * if (data instanceof TableDataset) console.log(data.size, data.bad)
 */
export class TableDataset implements Dataset {
  /** Number of samples. */
  readonly size: number
  /** Rows and files that were skipped. */
  readonly bad: readonly BadRow[]
  readonly #samples: ArrayDataset

  /**
   * @param parts - fields of each file, which are concatenated
   * @param rules - conversion and checks of fields
   * @param bad - files that could not be read
   * @throws SparkError ERR_SHAPE when samples differ in shape or do not fit the rules, ERR_FORMAT when no row is left
   */
  constructor(
    parts: readonly { readonly source: string; readonly fields: Batch }[],
    rules: FieldRules = {},
    bad: readonly BadRow[] = [],
  ) {
    const found: BadRow[] = [...bad]
    const kept = parts.map(({ source, fields }) => {
      const ruled = Object.entries(fields).map(([name, field]): [string, BatchTensor] => {
        const rule = rules[name] ?? {}
        return [rule.name ?? name, applyRule(`${source}: ${name}`, field, rule)]
      })
      const checked = Object.entries(fields).map(([name, field]) => ({
        name,
        field,
        rule: rules[name] ?? {},
      }))
      return goodRows(source, Object.fromEntries(ruled), checked, found)
    })
    this.#samples = new ArrayDataset(joined(kept))
    this.size = this.#samples.size
    this.bad = found
    if (this.size > 0) return
    const first = found[0] ? `; ${found[0].source}: ${found[0].reason}` : ''
    throw new SparkError('ERR_FORMAT', `no valid rows${first}`)
  }

  /** Copies samples. */
  read(samples: readonly number[]): Batch {
    return this.#samples.read(samples)
  }
}

function applyRule(label: string, { shape, data }: BatchTensor, rule: FieldRule): BatchTensor {
  const { scale = 1, offset = 0, dtype } = rule
  const row = numel(shape.slice(1))
  let wanted = rule.shape ?? shape.slice(1)
  const rest = wanted.reduce((product, size) => (size === -1 ? product : product * size), 1)
  if (rest > 0) wanted = wanted.map(size => (size === -1 ? row / rest : size))
  if (numel(wanted) !== row || !wanted.every(Number.isInteger)) {
    const expected = `[${rule.shape!.join(', ')}]`
    throw new SparkError(
      'ERR_SHAPE',
      `${label}: a sample of [${shape.slice(1).join(', ')}] does not fit ${expected}`,
    )
  }
  return { shape: [shape[0] ?? 0, ...wanted], data: convert(data, dtype, scale, offset) }
}

function convert(
  data: ElementArray,
  dtype: ElementType | undefined,
  scale: number,
  offset: number,
): ElementArray {
  const array = dtype && elementArrayOf(dtype)
  const scaled = (value: number): number => Number(value) * scale + offset
  if (dtype && isHalf(dtype)) return encode(Float32Array.from(data as Float64Array, scaled), dtype)
  if (!array || (array === data.constructor && scale === 1 && offset === 0)) return data
  if (array === Float32Array) return Float32Array.from(data as Float64Array, scaled)
  const cast = array === BigInt64Array || array === BigUint64Array ? BigInt : Number
  return (array as Int32ArrayConstructor).from(data as Int32Array, cast as NumberConstructor)
}

/** A field as it is in the file. */
interface Checked {
  readonly name: string
  readonly field: BatchTensor
  readonly rule: FieldRule
}

/** Keeps the rows with finite, or where required integer, elements and valid classes; adds the others to `bad`. */
function goodRows(source: string, fields: Batch, checked: readonly Checked[], bad: BadRow[]): Batch {
  const samples = new ArrayDataset(fields)
  const good: number[] = []
  for (let row = 0; row < samples.size; row++) {
    const reason = checked.map(field => fault(field, row)).find(Boolean)
    if (reason === undefined) good.push(row)
    else bad.push({ source: `${source}, row ${row}`, reason })
  }
  return good.length === samples.size ? fields : samples.read(good)
}

function fault(
  { name, field: { shape, data }, rule: { classes, dtype } }: Checked,
  row: number,
): string | undefined {
  const size = data.length / (shape[0] ?? 1)
  const elements = data.subarray(row * size, (row + 1) * size)
  if (elements instanceof Float32Array || elements instanceof Float64Array) {
    const isWanted = dtype && isInteger(dtype) ? Number.isInteger : Number.isFinite
    const at = elements.findIndex(value => !isWanted(value))
    const wanted = isWanted === Number.isInteger ? `; ${dtype} holds integers` : ''
    if (at >= 0) return `${name}[${at}] is ${elements[at]}${Number.isFinite(elements[at]) ? wanted : ''}`
  }
  if (classes === undefined) return undefined
  const values = Array.from(elements as ArrayLike<number | bigint>, Number)
  const wrong = values.find(value => value < 0 || value >= classes)
  return wrong === undefined ? undefined : `${name} is ${wrong}; there are ${classes} classes`
}

/** Concatenates parts along the batch dimension. */
function joined(parts: readonly Batch[]): Batch {
  const [first = {}, ...others] = parts
  if (others.length === 0) return first
  return Object.fromEntries(
    Object.entries(first).map(([name, { shape, data }]) => {
      const pieces = parts.map(part => part[name]!)
      const odd = pieces.find(piece => String(piece.shape.slice(1)) !== String(shape.slice(1)))
      if (odd) {
        const shapes = [shape, odd.shape].map(sizes => `[${sizes.join(', ')}]`).join(' and ')
        throw new SparkError('ERR_SHAPE', `field '${name}' has batches of ${shapes}`)
      }
      const total = pieces.reduce((sum, piece) => sum + (piece.shape[0] ?? 0), 0)
      const whole = new (data.constructor as Float32ArrayConstructor)(
        pieces.reduce((sum, piece) => sum + piece.data.length, 0),
      )
      let start = 0
      for (const piece of pieces) {
        whole.set(piece.data as Float32Array, start)
        start += piece.data.length
      }
      return [name, { shape: [total, ...shape.slice(1)], data: whole }]
    }),
  )
}
