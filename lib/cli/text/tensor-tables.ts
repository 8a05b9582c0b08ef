// tensor-tables.ts: tables of the tensors of language models, and the memory that one takes.
import { formatCount } from '../counts.js'
import { formatBytes } from '../output.js'
import { printTable } from '../table.js'

/** A tensor of a file. */
export interface ListedTensor {
  readonly name: string
  readonly format: string
  readonly shape: readonly number[]
  /** Elements. */
  readonly count: number
  readonly byteLength: number
}

/** Tensors of one format together. */
export interface FormatTotals {
  readonly tensors: number
  readonly parameters: number
  readonly bytes: number
}

/** What weights, and a context of keys and values take. */
export interface Memory {
  /** Tokens. */
  readonly context: number
  readonly weightBytes: number
  /** Keys and values of all layers in f16; null where the model does not say. */
  readonly cacheBytes: number | null
  readonly totalBytes: number | null
  /** Why there is no number, or what it leaves out. */
  readonly note?: string
}

/** Tokens of a context that nobody named, unless the model has fewer. */
const usualContext = 8192

/** Bytes of an element of the cache, which is f16. */
const cacheElementBytes = 2

/** What is known of a cache. */
export interface CacheFacts {
  /** Elements of keys and values that all layers keep of a token, or why nobody knows. */
  readonly perToken: number | string
  /** Tokens of the longest context. */
  readonly limit: number | undefined
  readonly note?: string | undefined
}

/** The memory that a context of `given` tokens takes; without a number of a usual one, or of the longest one. */
export function memoryWith(weightBytes: number, given: number | undefined, cache: CacheFacts): Memory {
  const { perToken, limit = usualContext, note } = cache
  const context = given ?? Math.min(usualContext, limit)
  if (typeof perToken === 'string')
    return { context, weightBytes, cacheBytes: null, totalBytes: null, note: perToken }
  const cacheBytes = perToken * context * cacheElementBytes
  return { context, weightBytes, cacheBytes, totalBytes: weightBytes + cacheBytes, ...(note && { note }) }
}

/** Rows about memory, as names and values. */
export function memoryPairs({
  context,
  cacheBytes,
  totalBytes,
  note,
}: Memory): (readonly [string, string])[] {
  const cache =
    cacheBytes === null ? `unknown: ${note}` : `${formatBytes(cacheBytes)} in f16${note ? `, ${note}` : ''}`
  return [
    [`cache of ${context} tokens`, cache],
    ...(totalBytes === null ? [] : [['memory', `${formatBytes(totalBytes)} for weights and cache`] as const]),
  ]
}

export const bitsEach = (bytes: number, parameters: number): string =>
  parameters === 0 ? '' : ((8 * bytes) / parameters).toFixed(2)

export const sum = (tensors: readonly ListedTensor[], of: 'count' | 'byteLength'): number =>
  tensors.reduce((total, tensor) => total + tensor[of], 0)

/** By descending bytes. */
export function totalsByFormat(tensors: readonly ListedTensor[]): Map<string, FormatTotals> {
  const totals = new Map<string, FormatTotals>()
  for (const { format, count, byteLength } of tensors) {
    const before = totals.get(format) ?? { tensors: 0, parameters: 0, bytes: 0 }
    totals.set(format, {
      tensors: before.tensors + 1,
      parameters: before.parameters + count,
      bytes: before.bytes + byteLength,
    })
  }
  return new Map([...totals].sort(([, a], [, b]) => b.bytes - a.bytes))
}

/** Prints bytes by format, and a row for each kind of tensor: those of all layers where shape and format are the same. */
export function printTensors(
  tensors: readonly ListedTensor[],
  formats: ReadonlyMap<string, FormatTotals>,
): void {
  printTable(
    ['format', 'tensors', 'parameters', 'bytes', 'bits each'],
    [...formats].map(([name, { tensors, parameters, bytes }]) => [
      name,
      String(tensors),
      formatCount(parameters),
      formatBytes(bytes),
      bitsEach(bytes, parameters),
    ]),
    [1, 2, 3, 4],
  )
  printTable(['tensor', 'shape', 'format', 'tensors', 'bytes'], kindRows(tensors), [3, 4])
}

/** Numbers of layers, and of experts in them, in names of tensors. */
const numbers = /(^|\.)(blk|layers?|h|blocks?|experts)\.\d+(?=\.)/g

function kindRows(tensors: readonly ListedTensor[]): string[][] {
  const kinds = new Map<string, ListedTensor[]>()
  for (const tensor of tensors) {
    const name = tensor.name.replace(numbers, '$1$2.*')
    const kind = JSON.stringify([name, tensor.shape, tensor.format])
    const members = kinds.get(kind) ?? []
    kinds.set(kind, members)
    members.push(tensor)
  }
  return [...kinds].map(([kind, members]) => {
    const [name, shape, format] = JSON.parse(kind)
    const bytes = formatBytes(sum(members, 'byteLength'))
    return [name, `[${shape.join(', ')}]`, format, String(members.length), bytes]
  })
}

/** Tensors as a JSON document has them. */
export const tensorRecords = (tensors: readonly ListedTensor[]) =>
  tensors.map(({ name, format, shape, count, byteLength }) => ({
    name,
    format,
    shape,
    parameters: count,
    bytes: byteLength,
  }))
