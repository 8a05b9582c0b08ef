// names.ts: what may be a name, a key, a subject and a payload; the same for every control plane.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectText,
} from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import {
  type BucketOptions,
  controlBuckets,
  type JsonValue,
  maxPayloadBytes,
  type PullOptions,
  type QueueOptions,
} from './control-plane.js'

const maxNameLength = 128
/** Timers of JavaScript reach no further. */
const maxMs = 2 ** 31 - 1

/** Whether something is a name of a bucket, a queue or a lease, or the id of a job. */
export const isName = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= maxNameLength && /^[\w-]+$/.test(value)

/** Throws ERR_ARGUMENT for anything but a name of a bucket, a queue or a lease, or the id of a job. */
export function expectName(argument: string, value: unknown): asserts value is string {
  if (!isName(value)) throw argumentError(argument, `1 to ${maxNameLength} letters, digits and -_`, value)
}

/** Throws ERR_ARGUMENT for anything but a key of a bucket. */
export function expectKey(value: unknown): asserts value is string {
  const isKey = typeof value === 'string' && /^[\w=/-]+(\.[\w=/-]+)*$/.test(value)
  if (!isKey || value.length > maxNameLength)
    throw argumentError(
      'key',
      `1 to ${maxNameLength} letters, digits and -_=/ with single dots between`,
      value,
    )
}

/** Throws ERR_ARGUMENT for anything but a subject. @param isPattern - allows * and > */
export function expectSubject(value: unknown, isPattern: boolean): asserts value is string {
  const words = typeof value === 'string' && value.length <= maxNameLength ? value.split('.') : ['']
  const isWord = (word: string, i: number): boolean =>
    /^[\w=/-]+$/.test(word) || (isPattern && (word === '*' || (word === '>' && i === words.length - 1)))
  if (!words.every(isWord)) {
    const wildcards = isPattern ? ', * for a word, > for the rest' : ''
    throw argumentError('subject', `words of letters, digits and -_=/ with dots between${wildcards}`, value)
  }
}

/**
 * A payload as JSON.
 * @throws SparkError ERR_ARGUMENT for what JSON cannot hold; ERR_RANGE for more than {@link maxPayloadBytes}
 */
export function payloadText(argument: string, value: JsonValue): string {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (cause) {
    throw new SparkError('ERR_ARGUMENT', `${argument} must be a value that JSON can hold`, { cause })
  }
  if (text === undefined) throw argumentError(argument, 'a value that JSON can hold', value)
  const bytes = Buffer.byteLength(text)
  if (bytes > maxPayloadBytes) {
    const remedy = 'send it over a link and store where it is'
    throw new SparkError('ERR_RANGE', `${argument} has ${bytes} bytes of ${maxPayloadBytes}: ${remedy}`)
  }
  return text
}

/** The payload in a text that anybody may have written; undefined for what is no JSON. */
export function parsePayload(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Options of a bucket, checked; those of {@link controlBuckets} are fixed. */
export function bucketOptions(name: string, given: BucketOptions | undefined): BucketOptions {
  expectName('bucket', name)
  const known: BucketOptions | undefined = Object.hasOwn(controlBuckets, name)
    ? controlBuckets[name as keyof typeof controlBuckets]
    : undefined
  const options = given ?? known ?? {}
  expectKnownOptions('options', options, ['ttlMs', 'memory'])
  if (options.ttlMs !== undefined) expectInteger('ttlMs', options.ttlMs, 100, maxMs)
  if (known) expectSame(`bucket ${name}`, known, options)
  return options
}

/** Throws ERR_ARGUMENT where a bucket or queue was opened with other options before. */
export function expectSame(what: string, before: object, now: object): void {
  const text = (options: object): string => JSON.stringify(Object.entries(options).sort())
  if (text(before) === text(now)) return
  const [kept, asked] = [before, now].map(options => JSON.stringify(options))
  throw new SparkError(
    'ERR_ARGUMENT',
    `${what} has the options ${kept}, not ${asked}: give the same everywhere`,
  )
}

/** Options of a queue, checked and complete. */
export function queueOptions(name: string, options: QueueOptions = {}): Required<QueueOptions> {
  expectName('queue', name)
  expectKnownOptions('options', options, ['ackWaitMs', 'maxDeliveries'])
  const { ackWaitMs = 30_000, maxDeliveries = 5 } = options
  expectInteger('ackWaitMs', ackWaitMs, 100, maxMs)
  expectInteger('maxDeliveries', maxDeliveries, 1, 1000)
  return { ackWaitMs, maxDeliveries }
}

/** What to pull, checked and complete. */
export function pullOptions(options: PullOptions = {}): {
  max: number
  waitMs: number
  signal?: AbortSignal
} {
  expectObject('options', 'an object', options)
  const { max = 1, waitMs = 0, signal } = options
  expectInteger('max', max, 1, 256)
  expectInteger('waitMs', waitMs, 0, maxMs)
  return { max, waitMs, ...(signal && { signal }) }
}

/** Throws ERR_ARGUMENT for a lease that cannot be. */
export function expectLease(name: unknown, holder: unknown, ttlMs: unknown): void {
  expectName('name', name)
  expectText('holder', holder)
  expectInteger('ttlMs', ttlMs, 100, maxMs)
}

/** Whether a subject matches a pattern with * and >. */
export function matchesSubject(pattern: string, subject: string): boolean {
  const [wanted, words] = [pattern.split('.'), subject.split('.')]
  const rest = wanted.at(-1) === '>'
  if (rest ? words.length < wanted.length : words.length !== wanted.length) return false
  return wanted.every((word, i) => word === '*' || word === '>' || word === words[i])
}

/** Somebody else was first. */
export const conflict = (message: string): SparkError => new SparkError('ERR_CONFLICT', message)

/** Whether an error says that somebody else was first. */
export const isConflict = (error: unknown): boolean =>
  error instanceof SparkError && error.code === 'ERR_CONFLICT'

/** Throws what every method of a control plane throws after it was closed. */
export const closedError = (): SparkError =>
  new SparkError('ERR_DISPOSED', 'this control plane has been closed; open it again')
