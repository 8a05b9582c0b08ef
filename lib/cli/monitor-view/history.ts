// history.ts: the samples of the last minutes.
import type { GpuSample } from '../../hardware/gpu-sample.js'
import type { MachineSample } from '../../hardware/machine-monitor.js'

/** Time that drawings show at least, in seconds. */
const shownSeconds = 180

/** At intervals below 0.1 s drawings show less than {@link shownSeconds}. */
const maxSamples = 1800

/** A wider drawing than this many columns shows more than {@link shownSeconds} at an interval of 1 s. */
const maxColumns = 400

/** The newest samples of a monitor. */
export class History {
  /** Seconds from one sample to the next. */
  readonly interval: number
  readonly #samples: MachineSample[] = []
  #dropped = 0

  constructor(interval: number) {
    this.interval = interval
  }

  add(sample: MachineSample): void {
    this.#samples.push(sample)
    if (this.#samples.length > Math.max(maxColumns, this.#window)) {
      this.#samples.shift()
      this.#dropped += 1
    }
  }

  get newest(): MachineSample | undefined {
    return this.#samples.at(-1)
  }

  /** Number of the oldest sample since the start. */
  get first(): number {
    return this.#dropped
  }

  /** Samples that share a column of a drawing. */
  perColumn(columns: number): number {
    return Math.max(1, Math.ceil(this.#window / Math.max(1, columns)))
  }

  /** A value of all samples. */
  ofMachine(value: (sample: MachineSample) => number | null): (number | null)[] {
    return this.#samples.map(value)
  }

  /** A value of all samples of the GPU with an index; null where it was not measured. */
  ofGpu(index: number, value: (sample: GpuSample) => number | null): (number | null)[] {
    return this.#samples.map(({ gpus }) => {
      const sample = gpus.find(({ gpu }) => gpu.index === index)
      return sample ? value(sample) : null
    })
  }

  get #window(): number {
    return Math.min(maxSamples, Math.ceil(shownSeconds / this.interval))
  }
}
