// constraints.ts: what limits the work of a node beside its devices: heat, battery, foreground, free memory.
import { argumentError, expectNumber, expectObject } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { machineMemory } from '../../hardware/memory.js'
import { listFolder, readBytes, readText, systemRoot } from '../../hardware/system-files.js'
import { known } from './device-record.js'

/** How hot a machine is, as phones tell it. */
export type ThermalStatus = 'normal' | 'warm' | 'throttled' | 'critical'

/** All of them, the coolest first. */
export const thermalStatuses: readonly ThermalStatus[] = ['normal', 'warm', 'throttled', 'critical']

/** What limits a node now. What nobody can tell is missing. */
export interface Constraints {
  /** How hot the machine is by its own measures. */
  readonly thermal?: ThermalStatus
  /** Charge of the battery, percent. */
  readonly batteryPercent?: number
  /** Whether the machine is on mains. */
  readonly charging?: boolean
  /** Whether the app is in the foreground, or may work nonetheless. */
  readonly foreground?: boolean
  /** Bytes that can be allocated without swapping. */
  readonly memoryFree?: number
  /** Bytes in all. */
  readonly memoryTotal?: number
  /** Share of the last 10 s in which some process waited for memory, percent (pressure stall information). */
  readonly memoryStall?: number
}

/** Tells what limits a node. */
export interface ConstraintProvider {
  /** What limits it now. */
  read(): Promise<Constraints>
}

/**
 * Reads the constraints of a Linux machine from /sys and /proc; elsewhere only memory is known.
 * @example
 * const { thermal, batteryPercent, memoryFree } = await new LocalConstraints().read()
 */
export class LocalConstraints implements ConstraintProvider {
  readonly #root: string

  /** @param root - below which /sys and /proc are read; default: those of this machine */
  constructor(root: string = systemRoot()) {
    this.#root = root
  }

