// pressure.ts: what a node does under pressure: a lower precision first, then layers offloaded, then a pause; and back.
import { expectInteger, expectKnownOptions, expectNumber } from '../../core/checks.js'
import { type Constraints, type ThermalStatus, thermalStatuses } from './constraints.js'
import type { ThermalPrediction } from './thermal-predictor.js'

/** What a node does, the hardest last. Each level does what those before it do. */
export type PressureLevel = 'full' | 'lower-precision' | 'offload' | 'paused'

/** All of them, in order. */
export const pressureLevels: readonly PressureLevel[] = ['full', 'lower-precision', 'offload', 'paused']

/** Options of a {@link PressurePolicy}. */
export interface PressureOptions {
  /** °C that a device must not reach. Default: 90. */
  readonly temperatureLimit?: number
  /** °C below the limit that count as the limit. Default: 3. */
  readonly temperatureMargin?: number
  /** Milliseconds without a reason before one level is given back. Default: 10000. */
  readonly calmMs?: number
}

/** What is known at a moment. */
export interface PressureInput {
  /** Milliseconds of any clock. */
  readonly now: number
  /** What limits the node. */
  readonly constraints?: Constraints
  /** °C of its hottest device. */
  readonly temperature?: number
  /** Of all devices, the soonest first, for the power that they draw or will draw at this level: while work is paused, that of idle ones. */
  readonly forecast?: readonly ThermalPrediction[]
}

/** What a policy says. */
export interface PressureDecision {
  /** What the node does from now on. */
  readonly level: PressureLevel
  /** Whether it is another level than before. */
  readonly changed: boolean
  /** Why, in words with numbers; empty when nothing presses. */
  readonly reasons: readonly string[]
}

/** A reason for a level; `holds`: it is not gone far enough to give the level back. */
interface Reason {
  readonly level: number
  readonly text: string
}

/** Seconds ahead of the limit at which each level begins. */
const secondsAhead = [Number.POSITIVE_INFINITY, 60, 30, 10] as const

/** °C below the limit at which work is resumed. */
const coolBy = 8

/** Percent of battery without mains at which each level begins, and by how much more it ends. */
const [batteryAt, batteryBack] = [[100, 30, 20, 10], 5]

/** Share of the memory that is free at which offloading and pausing begin, and by which factor more they end. */
const [memoryAt, memoryBack] = [[1, 0, 0.08, 0.03], 1.5]

/** Percent of time that processes wait for memory at which they begin, and below which share of it they end. */
const [stallAt, stallBack] = [[Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 10, 40], 0.5]

/**
 * The part of its rates, 0 to 1, that a device of a temperature is counted with: all of them until work would be resumed at
 * that temperature, none at which it is paused, and linear between.
 * @param temperature - °C
 * @param limit - °C that the device must not reach
 */
export function thermalHeadroom(temperature: number, limit = 90, margin = 3): number {
  return Math.min(1, Math.max(0, (limit - margin - temperature) / (coolBy - margin)))
}

/**
 * Decides what a node does under pressure. Levels rise at once and fall one by one, each after a calm time, and only when
 * what pressed has gone a distance away.
 * @example
 * const policy = new PressurePolicy({ temperatureLimit: 85 })
 * const { level, reasons } = policy.decide({ now: Date.now(), constraints: await provider.read() })
 */
export class PressurePolicy {
  readonly #limit: number
  readonly #margin: number
  readonly #calmMs: number
  #level = 0
  #calmSince: number | undefined

  /** @throws SparkError ERR_ARGUMENT */
  constructor(options: PressureOptions = {}) {
    expectKnownOptions('options', options, ['temperatureLimit', 'temperatureMargin', 'calmMs'])
    const { temperatureLimit = 90, temperatureMargin = 3, calmMs = 10_000 } = options
    expectNumber('options.temperatureLimit', temperatureLimit, 0, 200)
    expectNumber('options.temperatureMargin', temperatureMargin, 0, coolBy)
    expectInteger('options.calmMs', calmMs, 0)
    this.#limit = temperatureLimit
    this.#margin = temperatureMargin
    this.#calmMs = calmMs
  }

