// gpu-use.ts: the GPU during a benchmark, sampled in the background.
import { SparkError } from '../core/errors.js'
import { GpuMonitor } from '../hardware/monitor.js'
import type { MonitorStatistics, MonitorSummary } from '../hardware/monitor-statistics.js'
import type { ThrottleReason } from '../hardware/throttling.js'
import { integratePower, type PowerSample } from './energy.js'

/** Drivers renew power and utilization no more often. */
const intervalMs = 100

/** Reasons for which a GPU is slower than it could be, against its will. */
const throttling: readonly ThrottleReason[] = [
  'software power cap',
  'hardware slowdown',
  'software thermal slowdown',
  'hardware thermal slowdown',
  'hardware power brake',
]

/** Samples the best NVIDIA GPU; each sample counts for whom runs at that time. */
export class GpuUse {
  readonly #stop = new AbortController()
  readonly #monitor = new GpuMonitor({ intervalMs, signal: this.#stop.signal })
  readonly #power: PowerSample[] = []
  #running: MonitorStatistics | undefined
  #done: Promise<void> = Promise.resolve()

  /** Begins; null without a GPU that can be sampled. */
  static async start(): Promise<GpuUse | null> {
    const use = new GpuUse()
    if (!(await use.now())) return null
    use.#done = use.#collect().catch(() => {}) // a GPU that was lost has fewer samples
    return use
  }

  async #collect(): Promise<void> {
    for await (const sample of this.#monitor) this.#take(sample)
  }

  #take(sample: Awaited<ReturnType<GpuMonitor['sample']>>): void {
    if (sample.power !== null) this.#power.push({ at: performance.now(), power: sample.power })
    this.#running?.add(sample)
  }

  /** Samples that follow count for `statistics`, until the next call. */
  count(statistics: MonitorStatistics | undefined): void {
    this.#running = statistics
  }

  /** Takes a sample now, for whom runs. False where the GPU cannot be sampled. */
  async now(): Promise<boolean> {
    try {
      this.#take(await this.#monitor.sample())
      return true
    } catch (error) {
      if (error instanceof SparkError) return false
      throw error
    }
  }

  /** Joules from `start` to `end`, milliseconds of `performance.now`; null where the GPU tells no power. */
  joules(start: number, end: number): number | null {
    return integratePower(this.#power, start, end)
  }

  /** Ends sampling. */
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#done
  }
}

/** What samples say about lower clocks, in words. */
export function gpuWarnings({ throttleReasons, samples, warnings }: MonitorSummary): string[] {
  const throttled = throttling.flatMap(reason => {
    const count = throttleReasons[reason]
    return count ? [`the GPU was throttled in ${count} of ${samples} samples: ${reason}`] : []
  })
  return [...throttled, ...warnings]
}
