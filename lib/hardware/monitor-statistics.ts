// monitor-statistics.ts: peak and mean of samples in constant memory.
import type { GpuSample } from './gpu-sample.js'
import { warningKind } from './throttle-detector.js'
import type { ThrottleReason } from './throttling.js'

/** Mean and extremes of one quantity over the samples that had it. */
export interface Spread {
  /** Over all samples alike. */
  readonly mean: number
  /** Smallest. */
  readonly min: number
  /** Largest. */
  readonly peak: number
}

/** Statistics of a {@link GpuMonitor}; null where no sample had the quantity. */
export interface MonitorSummary {
  /** Number of samples. */
  readonly samples: number
  /** Seconds from the first sample to the last. */
  readonly seconds: number
  /** Percent. */
  readonly utilization: Spread | null
  /** Bytes in use. */
  readonly memoryUsed: Spread | null
  /** °C */
  readonly temperature: Spread | null
  /** W */
  readonly power: Spread | null
  /** MHz */
  readonly smClock: Spread | null
  /** Number of samples with each reason; reasons that never held are left out. */
  readonly throttleReasons: Readonly<Partial<Record<ThrottleReason, number>>>
  /** Each kind of warning once, as first worded. */
  readonly warnings: readonly string[]
}

/** Mean and extremes of the numbers that it is given; null is passed over. */
export class Accumulator {
  #count = 0
  #sum = 0
  #min = Number.POSITIVE_INFINITY
  #peak = Number.NEGATIVE_INFINITY

  add(value: number | null): void {
    if (value === null) return
    this.#count += 1
    this.#sum += value
    this.#min = Math.min(this.#min, value)
    this.#peak = Math.max(this.#peak, value)
  }

  spread(): Spread | null {
    return this.#count === 0 ? null : { mean: this.#sum / this.#count, min: this.#min, peak: this.#peak }
  }
}

/** Takes samples in, gives a {@link MonitorSummary}. */
export class MonitorStatistics {
  #samples = 0
  #first = 0
  #last = 0
  readonly #reasons = new Map<ThrottleReason, number>()
  readonly #warnings = new Map<string, string>()
  readonly #quantities = {
    utilization: new Accumulator(),
    memoryUsed: new Accumulator(),
    temperature: new Accumulator(),
    power: new Accumulator(),
    smClock: new Accumulator(),
  }

  add(sample: GpuSample): void {
    if (this.#samples === 0) this.#first = sample.time
    this.#samples += 1
    this.#last = sample.time
    this.#quantities.utilization.add(sample.utilization)
    this.#quantities.memoryUsed.add(sample.memory.used)
    this.#quantities.temperature.add(sample.temperature)
    this.#quantities.power.add(sample.power)
    this.#quantities.smClock.add(sample.clocks.sm)
    for (const reason of sample.throttleReasons) {
      this.#reasons.set(reason, (this.#reasons.get(reason) ?? 0) + 1)
    }
    for (const warning of sample.warnings) {
      const kind = warningKind(warning)
      if (!this.#warnings.has(kind)) this.#warnings.set(kind, warning)
    }
  }

  summary(): MonitorSummary {
    const { utilization, memoryUsed, temperature, power, smClock } = this.#quantities
    return {
      samples: this.#samples,
      seconds: (this.#last - this.#first) / 1000,
      utilization: utilization.spread(),
      memoryUsed: memoryUsed.spread(),
      temperature: temperature.spread(),
      power: power.spread(),
      smClock: smClock.spread(),
      throttleReasons: Object.fromEntries(this.#reasons),
      warnings: [...this.#warnings.values()],
    }
  }
}
