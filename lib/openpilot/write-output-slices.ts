// write-output-slices.ts: the table of outputs that openpilot's models carry, written as Python pickles it.
import { argumentError, expectObject } from '../core/checks.js'
import type { OutputSlices } from './metadata.js'

/** Opcodes of pickle protocol 4 (Python's Lib/pickletools.py). */
const op = {
  proto: 0x80,
  frame: 0x95,
  emptyDict: 0x7d,
  memoize: 0x94,
  mark: 0x28,
  shortText: 0x8c,
  text: 0x58,
  byte: 0x4b,
  twoBytes: 0x4d,
  fourBytes: 0x4a,
  none: 0x4e,
  global: 0x93,
  get: 0x68,
  tuple3: 0x87,
  reduce: 0x52,
  setItem: 0x73,
  setItems: 0x75,
  stop: 0x2e,
} as const

/** Place of `builtins.slice` in the memo: behind the dictionary, the first name, and the two parts of its own name. */
const sliceMemo = 4

/** Entries that Python sets at once. */
const batch = 1000

/**
 * The bytes that `pickle.dumps(slices, protocol=4)` gives for a dictionary of slices; the metadata entry `output_slices` of
 * openpilot's ONNX files is their base64 text.
 * @param slices - by the names of the outputs, at most 1000
 * @throws SparkError ERR_ARGUMENT for what is no slice, or too many of them
 */
export function writeOutputSlices(slices: OutputSlices): Uint8Array {
  expectObject('slices', 'slices by the names of the outputs', slices)
  const entries = Object.entries(slices)
  if (entries.length > batch) throw argumentError('slices', `at most ${batch} slices`, entries.length)
  const items = entries.flatMap(([name, slice], i) => entryOf(name, slice, i === 0))
  const several = entries.length > 1
  const body = [
    ...[op.emptyDict, op.memoize],
    ...(several ? [op.mark] : []),
    ...items,
    ...(several ? [op.setItems] : entries.length === 1 ? [op.setItem] : []),
    op.stop,
  ]
  const frame = body.length < 4 ? [] : [op.frame, ...littleEndian(body.length, 8)]
  return Uint8Array.from([op.proto, 4, ...frame, ...body])
}

function entryOf(name: string, slice: OutputSlices[string], isFirst: boolean): number[] {
  const label = `slices.${name}`
  expectObject(label, 'a slice, such as { start: 0, end: 990 }', slice)
  const sliceClass = isFirst
    ? [...textOf('builtins'), ...textOf('slice'), op.global, op.memoize]
    : [op.get, sliceMemo]
  const ends = [...numberOf(`${label}.start`, slice.start), ...numberOf(`${label}.end`, slice.end)]
  const made = [op.tuple3, op.memoize, op.reduce, op.memoize]
  return [...textOf(name), ...sliceClass, ...ends, op.none, ...made]
}

function textOf(text: string): number[] {
  const bytes = new TextEncoder().encode(text)
  const head = bytes.length < 256 ? [op.shortText, bytes.length] : [op.text, ...littleEndian(bytes.length, 4)]
  return [...head, ...bytes, op.memoize]
}

function numberOf(what: string, value: number | null): number[] {
  if (value === null) return [op.none]
  if (typeof value !== 'number' || (value | 0) !== value)
    throw argumentError(what, 'an integer of 32 bits or null', value)
  if (value >= 0 && value < 2 ** 8) return [op.byte, value]
  if (value >= 0 && value < 2 ** 16) return [op.twoBytes, ...littleEndian(value, 2)]
  return [op.fourBytes, ...littleEndian(value, 4)]
}

function littleEndian(value: number, bytes: number): number[] {
  const all = new Uint8Array(8)
  new DataView(all.buffer).setBigInt64(0, BigInt(value), true)
  return [...all.subarray(0, bytes)]
}
