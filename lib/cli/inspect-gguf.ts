// inspect-gguf.ts: `dgx-spark inspect` of a GGUF file: metadata, tensors, and the memory that a context takes.
import path from 'node:path'
import type { GgufFile, GgufTensor } from '../io/gguf/file.js'
import { readGguf } from '../io/gguf/gguf.js'
import type { GgufArray, GgufValue } from '../io/gguf/values.js'
import { formatCount } from './counts.js'
import { memoryOf, numberOf } from './gguf-memory.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import { printTable } from './table.js'
import {
  bitsEach,
  type FormatTotals,
  type Memory,
  memoryPairs,
  printTensors,
  sum,
  tensorRecords,
  totalsByFormat,
} from './text/tensor-tables.js'

/** Elements of an array, and characters of a string, that are shown. */
const [shownElements, shownCharacters] = [5, 60]

/** Prints what a file holds. */
export async function inspectGguf(
  file: string,
  options: { context?: number; json?: boolean },
): Promise<void> {
  const model = await readGguf(file)
  const tensors = [...model.tensors.values()]
  const memory = memoryOf(model, options.context)
  const formats = totalsByFormat(tensors)
  if (options.json) {
    printJson(report(model, tensors, formats, memory))
    return
  }
  print(styled('bold', path.basename(file)))
  printPairs(summary(model, tensors, memory))
  printTensors(tensors, formats)
  printTable(
    ['metadata', 'type', 'value'],
    [...model.metadata].map(([key, value]) => [key, typeOf(value), shortValue(value)]),
  )
}

/** What a person wants to know first, as names and values. */
function summary(
  model: GgufFile,
  tensors: readonly GgufTensor[],
  memory: Memory,
): (readonly [string, string])[] {
  const { weightBytes } = memory
  const parameters = sum(tensors, 'count')
  const bits = bitsEach(weightBytes, parameters)
  const limit = numberOf(model, 'context_length')
  const files = model.parts.length === 1 ? '1 file' : `${model.parts.length} files`
  const name = model.text('general.name')
  const tokens = model.texts('tokenizer.ggml.tokens')
  return [
    ['architecture', model.text('general.architecture') ?? 'not named'],
    ...(name === undefined ? [] : [['name', name] as const]),
    ['format', `GGUF ${model.version}, ${files}, aligned to ${model.alignment} bytes`],
    ['parameters', formatCount(parameters)],
    ['weights', `${formatBytes(weightBytes)}${bits && `, ${bits} bits a parameter`}`],
    ...(limit === undefined ? [] : [['context', `${limit} tokens at most`] as const]),
    ...(tokens ? [['vocabulary', `${tokens.length} tokens`] as const] : []),
    ...memoryPairs(memory),
  ]
}

const typeOf = (value: GgufValue): string =>
  value.type === 'array' ? `${value.of}[${value.value.length}]` : value.type

const shortText = (text: string): string =>
  text.length > shownCharacters ? `${text.slice(0, shownCharacters)}… (${text.length} characters)` : text

const firstOf = ({ value }: GgufArray): unknown[] => Array.from<unknown>(value.slice(0, shownElements))

/** A value that is no array; an f32 in as few digits as tell it from the others. */
function shortElement(type: string, value: unknown): string {
  if (type !== 'f32') return String(value)
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9]
  const rounded = digits.map(count => Number((value as number).toPrecision(count)))
  return String(rounded.find(number => Math.fround(number) === value) ?? value)
}

/** A value in a line. */
function shortValue(value: GgufValue): string {
  if (value.type !== 'array') return shortText(shortElement(value.type, value.value))
  const first = firstOf(value).map(element =>
    typeof element === 'string' ? JSON.stringify(element) : shortElement(value.of, element),
  )
  return shortText([...first, ...(value.value.length > shownElements ? ['…'] : [])].join(', '))
}

/** A number that JSON holds; beyond 2^53 its digits. */
const jsonNumber = (value: unknown): unknown => {
  if (typeof value !== 'bigint') return value
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value)
}

/** A value of the JSON document: arrays are their length and their first elements. */
function jsonValue(value: GgufValue): object {
  if (value.type !== 'array') return { type: value.type, value: jsonNumber(value.value) }
  return { type: 'array', of: value.of, count: value.value.length, first: firstOf(value).map(jsonNumber) }
}

/** The JSON document. */
const report = (
  model: GgufFile,
  tensors: readonly GgufTensor[],
  formats: ReadonlyMap<string, FormatTotals>,
  memory: Memory,
) => ({
  kind: 'gguf',
  version: model.version,
  alignment: model.alignment,
  parts: model.parts,
  architecture: model.text('general.architecture') ?? null,
  parameters: sum(tensors, 'count'),
  memory,
  formats: Object.fromEntries(formats),
  metadata: Object.fromEntries([...model.metadata].map(([key, value]) => [key, jsonValue(value)])),
  tensors: tensorRecords(tensors),
})