  async read(): Promise<Constraints> {
    const { total, available } = machineMemory(this.#root)
    const stall = /^some avg10=(\d{1,3}(?:\.\d+)?) /m.exec(
      readText(this.#root, 'proc/pressure/memory') ?? '',
    )?.[1]
    return {
      ...known({
        thermal: thermalStatus(this.#root),
        memoryStall: stall === undefined ? null : Number(stall),
      }),
      ...power(this.#root),
      memoryFree: available,
      memoryTotal: total,
    }
  }
}

/** The batteries of the machine, not those of mice and headsets, and its mains. */
function power(root: string): Pick<Constraints, 'batteryPercent' | 'charging'> {
  const folder = 'sys/class/power_supply'
  const supplies = listFolder(root, folder).map(name => {
    const read = (field: string): string | null => readText(root, `${folder}/${name}/${field}`)
    return {
      type: read('type'),
      scope: read('scope'),
      online: read('online'),
      status: read('status'),
      path: `${folder}/${name}`,
    }
  })
  const own = supplies.filter(({ type, scope }) => type === 'Battery' && scope !== 'Device')
  const charges = own
    .map(({ path }) => readBytes(root, `${path}/capacity`))
    .filter(charge => charge !== null && charge <= 100)
  if (charges.length === 0) return {}
  const isOnline = supplies.some(({ type, online }) => type !== 'Battery' && online === '1')
  const isCharging = own.some(({ status }) => status === 'Charging' || status === 'Full')
  const mean = charges.reduce<number>((sum, charge) => sum + charge!, 0) / charges.length
  return { batteryPercent: mean, charging: isOnline || isCharging }
}

/** Warm: this close to the temperature where the kernel slows the processor down, °C; critical: to where it switches off. */
const [warmWithin, criticalWithin] = [10, 5]

/** The worst state of the thermal zones that have trip points; null where none has. */
function thermalStatus(root: string): ThermalStatus | null {
  const folder = 'sys/class/thermal'
  const zones = listFolder(root, folder).filter(name => name.startsWith('thermal_zone'))
  const found = zones.flatMap(name => zoneStatus(root, `${folder}/${name}`) ?? [])
  return found.length === 0 ? null : found.reduce(hotter)
}

/** The hotter one of two states. */
export const hotter = (a: ThermalStatus, b: ThermalStatus): ThermalStatus =>
  thermalStatuses.indexOf(a) >= thermalStatuses.indexOf(b) ? a : b

function zoneStatus(root: string, zone: string): ThermalStatus | null {
  const celsius = degrees(readText(root, `${zone}/temp`))
  if (celsius === null) return null
  const trip = (...types: string[]): number[] =>
    listFolder(root, zone).flatMap(file => {
      const number = /^trip_point_(\d{1,3})_type$/.exec(file)?.[1]
      if (number === undefined || !types.includes(readText(root, `${zone}/${file}`) ?? '')) return []
      const at = degrees(readText(root, `${zone}/trip_point_${number}_temp`))
      return at !== null && at > 0 ? [at] : []
    })
  const slows = Math.min(...trip('passive', 'hot'))
  const ends = Math.min(...trip('critical'))
  if (slows === Number.POSITIVE_INFINITY && ends === Number.POSITIVE_INFINITY) return null
  if (celsius >= ends - criticalWithin) return 'critical'
  if (celsius >= slows) return 'throttled'
  return celsius >= Math.min(slows, ends - criticalWithin) - warmWithin ? 'warm' : 'normal'
}

function degrees(text: string | null): number | null {
  if (!/^-?\d{1,6}$/.test(text ?? '')) return null
  return Number(text) / 1000
}

/** Milliseconds after which a message counts for nothing: the device sleeps, or is gone. */
const staleAfter = 60_000

/**
 * Constraints of a phone or another machine, which sends them as messages.
 * @example
 * const phone = new RemoteConstraints()
 * phone.receive({ thermal: 'warm', batteryPercent: 40, foreground: true })
 * const pressure = new NodePressure({ gate, constraints: phone })
 */
export class RemoteConstraints implements ConstraintProvider {
  readonly #now: () => number
  #last: { readonly at: number; readonly constraints: Constraints } | undefined

  /** @param now - milliseconds of a clock; for tests */
  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /**
   * Takes a message; the one before is forgotten.
   * @throws SparkError ERR_FORMAT naming the field that is wrong
   */
  receive(message: unknown): void {
    this.#last = { at: this.#now(), constraints: checkConstraints(message) }
  }

  /** The last message; `foreground: false` when there was none for a minute, so that nothing is started there. */
  async read(): Promise<Constraints> {
    const isFresh = this.#last !== undefined && this.#now() - this.#last.at < staleAfter
    return isFresh ? this.#last!.constraints : { foreground: false }
  }
}

/**
 * Constraints from the wire.
 * @returns a new object of known fields only
 * @throws SparkError ERR_FORMAT naming the field that is wrong
 */
export function checkConstraints(message: unknown): Constraints {
  const field = (name: string): unknown =>
    Object.hasOwn(message as object, name) ? (message as Record<string, unknown>)[name] : undefined
  const number = (name: string, max: number): number | undefined => {
    const value = field(name)
    if (value !== undefined) expectNumber(name, value, 0, max)
    return value as number | undefined
  }
  const flag = (name: string): boolean | undefined => {
    const value = field(name)
    if (value !== undefined && typeof value !== 'boolean') throw argumentError(name, 'true or false', value)
    return value as boolean | undefined
  }
  try {
    expectObject('constraints', 'an object', message)
    const thermal = field('thermal') as ThermalStatus | undefined
    if (thermal !== undefined && !thermalStatuses.includes(thermal))
      throw argumentError('thermal', `one of ${thermalStatuses.join(', ')}`, thermal)
    return known({
      thermal,
      batteryPercent: number('batteryPercent', 100),
      charging: flag('charging'),
      foreground: flag('foreground'),
      memoryFree: number('memoryFree', 2 ** 50),
      memoryTotal: number('memoryTotal', 2 ** 50),
      memoryStall: number('memoryStall', 100),
    })
  } catch (error) {
    throw new SparkError('ERR_FORMAT', `constraints of a peer: ${(error as Error).message}`, { cause: error })
  }
}
