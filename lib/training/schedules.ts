// schedules.ts: learning rate schedules.
import { expectKnownOptions, expectNumber, expectOneOf } from '../core/checks.js'
import { SparkError } from '../core/errors.js'

/** A linear rise from 0 to the learning rate over `warmup` steps, followed by a schedule of the given type. */
export interface SteppedSchedule {
  /** `constant`; `linear` decay to 0 at the last step; `cosine` decay along (1 + cos)/2. */
  readonly type: 'constant' | 'linear' | 'cosine'
  /** Default: 0 steps. */
  readonly warmup?: number
  /** Length in steps, including warmup. Default: that of the training. */
  readonly steps?: number
  /** Periods of the cosine. Default: 0.5, a single decay to 0. */
  readonly cycles?: number
}

/** Reduces the rate when the mean loss of an epoch has stopped improving. */
export interface PlateauSchedule {
  /** Selects this schedule. */
  readonly type: 'reduce-on-plateau'
  /** Whether smaller or larger is better. Default: min. */
  readonly mode?: 'min' | 'max'
  /** Factor of each reduction. Default: 0.1. */
  readonly factor?: number
  /** Epochs without improvement before a reduction. Default: 10. */
  readonly patience?: number
  /** Minimum improvement that counts. Default: 1e-4. */
  readonly threshold?: number
  /** Whether `threshold` is relative to the best value or absolute. Default: rel. */
  readonly thresholdMode?: 'rel' | 'abs'
  /** Epochs after a reduction that are not counted. Default: 0. */
  readonly cooldown?: number
  /** Minimum rate. Default: 0. */
  readonly minimum?: number
}

/** A schedule: its type, or its type with options. */
export type ScheduleOptions = SteppedSchedule['type'] | SteppedSchedule | PlateauSchedule

/** The state of a schedule, as checkpoints store it. */
export type ScheduleState = Readonly<Record<string, number>>

/** A learning rate schedule. */
export interface Schedule {
  /** Learning rate of step `step`, from 0. */
  rate(step: number): number
  /** Reports the metric of a completed epoch, such as its mean loss. */
  observe(metric: number): void
  /** The state to restore later. */
  state(): ScheduleState
  /** Continues from a saved state. */
  restore(state: ScheduleState): void
}

/**
 * Creates a schedule, with the formulas of PyTorch and Hugging Face's transformers.
 * @param learningRate - base rate
 * @param totalSteps - steps of the whole training, if known
 * @throws SparkError ERR_ARGUMENT for an unknown type or option, or when the schedule needs an unknown number of steps
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

/** Smaller reductions are not applied. */
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