  /** What the node does now. */
  get level(): PressureLevel {
    return pressureLevels[this.#level]!
  }

  /** Takes what is known, and decides. */
  decide(input: PressureInput): PressureDecision {
    const before = this.#level
    const pressing = this.#reasons(input, false)
    const wanted = highest(pressing)
    if (wanted > this.#level) {
      this.#level = wanted
      this.#calmSince = undefined
      return { level: this.level, changed: true, reasons: texts(pressing) }
    }
    // What still holds the level by the wider thresholds of hysteresis.
    const holding = this.#reasons(input, true).filter(({ level }) => level >= this.#level)
    if (this.#level === 0 || holding.length > 0) {
      this.#calmSince = undefined
      return { level: this.level, changed: false, reasons: texts(holding) }
    }
    this.#calmSince ??= input.now
    if (input.now - this.#calmSince >= this.#calmMs) {
      this.#level--
      this.#calmSince = this.#level > 0 ? input.now : undefined
    }
    const reasons = this.#level > 0 ? ['waits for calm to last before it takes more work'] : []
    return { level: this.level, changed: this.#level !== before, reasons }
  }

  /** @param back - whether the thresholds are those for giving a level back */
  #reasons(input: PressureInput, back: boolean): Reason[] {
    const { constraints = {} } = input
    return [
      ...this.#thermalReasons(input, back),
      ...statusReasons(constraints.thermal),
      ...batteryReasons(constraints, back),
      ...memoryReasons(constraints, back),
      ...(constraints.foreground === false ? [{ level: 3, text: 'the app is in the background' }] : []),
    ]
  }

  #thermalReasons({ temperature, forecast = [] }: PressureInput, back: boolean): Reason[] {
    const limit = this.#limit - (back ? coolBy : this.#margin)
    const reasons: Reason[] = []
    if (temperature !== undefined && temperature >= limit)
      reasons.push({ level: 3, text: `the device has ${temperature} °C, its limit is ${this.#limit} °C` })
    const crossing = forecast.find(({ upper }) => upper >= limit)
    if (crossing) {
      const { seconds, upper } = crossing
      const level = secondsAhead.findLastIndex(ahead => seconds <= ahead)
      const text = `the device may have ${upper.toFixed(1)} °C in ${seconds} s, its limit is ${this.#limit} °C`
      reasons.push({ level, text })
    }
    return reasons
  }
}

const highest = (reasons: readonly Reason[]): number => Math.max(0, ...reasons.map(({ level }) => level))

const texts = (reasons: readonly Reason[]): string[] => reasons.map(({ text }) => text)

function statusReasons(status: ThermalStatus | undefined): Reason[] {
  const level = status === undefined ? 0 : thermalStatuses.indexOf(status)
  return level > 0 ? [{ level, text: `the machine says that it is ${status}` }] : []
}

/** The hardest level whose threshold a value has passed. */
const levelAt = (thresholds: readonly number[], isPast: (threshold: number) => boolean): number =>
  Math.max(
    0,
    thresholds.findLastIndex((threshold, level) => level > 0 && isPast(threshold)),
  )

function batteryReasons({ batteryPercent, charging }: Constraints, back: boolean): Reason[] {
  if (batteryPercent === undefined || charging === true) return []
  const level = levelAt(batteryAt, threshold => batteryPercent <= threshold + (back ? batteryBack : 0))
  return level > 0
    ? [{ level, text: `the battery has ${Math.round(batteryPercent)} % and is not charged` }]
    : []
}

function memoryReasons({ memoryFree, memoryTotal, memoryStall }: Constraints, back: boolean): Reason[] {
  const reasons: Reason[] = []
  if (memoryFree !== undefined && memoryTotal) {
    const share = memoryFree / memoryTotal
    const level = levelAt(memoryAt, threshold => share < threshold * (back ? memoryBack : 1))
    const text = `${Math.round(memoryFree / 2 ** 20)} MiB of ${Math.round(memoryTotal / 2 ** 20)} MiB are free`
    if (level > 0) reasons.push({ level, text })
  }
  if (memoryStall !== undefined) {
    const level = levelAt(stallAt, threshold => memoryStall >= threshold * (back ? stallBack : 1))
    if (level > 0) reasons.push({ level, text: `processes waited ${memoryStall} % of the time for memory` })
  }
  return reasons
}
