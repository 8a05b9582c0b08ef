// device-registry.ts: every device that a node has ever seen, its own and those of peers, and which of them are there.
import { expectInteger, expectKnownOptions, expectSignal, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { checkDeviceRecord, checkTelemetry } from './check-record.js'
import { type DeviceDetector, detectDevices } from './detect-devices.js'
import {
  type DeviceRecord,
  type DeviceTelemetry,
  known,
  type MeasuredRates,
  stateOf,
} from './device-record.js'
import { readRegistry, type SeenDevice, updateRegistry } from './registry-file.js'
import { machineTelemetry, type TelemetrySource } from './telemetry.js'

/** Options of {@link DeviceRegistry.open}. */
export interface DeviceRegistryOptions {
  /** Uuid of the node that it is on. */
  readonly nodeId: string
  /** The file that keeps the devices; its folder is made. */
  readonly file: string
  /** What finds the devices of this machine. Default: NVML, CUDA, the PCI bus and what the operating system lists. */
  readonly detect?: DeviceDetector
  /** What measures them. Default: NVML, /proc and /sys. */
  readonly measure?: TelemetrySource
  /** Milliseconds from one look for new and lost devices to the next. Default: 2000. */
  readonly intervalMs?: number
}

/** What happened to a device. `telemetry` is no event: ask for the record. */
export interface DeviceEvent {
  /**
   * `added`: it was never seen before; `returned`: it is there again; `changed`: driver, memory or another of its
   * properties differ; `removed`: it is gone.
   */
  readonly type: 'added' | 'returned' | 'changed' | 'removed'
  /** The device, as it is now. */
  readonly device: DeviceRecord
}

/** A device in memory. Telemetry keeps the last value only. */
interface Entry extends SeenDevice {
  readonly isPresent: boolean
  readonly telemetry?: DeviceTelemetry
  readonly rates?: MeasuredRates
}

/** Devices of a node at most; of more that it ever had, those that were not seen for longest are forgotten. */
const maxPerNode = 256

/** Characters of a peer's device in JSON at most. */
const maxDeviceLength = 256 << 10

/** When a device was there, in milliseconds since 1970. */
export interface SeenTimes {
  /** The first time. */
  readonly first: number
  /** The last time. */
  readonly last: number
}

/** What is kept in the file: no telemetry, no state, no rates, which have a cache of their own. */
function keptPart({ telemetry: _, state: __, rates: ___, ...record }: DeviceRecord): DeviceRecord {
  return record
}

/** Whether a device has the properties that it had; the limit of a control group may change what memory it has. */
function isSame(a: DeviceRecord, b: DeviceRecord): boolean {
  const lasting = ({ memoryBytes: _, ...rest }: DeviceRecord): string => JSON.stringify(rest)
  return lasting(a) === lasting(b)
}

/**
 * Every device that a node has ever seen. It survives restarts, and notices devices that are plugged in and out.
 * @example
 * const registry = await DeviceRegistry.open({ nodeId, file: 'devices.json' })
 * registry.watch({ onEvent: ({ type, device }) => console.log(type, device.model), signal })
 * console.log(registry.devices.map(({ model, state }) => `${model}: ${state}`))
 */
export class DeviceRegistry {
  /** Uuid of the node that it is on. */
  readonly nodeId: string
  /** The file that keeps the devices. */
  readonly file: string
  readonly #detect: DeviceDetector
  readonly #measure: TelemetrySource
  readonly #intervalMs: number
  readonly #entries = new Map<string, Entry>()
  /** Settles when the last look has ended: looks do not overlap. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(options: DeviceRegistryOptions, seen: readonly SeenDevice[]) {
    this.nodeId = options.nodeId
    this.file = options.file
    this.#detect = options.detect ?? detectDevices
    this.#measure = options.measure ?? machineTelemetry()
    this.#intervalMs = options.intervalMs ?? 2000
    for (const each of seen) this.#entries.set(each.record.id, { ...each, isPresent: false })
  }

  /**
   * Opens the registry of a file. Until the first look all its devices are offline.
   * @throws SparkError ERR_FORMAT naming a file that is damaged, ERR_IO, ERR_ARGUMENT
   */
  static async open(options: DeviceRegistryOptions): Promise<DeviceRegistry> {
    expectKnownOptions('options', options, ['nodeId', 'file', 'detect', 'measure', 'intervalMs'])
    expectText('options.nodeId', options.nodeId)
    expectText('options.file', options.file)
    if (options.intervalMs !== undefined)
      expectInteger('options.intervalMs', options.intervalMs, 10, 86_400_000)
    return new DeviceRegistry(options, await readRegistry(options.file))
  }

  /** All devices, those of this node first. */
  get devices(): readonly DeviceRecord[] {
    const isOwn = ({ record }: Entry): number => Number(record.nodeId === this.nodeId)
    return [...this.#entries.values()].sort((a, b) => isOwn(b) - isOwn(a)).map(recordOf)
  }

  /** A device by its id. */
  get(id: string): DeviceRecord | undefined {
    const entry = this.#entries.get(id)
    return entry && recordOf(entry)
  }

  /** When a device was there. */
  seen(id: string): SeenTimes | undefined {
    const entry = this.#entries.get(id)
    return entry && { first: entry.firstSeen, last: entry.lastSeen }
  }

  /**
   * Looks at the machine once: what is new, gone or different, and how busy it is.
   * @returns what happened since the last look
   * @throws SparkError ERR_IO, ERR_BUSY, ERR_FORMAT when the file cannot be updated
   */
  poll(): Promise<readonly DeviceEvent[]> {
    return this.#inTurn(async () => {
      const found = await this.#detect(this.nodeId)
      const events = this.#take(this.nodeId, found)
      const measured = await this.#measure(found).catch(error => {
        debug(`devices were not measured: ${(error as Error).message}`)
        return new Map<string, DeviceTelemetry>()
      })
      for (const { id } of found) this.#update(id, { telemetry: measured.get(id) })
      if (events.length > 0) await this.#save()
      return this.#asTheyAre(events)
    })
  }

  /**
   * Polls until the signal is aborted; one look follows the other at the interval of the registry.
   * @param options - `onEvent`: told of each event; `onError`: of a look that failed, the next one is made nonetheless
   */
  watch(options: {
    readonly signal: AbortSignal
    readonly onEvent: (event: DeviceEvent) => void
    readonly onError?: (error: unknown) => void
  }): void {
    expectSignal('options.signal', options.signal)
    const { signal, onEvent, onError = error => debug(`devices: ${(error as Error).message}`) } = options
    let timer: NodeJS.Timeout | undefined
    const look = async (): Promise<void> => {
      try {
        for (const event of await this.poll()) onEvent(event)
      } catch (error) {
        onError(error)
      }
      if (!signal.aborted) timer = setTimeout(look, this.#intervalMs).unref()
    }
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true })
    if (!signal.aborted) void look()
  }

  /**
   * Takes the devices that a peer says it has; those it does not mention are offline.
   * @param records - from the wire
   * @throws SparkError ERR_FORMAT naming the field that is wrong, or a device that is another node's or too large; nothing is
   * taken then
   */
  async acceptPeer(nodeId: string, records: readonly unknown[]): Promise<readonly DeviceEvent[]> {
    expectText('nodeId', nodeId)
    if (!Array.isArray(records) || records.length > maxPerNode)
      throw new SparkError('ERR_FORMAT', `node ${nodeId} sent no list of at most ${maxPerNode} devices`)
    const checked = records.map((record, i) => checkDeviceRecord(`devices[${i}]`, record))
    const large = checked.find(record => JSON.stringify(record).length > maxDeviceLength)
    if (large)
      throw new SparkError('ERR_FORMAT', `device ${large.id} of node ${nodeId} has more than 256 KiB of JSON`)
    return this.#inTurn(async () => {
      this.#expectOwner(nodeId, checked)
      const events = this.#take(nodeId, checked)
      for (const { id, telemetry, rates } of checked) this.#update(id, known({ telemetry, rates }))
      if (events.length > 0) await this.#save()
      return this.#asTheyAre(events)
    })
  }

  /**
   * Takes a measurement of a peer's device; the one before is forgotten.
   * @throws SparkError ERR_FORMAT for one that is wrong, or of a device that the peer does not have
   */
  acceptTelemetry(nodeId: string, id: string, telemetry: unknown): void {
    const checked = checkTelemetry('telemetry', telemetry)
    if (this.#entries.get(id)?.record.nodeId !== nodeId)
      throw new SparkError('ERR_FORMAT', `node ${nodeId} has no device ${id}`)
    this.#update(id, { telemetry: checked })
  }

  /** Resolves when what has begun is on the disk. */
  async settled(): Promise<void> {
    await this.#last
  }

  /** Marks all devices of a node as offline: the node is gone. */
  peerLost(nodeId: string): readonly DeviceEvent[] {
    return this.#take(nodeId, [])
  }

  /** Keeps what was measured on a device of this node. */
  setRates(id: string, rates: MeasuredRates): void {
    this.#update(id, { rates })
  }

  #update(id: string, change: Pick<Partial<Entry>, 'telemetry' | 'rates'> | { telemetry: undefined }): void {
    const entry = this.#entries.get(id)
    if (entry) this.#entries.set(id, { ...entry, ...change } as Entry)
  }

  /** Throws ERR_FORMAT unless a peer has these devices to itself. */
  #expectOwner(nodeId: string, devices: readonly DeviceRecord[]): void {
    for (const { id, nodeId: owner } of devices) {
      const before = this.#entries.get(id)
      const isForeign =
        before?.record.nodeId === this.nodeId || (before?.isPresent && before.record.nodeId !== nodeId)
      if (owner !== nodeId || nodeId === this.nodeId || isForeign)
        throw new SparkError('ERR_FORMAT', `node ${nodeId} claims device ${id}, which is another node's`)
    }
  }

  /** Makes the devices of a node those that were found. */
  #take(nodeId: string, found: readonly DeviceRecord[]): DeviceEvent[] {
    const now = Date.now()
    const events: DeviceEvent[] = []
    for (const device of found) {
      const record = keptPart(device)
      const before = this.#entries.get(record.id)
      const type = eventType(before, record)
      const firstSeen = before?.firstSeen ?? now
      const { rates } = before && before.record.driver === record.driver ? before : {}
      this.#entries.set(record.id, { record, firstSeen, lastSeen: now, isPresent: true, ...known({ rates }) })
      if (type) events.push({ type, device: record })
    }
    const ids = new Set(found.map(({ id }) => id))
    for (const [id, { telemetry: _, ...entry }] of this.#entries) {
      if (entry.record.nodeId !== nodeId || !entry.isPresent || ids.has(id)) continue
      const gone = { ...entry, isPresent: false }
      this.#entries.set(id, gone)
      events.push({ type: 'removed', device: recordOf(gone) })
    }
    return events
  }

  /** Brings the file up to date; devices that another process has added meanwhile are taken over. */
  async #save(): Promise<void> {
    const written = await updateRegistry(this.file, inFile => {
      const own = [...this.#entries.values()].map(({ record, firstSeen, lastSeen }) => ({
        record,
        firstSeen,
        lastSeen,
      }))
      const others = inFile.filter(({ record }) => !this.#entries.has(record.id))
      return newestOfEachNode([...own, ...others])
    })
    const kept = new Set(written.map(({ record }) => record.id))
    for (const [id, { isPresent }] of this.#entries) if (!isPresent && !kept.has(id)) this.#entries.delete(id)
    for (const each of written)
      if (!this.#entries.has(each.record.id)) this.#entries.set(each.record.id, { ...each, isPresent: false })
  }

  /** Events with what was measured since. */
  #asTheyAre(events: readonly DeviceEvent[]): DeviceEvent[] {
    return events.map(({ type, device }) => ({ type, device: this.get(device.id)! }))
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => undefined)
    return done
  }
}

/** At most so many devices of each node as are kept, those that were seen last. */
function newestOfEachNode(devices: readonly SeenDevice[]): SeenDevice[] {
  const counts = new Map<string, number>()
  const newest = [...devices].sort((a, b) => b.lastSeen - a.lastSeen)
  const kept = newest.filter(({ record: { nodeId } }) => {
    const count = (counts.get(nodeId) ?? 0) + 1
    counts.set(nodeId, count)
    return count <= maxPerNode
  })
  return kept.sort((a, b) => a.firstSeen - b.firstSeen)
}

function eventType(before: Entry | undefined, record: DeviceRecord): DeviceEvent['type'] | undefined {
  if (!before) return 'added'
  if (!before.isPresent) return 'returned'
  return isSame(before.record, record) ? undefined : 'changed'
}

/** A device with what was measured and what it does. */
function recordOf({ record, isPresent, telemetry, rates }: Entry): DeviceRecord {
  const state = isPresent ? telemetry && stateOf(telemetry) : ('offline' as const)
  return { ...record, ...known({ rates, telemetry, state }) }
}
