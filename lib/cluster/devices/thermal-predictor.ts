// thermal-predictor.ts: follows a device's temperature and tells it ahead: the two-node model, fitted to the last half hour,
// corrected by a Luenberger observer, with a band from the errors of its own earlier predictions.
import { expectKnownOptions, expectNumber } from '../../core/checks.js'
import { fewestSamples, fitThermalModel, type ThermalSample } from './thermal-fit.js'
import { ThermalModel, type ThermalParameters, type ThermalState } from './thermal-model.js'

/** What a device measures at one moment. */
export interface ThermalReading {
  /** Seconds; only differences count. */
  readonly time: number
  /** °C */
  readonly temperature: number
  /** W, drawn since the last reading; else `utilization` stands for it. */
  readonly power?: number
  /** Share of time in which the device computed, 0 to 1. */
  readonly utilization?: number
}

/** Options of a {@link ThermalPredictor}. */
export interface ThermalPredictorOptions {
  /** What an earlier fit found; without it nothing is predicted before the first fit. */
  readonly parameters?: ThermalParameters
  /** W of the device when it is idle and when it is busy, for those without a sensor of power. Default: 10 and 100. */
  readonly powerRange?: readonly [idle: number, busy: number]
}

/** A temperature some seconds ahead. */
export interface ThermalPrediction {
  /** From now. */
  readonly seconds: number
  /** °C that are expected. */
  readonly temperature: number
  /** °C that it hardly exceeds: the expectation, twice the 95th percentile of earlier errors, and what drifts away. */
  readonly upper: number
}

/** Horizons of predictions, in seconds. */
export const horizons = [5, 10, 15, 30, 60] as const

/** Gains of the observer for die and sink, per second (facts of the simulation that compared predictors). */
const [dieGain, sinkGain] = [0.3, 0.05]

/** Seconds of readings that a fit takes. */
const windowSeconds = 1800

/** Seconds between the predictions that are compared with what came, and how many of their errors count: 10 minutes. */
const [checkEvery, keptErrors] = [5, 120]

/** Refit when the mean error of 30 s ahead is beyond these °C, not more often than each so many seconds. */
const [largestBias, refitEvery] = [1, 300]

/** Seconds over which the innovation of the observer is averaged: what goes on drifting. */
const driftSeconds = 10

/** Readings further apart than these seconds start the observer anew: the device slept. */
const longestGap = 30

/** The band is wider by this factor where power is only known from utilization. */
const withoutPower = 1.5

/** °C of error that the rounding of a sensor to whole degrees makes. */
const rounding = 0.5

/** A prediction that waits for what comes. */
interface Pending {
  readonly madeAt: number
  state: ThermalState
  /** Index in {@link horizons} that comes next. */
  next: number
}

/**
 * Predicts the temperature of a device from readings about a second apart.
 * @example
 * const predictor = new ThermalPredictor()
 * predictor.add({ time: 0, temperature: 61, power: 70 })
 * predictor.predict(100) // [] until it has seen enough
 */
export class ThermalPredictor {
  readonly #range: readonly [number, number]
  readonly #samples: ThermalSample[] = []
  readonly #errors: number[][] = horizons.map(() => [])
  /** Of the errors of each horizon. */
  readonly #percentiles: (number | undefined)[] = horizons.map(() => undefined)
  #model: ThermalModel | undefined
  #state: ThermalState | undefined
  #drift = 0
  #pending: Pending[] = []
  #fittedAt = Number.NEGATIVE_INFINITY
  #fitSpan = 0
  #measuresPower = true
  /** Whether the model is about the device as it was before it changed. */
  #hasChanged = false

