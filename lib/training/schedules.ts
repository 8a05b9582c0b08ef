// schedules.ts: the learning rate of each step.
import { expectKnownOptions, expectNumber, expectOneOf } from '../core/checks.js'
import { SparkError } from '../core/errors.js'

/** A rate that rises linearly from 0 to the learning rate over `warmup` steps and then does what `type` says. */
export interface SteppedSchedule {
  /** `constant`: it stays. `linear`: it falls to 0 at the last step. `cosine`: it falls along (1 + cos)/2. */
  readonly type: 'constant' | 'linear' | 'cosine'
  /** Steps of the rise. Default: 0. */
  readonly warmup?: number
  /** Steps in all. Default: those of the whole training. */
  readonly steps?: number
  /** Waves of the cosine. Default: 0.5, from the top to the bottom. */
  readonly cycles?: number
}

/** A rate that falls when an epoch's mean loss has stopped to improve. */
export interface PlateauSchedule {
  /** Which schedule it is. */
  readonly type: 'reduce-on-plateau'
  /** Whether smaller or larger is better. Default: min. */
  readonly mode?: 'min' | 'max'
  /** What the rate is multiplied by. Default: 0.1. */
  readonly factor?: number
  /** Epochs without improvement that are accepted. Default: 10. */
  readonly patience?: number
  /** How much counts as an improvement. Default: 1e-4. */
  readonly threshold?: number
  /** Whether `threshold` is a share of the best value or a difference from it. Default: rel. */
  readonly thresholdMode?: 'rel' | 'abs'
  /** Epochs after a fall during which none is counted. Default: 0. */
  readonly cooldown?: number
  /** The rate falls no further. Default: 0. */
  readonly minimum?: number
}

/** How the learning rate changes. */
export type ScheduleOptions = SteppedSchedule['type'] | SteppedSchedule | PlateauSchedule

/** What a schedule remembers: numbers that a checkpoint keeps. */
export type ScheduleState = Readonly<Record<string, number>>

/** Gives the learning rate of each step. */
export interface Schedule {
  /** Learning rate of step `step`, from 0. */
  rate(step: number): number
  /** Says how an epoch went: its mean loss, or what else is watched. */
  observe(metric: number): void
  /** What it remembers. */
  state(): ScheduleState
  /** Goes on from there. */
  restore(state: ScheduleState): void
}

/**
 * Makes a schedule, with the formulas of PyTorch and of Hugging Face's transformers.
 * @param learningRate - the rate that factors apply to
 * @param totalSteps - steps of the whole training; undefined when nobody knows
 * @throws SparkError ERR_ARGUMENT for an unknown type or option, or when the number of steps is needed and not known
 */
export function createSchedule(
  options: ScheduleOptions,
  learningRate: number,
  totalSteps?: number,
): Schedule {
  const given = typeof options === 'string' ? { type: options } : options
  expectOneOf('schedule.type', given.type, ['constant', 'linear', 'cosine', 'reduce-on-plateau'])
  if (given.type === 'reduce-on-plateau') return new Plateau(given, learningRate)
  expectKnownOptions('schedule', given, ['type', 'warmup', 'steps', 'cycles'])
  return new Stepped(given, learningRate, totalSteps)
}

class Stepped implements Schedule {
  readonly #factor: (step: number) => number
  readonly #learningRate: number

  constructor(options: SteppedSchedule, learningRate: number, totalSteps: number | undefined) {
    const { type, warmup = 0, steps = totalSteps, cycles = 0.5 } = options
    expectNumber('schedule.warmup', warmup, 0)
    expectNumber('schedule.cycles', cycles, 0)
    if (type !== 'constant' && steps === undefined) {
      const remedy = 'a stream of batches has no length, so give schedule.steps'
      throw new SparkError('ERR_ARGUMENT', `schedule '${type}' needs the number of steps: ${remedy}`)
    }
    const span = Math.max(1, (steps ?? 0) - warmup)
    const fall = (step: number): number => {
      if (type === 'constant') return 1
      if (type === 'linear') return Math.max(0, (steps! - step) / span)
      return Math.max(0, 0.5 * (1 + Math.cos(Math.PI * cycles * 2 * ((step - warmup) / span))))
    }
    this.#factor = step => (step < warmup ? step / Math.max(1, warmup) : fall(step))
    this.#learningRate = learningRate
  }

  rate(step: number): number {
    return this.#learningRate * this.#factor(step)
  }

  observe(): void {}

  state(): ScheduleState {
    return {}
  }

  restore(): void {}
}

/** Smaller changes of the rate are not made. */
const smallestChange = 1e-8

class Plateau implements Schedule {
  readonly #options: Required<PlateauSchedule>
  #rate: number
  #best: number
  #bad = 0
  #cooldown = 0

  constructor(options: PlateauSchedule, learningRate: number) {
    const known = ['type', 'mode', 'factor', 'patience', 'threshold', 'thresholdMode', 'cooldown', 'minimum']
    expectKnownOptions('schedule', options, known)
    const { mode = 'min', thresholdMode = 'rel', ...rest } = options
    expectOneOf('schedule.mode', mode, ['min', 'max'])
    expectOneOf('schedule.thresholdMode', thresholdMode, ['rel', 'abs'])
    const numbers = { factor: 0.1, patience: 10, threshold: 1e-4, cooldown: 0, minimum: 0, ...rest }
    const { type: _, ...checked } = numbers
    for (const [name, value] of Object.entries(checked)) expectNumber(`schedule.${name}`, value, 0)
    expectNumber('schedule.factor', numbers.factor, 0, 1 - Number.EPSILON)
    this.#options = { ...numbers, mode, thresholdMode }
    this.#rate = learningRate
    this.#best = mode === 'min' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY
  }

  rate(): number {
    return this.#rate
  }

  observe(metric: number): void {
    const { patience, cooldown, factor, minimum } = this.#options
    if (this.#improves(metric)) {
      this.#best = metric
      this.#bad = 0
    } else {
      this.#bad++
    }
    if (this.#cooldown > 0) {
      this.#cooldown--
      this.#bad = 0
    }
    if (this.#bad <= patience) return
    const next = Math.max(this.#rate * factor, minimum)
    if (this.#rate - next > smallestChange) this.#rate = next
    this.#cooldown = cooldown
    this.#bad = 0
  }

  #improves(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this.#options
    const sign = mode === 'min' ? -1 : 1
    const margin =
      thresholdMode === 'rel' ? this.#best * (1 + sign * threshold) : this.#best + sign * threshold
    return mode === 'min' ? metric < margin : metric > margin
  }

  state(): ScheduleState {
    return { rate: this.#rate, best: this.#best, bad: this.#bad, cooldown: this.#cooldown }
  }

  restore({ rate, best, bad, cooldown }: ScheduleState): void {
    this.#rate = rate!
    this.#best = best!
    this.#bad = bad!
    this.#cooldown = cooldown!
  }
}
