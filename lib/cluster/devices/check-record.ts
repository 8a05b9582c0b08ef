// check-record.ts: device records of peers, which may hold anything. What passes is a new object of known fields only.
import { argumentError } from '../../core/checks.js'
import type { SparkError } from '../../core/errors.js'
import { printable } from '../../core/printable.js'
import type { SupportClass } from '../../hardware/gpu.js'
import type { ThrottleReason } from '../../hardware/throttling.js'
import {
  type BackendCapability,
  type DeviceBackendName,
  type DeviceRecord,
  type DeviceState,
  type DeviceTelemetry,
  type DeviceVendor,
  known,
  type MeasuredRates,
  type OperatorSet,
  type RuntimeStatus,
} from './device-record.js'

const vendors: readonly DeviceVendor[] = ['nvidia', 'amd', 'intel', 'apple', 'qualcomm', 'arm', 'unknown']
const classes: readonly SupportClass[] = ['full', 'partial', 'experimental', 'unsupported']
const states: readonly DeviceState[] = ['idle', 'computing', 'throttled', 'offline']
const runtimeStates = ['ready', 'missing', 'failed'] as const
const backendNames: readonly DeviceBackendName[] = [
  'cuda',
  'cpu',
  'js',
  'rocm',
  'metal',
  'directml',
  'coreml',
  'tflite',
]
const throttleNames: readonly ThrottleReason[] = [
  'idle',
  'application clocks',
  'software power cap',
  'hardware slowdown',
  'sync boost',
  'software thermal slowdown',
  'hardware thermal slowdown',
  'hardware power brake',
  'display clocks',
]

/** Characters of a text and entries of a list at most, beyond those of any device. */
const [maxText, maxOperators, maxEntries] = [2000, 1000, 32]

/** Bytes of memory, bytes and operations per second at most: no device of this century has more. */
const [maxMemory, maxRate] = [2 ** 50, 1e20]

/** A look at one object of a record. Each method throws ERR_FORMAT with the path of the field. */
class Fields {
  readonly #path: string
  readonly #object: Readonly<Record<string, unknown>>

  constructor(path: string, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw wrong(path, 'an object', value)
    this.#path = path
    this.#object = value as Record<string, unknown>
  }

