// monitor.ts: periodic measurement of a GPU.
import { expectInteger, expectKnownOptions, expectSignal } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { type Addon, loadAddon, type NvmlSample } from '../native.js'
import { bestOf } from './backend-choice.js'
import type { GpuInfo } from './gpu.js'
import { type GpuSample, processName, toSample } from './gpu-sample.js'
import { HardwareInfo } from './hardware-info.js'
import { MonitorStatistics, type MonitorSummary } from './monitor-statistics.js'
import { iterate, type Sampling, samples } from './sampling.js'
import { systemRoot } from './system-files.js'
import { ThrottleDetector } from './throttle-detector.js'

/** Options of a {@link GpuMonitor}. */
export interface GpuMonitorOptions {
  /** Index in {@link HardwareInfo.gpus}, or uuid; default: the best GPU. */
  readonly gpu?: number | string
  /** Milliseconds from one sample to the next, default 1000. A driver measures utilization over 160 ms to 1 s. */
  readonly intervalMs?: number
  /** Ends iterations and background sampling. */
  readonly signal?: AbortSignal
}

/**
 * Samples an NVIDIA GPU: utilization, memory, temperature, power, clocks, throttling, processes.
 *
 * Iterate over it, or let it collect in the background between {@link GpuMonitor.start} and
 * {@link GpuMonitor.stop}, and ask for {@link GpuMonitor.summary}. A monitor that only samples in the background does
 * not keep the process alive; a pending iteration does.
 * @example
 * for await (const { utilization, power } of new GpuMonitor({ intervalMs: 500 })) {
 *   console.log(utilization, power)
 *   if (utilization === 0) break
 * }
 */
export class GpuMonitor implements AsyncIterable<GpuSample> {
  readonly #which: number | string | undefined
  readonly #sampling: Sampling<GpuSample>
  readonly #statistics = new MonitorStatistics()
  readonly #detector = new ThrottleDetector()
  #target: Promise<{ addon: Addon; gpu: GpuInfo }> | undefined
  #lastThrottled: NvmlSample['throttled'] | undefined
  #background: { stop: AbortController; done: Promise<void> } | undefined

  /**
   * @param options - which GPU, how often, until when
   * @throws SparkError ERR_ARGUMENT for an option of the wrong type or out of range
   */
  constructor(options: GpuMonitorOptions = {}) {
    expectKnownOptions('options', options, ['gpu', 'intervalMs', 'signal'])
    const { gpu, intervalMs = 1000, signal } = options
    if (gpu !== undefined && typeof gpu !== 'string') expectInteger('gpu', gpu, 0)
    expectInteger('intervalMs', intervalMs, 10, 86_400_000)
    expectSignal('signal', signal)
    this.#which = gpu
    this.#sampling = { intervalMs, signal, sample: () => this.sample() }
  }

  /**
   * The GPU that is measured.
   * @internal
   * @throws SparkError as {@link GpuMonitor.sample}
   */
  async target(): Promise<GpuSample['gpu']> {
    this.#target ??= findGpu(this.#which)
    const { index, name, uuid } = (await this.#target).gpu
    return { index, name, uuid }
  }

  /**
   * Measures once.
   * @throws SparkError ERR_NO_CUDA when the addon is missing or there is no NVIDIA GPU that NVML measures, ERR_ARGUMENT
   * when there is no such GPU, ERR_CUDA when the GPU is lost
   */
  async sample(): Promise<GpuSample> {
    this.#target ??= findGpu(this.#which)
    const { addon, gpu } = await this.#target
    const time = Date.now()
    const raw = await addon.sampleGpu(gpu.uuid!)
    const measured = toSample(time, gpu, raw, this.#lastThrottled, pid => processName(systemRoot(), pid))
    this.#lastThrottled = raw.throttled
    const sample = { ...measured, warnings: [...measured.warnings, ...this.#detector.add(measured)] }
    this.#statistics.add(sample)
    return sample
  }

  /** Samples until the loop is left or the signal aborts; errors are those of {@link GpuMonitor.sample}. */
  [Symbol.asyncIterator](): AsyncIterator<GpuSample, undefined> {
    return iterate(this.#sampling)
  }

  /** Starts sampling in the background, for the summary. Does nothing when it runs. */
  start(): void {
    if (this.#background) return
    const stop = new AbortController()
    const collect = async (): Promise<void> => {
      for await (const _ of samples(this.#sampling, stop.signal, false));
    }
    const done = collect()
    done.catch(() => {}) // told by stop()
    this.#background = { stop, done }
  }

  /**
   * Ends background sampling.
   * @returns the summary of all samples so far
   * @throws SparkError what ended background sampling early, if something did
   */
  async stop(): Promise<MonitorSummary> {
    const background = this.#background
    this.#background = undefined
    background?.stop.abort()
    await background?.done
    return this.summary()
  }

  /** Peak and mean of all samples of this monitor so far. */
  summary(): MonitorSummary {
    return this.#statistics.summary()
  }
}

/** Why no GPU can be measured when the addon is missing. */
export const withoutAddon = (reason: string): string =>
  `a GPU cannot be measured without the native addon: ${reason}`

/** Why a GPU without a uuid cannot be measured. */
export function withoutUuid({ index, name, problem, unavailable }: GpuInfo): string {
  const why = problem ?? unavailable.uuid ?? 'the driver tells no uuid'
  return `GPU ${index} (${name}) cannot be measured: ${why}`
}

async function findGpu(which: number | string | undefined): Promise<{ addon: Addon; gpu: GpuInfo }> {
  const loaded = loadAddon()
  if (!loaded.addon) throw new SparkError('ERR_NO_CUDA', withoutAddon(loaded.reason))
  const { gpus } = await HardwareInfo.detect()
  const nvidia = gpus.filter(gpu => gpu.vendor === 'nvidia')
  if (nvidia.length === 0) {
    throw new SparkError(
      'ERR_NO_CUDA',
      'there is no NVIDIA GPU to measure; `dgx-spark check` says what is missing',
    )
  }
  const gpu =
    which === undefined
      ? (bestOf(nvidia) ?? nvidia.find(each => each.uuid) ?? nvidia[0])
      : nvidia.find(each => each.index === which || each.uuid === which)
  if (!gpu) {
    const choices = nvidia
      .map(({ index, uuid, name }) => `${index} (${name}, ${uuid ?? 'no uuid'})`)
      .join(', ')
    throw new SparkError('ERR_ARGUMENT', `gpu is ${which}, which no NVIDIA GPU has; there are ${choices}`)
  }
  if (!gpu.uuid) throw new SparkError('ERR_NO_CUDA', withoutUuid(gpu))
  return { addon: loaded.addon, gpu }
}