  /** @throws SparkError ERR_ARGUMENT */
  constructor(options: ThermalPredictorOptions = {}) {
    expectKnownOptions('options', options, ['parameters', 'powerRange'])
    this.#range = options.powerRange ?? [10, 100]
    expectNumber('options.powerRange[0]', this.#range[0], 0)
    expectNumber('options.powerRange[1]', this.#range[1], this.#range[0])
    if (options.parameters) this.#model = new ThermalModel(options.parameters)
  }

  /** What the last fit found; undefined before the first one. */
  get parameters(): ThermalParameters | undefined {
    return this.#model?.parameters
  }

  /** °C of the last reading, undefined before the first one. */
  get temperature(): number | undefined {
    return this.#samples.at(-1)?.temperature
  }

  /** Mean error of the last ten minutes' predictions of 30 s, measured − predicted, °C; 0 before there are any. */
  get bias(): number {
    const errors = this.#errors[horizons.indexOf(30)]!
    return errors.length === 0 ? 0 : errors.reduce((sum, error) => sum + error, 0) / errors.length
  }

  /**
   * Takes a reading. One that is not later than the last, or has neither power nor utilization, counts for nothing.
   * @throws SparkError ERR_ARGUMENT for numbers that are not finite
   */
  add(reading: ThermalReading): void {
    const { time, temperature } = reading
    expectNumber('reading.time', time)
    expectNumber('reading.temperature', temperature, -273.15, 1000)
    const power = this.#powerOf(reading)
    const last = this.#samples.at(-1)
    if (power === undefined || (last && time <= last.time)) return
    this.#samples.push({ time, temperature, power })
    while (this.#samples[0]!.time < time - windowSeconds) this.#samples.shift()
    this.#observe(temperature, power, last ? time - last.time : Number.POSITIVE_INFINITY)
    this.#compare(time, temperature)
    this.#refit(time)
  }

  /**
   * Temperatures ahead for a planned power.
   * @param plan - W, or W of each second ahead, of which the last goes on; undefined: as drawn last
   * @returns for 5, 10, 15, 30 and 60 seconds ahead; none before the first fit
   */
  predict(plan?: number | readonly number[]): ThermalPrediction[] {
    const [model, last] = [this.#model, this.#samples.at(-1)]
    let state = this.#state
    if (!model || !state || !last) return []
    const watts = typeof plan === 'object' ? plan : [plan ?? last.power]
    let second = 0
    return horizons.map((seconds, i) => {
      // The last power of a plan goes on: one step leads to the horizon.
      for (; second < seconds && second + 1 < watts.length; second++)
        state = model.step(state!, watts[second]!, 1)
      if (second < seconds) state = model.step(state!, watts.at(-1) ?? last.power, seconds - second)
      second = seconds
      return {
        seconds,
        temperature: state!.die,
        upper: state!.die + this.#band(i) + this.#driftAfter(seconds),
      }
    })
  }

  /** Power of a utilization, as for devices without a sensor: idle + u (busy − idle). */
  powerAt(utilization: number): number {
    const [idle, busy] = this.#range
    return idle + Math.min(1, Math.max(0, utilization)) * (busy - idle)
  }

  #powerOf({ power, utilization }: ThermalReading): number | undefined {
    this.#measuresPower = power !== undefined
    if (power !== undefined) {
      expectNumber('reading.power', power, 0)
      return power
    }
    if (utilization === undefined) return undefined
    expectNumber('reading.utilization', utilization, 0, 1)
    return this.powerAt(utilization)
  }

  /** The observer: what the model expects, corrected towards what was measured. */
  #observe(temperature: number, power: number, seconds: number): void {
    const model = this.#model
    if (!model) return
    if (!this.#state || seconds > longestGap) {
      this.#state = { die: temperature, sink: temperature - power * model.parameters.r1 }
      this.#pending = []
      this.#drift = 0
      return
    }
    const expected = model.step(this.#state, power, seconds)
    const innovation = temperature - expected.die
    const gain = (perSecond: number): number => 1 - (1 - perSecond) ** seconds
    this.#state = {
      die: expected.die + gain(dieGain) * innovation,
      sink: expected.sink + gain(sinkGain) * innovation,
    }
    // What each second of a longer step would have been corrected by.
    const perSecond = (innovation * gain(dieGain)) / (dieGain * seconds)
    this.#drift += gain(1 / driftSeconds) * (perSecond - this.#drift)
    for (const pending of this.#pending) pending.state = model.step(pending.state, power, seconds)
  }

  /** °C that predictions of a horizon are hardly too low. */
  #band(horizon: number): number {
    const widening = this.#measuresPower ? 1 : withoutPower
    return Math.max(rounding, 2 * widening * (this.#percentiles[horizon] ?? 1))
  }

  /**
   * °C that a heat which the model does not know adds: the observer corrects for it in each second, and would go on to. Only
   * upwards: what cools is no danger.
   */
  #driftAfter(seconds: number): number {
    const { r1, c1 } = this.#model!.parameters
    const onDie = dieGain * r1 * c1 * (1 - Math.exp(-seconds / (r1 * c1)))
    return Math.max(0, this.#drift) * (onDie + sinkGain * seconds)
  }

  /** Compares predictions with what came, and makes another one. */
  #compare(time: number, temperature: number): void {
    for (const pending of this.#pending) {
      while (pending.next < horizons.length && time - pending.madeAt >= horizons[pending.next]!) {
        const errors = this.#errors[pending.next]!
        errors.push(temperature - pending.state.die)
        if (errors.length > keptErrors) errors.shift()
        this.#percentiles[pending.next] = percentile95(errors)
        pending.next++
      }
    }
    this.#pending = this.#pending.filter(({ next }) => next < horizons.length)
    const last = this.#pending.at(-1)
    if (this.#state && (!last || time - last.madeAt >= checkEvery))
      this.#pending.push({ madeAt: time, state: this.#state, next: 0 })
  }

  /** Fits at first when there are enough readings, again when they fill the window, and when predictions are biased. */
  #refit(time: number): void {
    if (this.#model && !this.#hasChanged && Math.abs(this.bias) > largestBias) this.#forgetBefore(time)
    const span = time - this.#samples[0]!.time
    if (span < fewestSamples - 1 || time - this.#fittedAt < refitEvery) return
    const isFull = this.#fitSpan >= windowSeconds - 1
    const isFuller = this.#fitSpan > 0 && !isFull && span >= Math.min(2 * this.#fitSpan, windowSeconds - 1)
    if (this.#model && !this.#hasChanged && !isFuller) return
    this.#fittedAt = time
    const fit = fitThermalModel(this.#samples)
    if (!fit) return
    this.#fitSpan = span
    this.#hasChanged = false
    this.#model = new ThermalModel(fit.parameters)
    this.#restart()
  }

  /** The device has changed: drops the readings before its predictions became wrong. */
  #forgetBefore(time: number): void {
    const errors = this.#errors[horizons.indexOf(30)]!
    const begin = errors.findIndex(error => Math.abs(error) > largestBias)
    const changed = time - 30 - checkEvery * (errors.length - begin)
    while (this.#samples[0]!.time < changed) this.#samples.shift()
    this.#hasChanged = true
  }

  /** Follows the readings of the last minutes once more, with the new model. */
  #restart(): void {
    this.#state = undefined
    this.#pending = []
    for (const errors of this.#errors) errors.length = 0
    this.#percentiles.fill(undefined)
    const recent = this.#samples.slice(-windowSeconds / 2)
    recent.forEach(({ time, temperature, power }, i) => {
      this.#observe(temperature, power, i === 0 ? Number.POSITIVE_INFINITY : time - recent[i - 1]!.time)
      this.#compare(time, temperature)
    })
  }
}

/** The 95th percentile of the sizes of errors; undefined while there are too few. */
function percentile95(errors: readonly number[]): number | undefined {
  if (errors.length < 20) return undefined
  const sizes = Float64Array.from(errors, Math.abs).sort()
  return sizes[Math.ceil(0.95 * sizes.length) - 1]
}