  get(name: string): unknown {
    return Object.hasOwn(this.#object, name) ? this.#object[name] : undefined
  }

  /** Names of all fields, each a short text. */
  names(max: number): string[] {
    const names = Object.keys(this.#object)
    if (names.length > max) throw wrong(this.#path, `an object of at most ${max} fields`, this.#object)
    return names.filter(name => name !== '__proto__').map(name => shortText(`a name in ${this.#path}`, name))
  }

  path(name: string): string {
    return `${this.#path}.${name}`
  }

  text(name: string): string {
    return shortText(this.path(name), this.get(name))
  }

  /** What `read` gives for a field, undefined for one that is missing. */
  optional<T>(name: string, read: (fields: Fields, name: string) => T): T | undefined {
    return this.get(name) === undefined ? undefined : read(this, name)
  }

  choice<T extends string>(name: string, choices: readonly T[]): T {
    const value = this.get(name)
    if (!choices.includes(value as T)) throw wrong(this.path(name), `one of ${choices.join(', ')}`, value)
    return value as T
  }

  flag(name: string): boolean {
    const value = this.get(name)
    if (typeof value !== 'boolean') throw wrong(this.path(name), 'true or false', value)
    return value
  }

  number(name: string, min: number, max: number): number {
    const value = this.get(name)
    if (typeof value !== 'number' || !(value >= min && value <= max))
      throw wrong(this.path(name), `a number in [${min}, ${max}]`, value)
    return value
  }

  count(name: string, max: number): number {
    const value = this.number(name, 0, max)
    if (!Number.isInteger(value)) throw wrong(this.path(name), 'an integer', value)
    return value
  }

  list(name: string, max: number): readonly unknown[] {
    const value = this.get(name)
    if (!Array.isArray(value) || value.length > max)
      throw wrong(this.path(name), `a list of at most ${max} entries`, value)
    return value
  }

  texts(name: string, max: number): string[] {
    return this.list(name, max).map((value, i) => shortText(`${this.path(name)}[${i}]`, value))
  }

  inner(name: string): Fields {
    return new Fields(this.path(name), this.get(name))
  }
}

const wrong = (path: string, expected: string, value: unknown): SparkError =>
  argumentError(path, expected, value, 'ERR_FORMAT')

function shortText(path: string, value: unknown): string {
  const isShort = typeof value === 'string' && value !== '' && value.length <= maxText
  if (isShort && printable(value) === value) return value
  throw wrong(path, `a text of 1 to ${maxText} characters, none of them control characters`, value)
}

const text = (fields: Fields, name: string): string => fields.text(name)
const flag = (fields: Fields, name: string): boolean => fields.flag(name)
const upTo =
  (max: number) =>
  (fields: Fields, name: string): number =>
    fields.number(name, 0, max)
const bytes = (fields: Fields, name: string): number => fields.count(name, maxMemory)
const time = (fields: Fields): number => fields.number('time', 0, Number.MAX_SAFE_INTEGER)

/**
 * A device record from a peer or a file.
 * @param path - name of the value in errors
 * @returns a new object without fields that are not known
 * @throws SparkError ERR_FORMAT naming the field
 */
export function checkDeviceRecord(path: string, value: unknown): DeviceRecord {
  const fields = new Fields(path, value)
  const support = fields.inner('support')
  return {
    id: fields.text('id'),
    nodeId: fields.text('nodeId'),
    kind: fields.choice('kind', ['gpu', 'cpu']),
    vendor: fields.choice('vendor', vendors),
    model: fields.text('model'),
    ...known({
      architecture: fields.optional('architecture', text),
      memoryBytes: fields.optional('memoryBytes', bytes),
      sharesHostMemory: fields.optional('sharesHostMemory', flag),
      computeCapability: fields.optional('computeCapability', text),
      computeUnits: fields.optional('computeUnits', (each, name) => each.count(name, 1e6)),
      driver: fields.optional('driver', text),
    }),
    runtime: runtimeOf(fields.inner('runtime')),
    support: { class: support.choice('class', classes), reason: support.text('reason') },
    backends: fields
      .list('backends', backendNames.length)
      .map((each, i) => capabilityOf(new Fields(`${path}.backends[${i}]`, each))),
    ...known({
      rates: fields.optional('rates', (each, name) => ratesOf(each.inner(name))),
      telemetry: fields.optional('telemetry', (each, name) => telemetryOf(each.inner(name))),
      state: fields.optional('state', (each, name) => each.choice(name, states)),
    }),
  }
}

/**
 * A measurement of a device from a peer.
 * @throws SparkError as {@link checkDeviceRecord}
 */
export const checkTelemetry = (path: string, value: unknown): DeviceTelemetry =>
  telemetryOf(new Fields(path, value))

/**
 * Measured rates from a peer or a file.
 * @throws SparkError as {@link checkDeviceRecord}
 */
export const checkRates = (path: string, value: unknown): MeasuredRates => ratesOf(new Fields(path, value))

function runtimeOf(fields: Fields): RuntimeStatus {
  return {
    state: fields.choice('state', runtimeStates),
    ...known({
      version: fields.optional('version', text),
      problem: fields.optional('problem', text),
    }),
  }
}

function capabilityOf(fields: Fields): BackendCapability {
  const operators = fields.list('operators', maxEntries).map((each, i): OperatorSet => {
    const set = new Fields(`${fields.path('operators')}[${i}]`, each)
    return { operators: set.texts('operators', maxOperators), dtypes: set.texts('dtypes', maxEntries) }
  })
  return { name: fields.choice('name', backendNames), operators, native: fields.texts('native', maxEntries) }
}

function ratesOf(fields: Fields): MeasuredRates {
  const given = fields.inner('flops')
  const dtypes = given.names(maxEntries)
  return {
    time: time(fields),
    ...known({ bandwidth: fields.optional('bandwidth', upTo(maxRate)) }),
    flops: Object.fromEntries(dtypes.map(dtype => [dtype, given.number(dtype, 0, maxRate)])),
  }
}

function telemetryOf(fields: Fields): DeviceTelemetry {
  const reasons = fields.optional('throttleReasons', (each, name) => each.texts(name, maxEntries))
  // A newer version of the driver may know more reasons.
  const throttleReasons = reasons?.filter((each): each is ThrottleReason =>
    throttleNames.includes(each as ThrottleReason),
  )
  return {
    time: time(fields),
    ...known({
      memoryUsed: fields.optional('memoryUsed', bytes),
      memoryFree: fields.optional('memoryFree', bytes),
      utilization: fields.optional('utilization', upTo(100)),
      temperature: fields.optional('temperature', (each, name) => each.number(name, -100, 300)),
      power: fields.optional('power', upTo(1e6)),
      powerLimit: fields.optional('powerLimit', upTo(1e6)),
      throttleReasons,
    }),
  }
}
