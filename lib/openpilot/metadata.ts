// metadata.ts: what openpilot's models say about themselves: where each output lies in the row of numbers that they give.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { type PickledDict, PickledSlice, type PickledValue, readPickle } from './pickle.js'

/** Where an output lies in a row, as Python writes it: an end below 0 counts from the end of the row, null is the end itself. */
export interface OutputSlice {
  /** First element; null is 0. */
  readonly start: number | null
  /** The element behind the last one. */
  readonly end: number | null
}

/** Slices by the names of the outputs. */
export type OutputSlices = Readonly<Record<string, OutputSlice>>

/** What a file of metadata, or the model itself, says. */
export interface ModelMetadata {
  /** Which training run the model comes from; null where it is not said. */
  readonly checkpoint: string | null
  /** Where each output lies. */
  readonly outputSlices: OutputSlices
  /** Shapes by the names of the inputs. */
  readonly inputShapes: Readonly<Record<string, readonly number[]>>
  /** Shapes by the names of the outputs. */
  readonly outputShapes: Readonly<Record<string, readonly number[]>>
}

/** First element of each output, and the element behind its last. */
export type ResolvedSlices = ReadonlyMap<string, readonly [start: number, end: number]>

const metadataKeys = ['model_checkpoint', 'output_slices', 'input_shapes', 'output_shapes']

/** See `readModelMetadata` of open-model.ts. */
export function parseModelMetadata(bytes: Uint8Array, label = 'metadata'): ModelMetadata {
  if (!(bytes instanceof Uint8Array)) throw argumentError('bytes', 'a Uint8Array', bytes)
  const dict = readPickle(bytes, label)
  const unknown = [...dict.keys()].find(key => !metadataKeys.includes(key))
  if (unknown !== undefined) {
    const known = metadataKeys.join(', ')
    throw new SparkError('ERR_FORMAT', `${label}: unknown key '${unknown}'; known: ${known}`)
  }
  const checkpoint = dict.get('model_checkpoint') ?? null
  if (checkpoint !== null && typeof checkpoint !== 'string')
    throw new SparkError('ERR_FORMAT', `${label}: model_checkpoint is no text`)
  return {
    checkpoint,
    outputSlices: slicesOf(dictOf(dict, 'output_slices', label), label),
    inputShapes: shapesOf(dictOf(dict, 'input_shapes', label), label),
    outputShapes: shapesOf(dictOf(dict, 'output_shapes', label), label),
  }
}

/** See `readOutputSlices` of open-model.ts. */
export function parseOutputSlices(source: string | Uint8Array, label = 'output_slices'): OutputSlices {
  if (typeof source !== 'string' && !(source instanceof Uint8Array))
    throw argumentError('source', 'base64 text or a Uint8Array', source)
  const bytes = typeof source === 'string' ? fromBase64(source, label) : source
  return slicesOf(readPickle(bytes, label), label)
}

function fromBase64(text: string, label: string): Uint8Array {
  const plain = text.replace(/\s/g, '')
  if (plain.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(plain))
    throw new SparkError('ERR_FORMAT', `${label} is no base64 text`)
  return Buffer.from(plain, 'base64')
}

function dictOf(dict: PickledDict, key: string, label: string): PickledDict {
  const value = dict.get(key)
  if (value instanceof Map) return value
  throw new SparkError('ERR_FORMAT', `${label} has no dictionary '${key}'`)
}

function slicesOf(dict: PickledDict, label: string): OutputSlices {
  if (dict.size === 0) throw new SparkError('ERR_FORMAT', `${label} names no outputs`)
  return fromEntries(dict, (name, value) => {
    if (value instanceof PickledSlice) return { start: value.start, end: value.stop }
    throw new SparkError('ERR_FORMAT', `${label}: '${name}' is no slice`)
  })
}

function shapesOf(dict: PickledDict, label: string): Readonly<Record<string, readonly number[]>> {
  return fromEntries(dict, (name, value) => {
    if (Array.isArray(value) && value.every(size => Number.isSafeInteger(size) && size >= 0)) return value
    throw new SparkError('ERR_FORMAT', `${label}: '${name}' is no shape`)
  })
}

const fromEntries = <T>(
  dict: PickledDict,
  read: (name: string, value: PickledValue) => T,
): Readonly<Record<string, T>> =>
  Object.fromEntries([...dict].map(([name, value]) => [name, read(name, value)]))

/**
 * Where the outputs lie in a row of `width` numbers.
 * @throws SparkError ERR_SHAPE for a slice that does not lie in the row; ERR_ARGUMENT for what are no slices
 */
export function resolveSlices(slices: OutputSlices, width: number): ResolvedSlices {
  if (typeof slices !== 'object' || slices === null)
    throw argumentError('slices', 'slices by the names of the outputs', slices)
  return new Map(Object.entries(slices).map(([name, slice]) => [name, resolve(name, slice, width)]))
}

function resolve(name: string, slice: OutputSlice, width: number): readonly [number, number] {
  const ends = typeof slice === 'object' && slice !== null ? [slice.start, slice.end] : [Number.NaN]
  if (ends.some(end => end !== null && !Number.isSafeInteger(end)))
    throw argumentError(`slices.${name}`, 'a slice, such as { start: 0, end: 990 }', slice)
  // No padding at all is exported as slice(-0, None), which is the whole row.
  if (name === 'pad' && (slice.start ?? 0) === 0 && slice.end === null) return [width, width]
  const fromStart = (end: number): number => (end < 0 ? end + width : end)
  const [start, end] = [fromStart(slice.start ?? 0), fromStart(slice.end ?? width)]
  if (start >= 0 && start <= end && end <= width) return [start, end]
  const shown = `[${slice.start ?? ''}:${slice.end ?? ''}]`
  const remedy = 'these slices belong to another model'
  throw new SparkError('ERR_SHAPE', `slices.${name} is ${shown}, but a row has ${width} numbers: ${remedy}`)
}
