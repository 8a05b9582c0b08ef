// signal-path.ts: names of signals, such as carState.vEgo or cameraOdometry.trans.0, and what they lead to in an event.
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'

/** What a signal has at one time; none where a part of the event is not there. */
export type Sample = readonly (number | bigint | boolean | string)[]

/** A signal of events. */
export interface SignalPath {
  /** As it was asked for. */
  readonly name: string
  /** Type of the events, by any of its names. */
  readonly type: string
  /** Names of fields and indices of lists, from the value of the event on. */
  readonly keys: readonly string[]
}

/** Splits the name of a signal at its dots. */
export function parseSignal(name: string): SignalPath {
  const [type = '', ...keys] = name.split('.')
  return { name, type, keys }
}

const fieldsShown = 12

/** The first names of fields, for messages. */
function shownFields(value: object): string {
  const names = Object.keys(value)
  const more = names.length > fieldsShown ? `, … (${names.length} in all)` : ''
  return `${names.slice(0, fieldsShown).join(', ')}${more}`
}

const isList = (value: object): value is ArrayLike<unknown> =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))

/**
 * What a signal has in the value of an event.
 * @returns the sample, and whether it is that of a list
 * @throws SparkError ERR_ARGUMENT for a name that leads to no numbers and no text
 */
export function sampleAt(
  value: unknown,
  { name, type, keys }: SignalPath,
): { list: boolean; sample: Sample } {
  let [at, path] = [value, type]
  for (const key of keys) {
    if (at === null || at === undefined) return { list: false, sample: [] }
    at = inner(at, key, { name, path })
    path = `${path}.${key}`
  }
  if (at === null || at === undefined) return { list: false, sample: [] }
  if (typeof at !== 'object') return { list: false, sample: [at as Sample[number]] }
  if (!isList(at))
    throw new SparkError(
      'ERR_ARGUMENT',
      `signal ${name} is not one value: name a field of it: ${shownFields(at)}`,
    )
  const [first] = Array.from({ length: Math.min(1, at.length) }, (_, i) => (at as ArrayLike<unknown>)[i])
  if (typeof first === 'object' && first !== null)
    throw new SparkError(
      'ERR_ARGUMENT',
      `signal ${name} is a list: name one of it and a field: ${name}.0.${Object.keys(first)[0]}`,
    )
  return { list: true, sample: at as unknown as Sample }
}

function inner(value: unknown, key: string, { name, path }: { name: string; path: string }): unknown {
  if (typeof value !== 'object' || value === null)
    throw new SparkError('ERR_ARGUMENT', `signal ${name}: ${path} is a ${typeof value} without fields`)
  if (isList(value)) {
    if (/^\d{1,9}$/.test(key)) return value[Number(key)]
    throw new SparkError(
      'ERR_ARGUMENT',
      `signal ${name}: ${path} is a list: name one of it by its number, such as ${path}.0`,
    )
  }
  if (Object.hasOwn(value, key)) return (value as Record<string, unknown>)[key]
  const hint = didYouMean(key, Object.keys(value))
  throw new SparkError(
    'ERR_ARGUMENT',
    `signal ${name}: ${path} has no '${key}'${hint}; it has ${shownFields(value)}`,
  )
}
