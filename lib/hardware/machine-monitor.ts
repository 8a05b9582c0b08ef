// machine-monitor.ts: periodic measurement of a machine: CPU, memory, every NVIDIA GPU.
import { setTimeout as sleep } from 'node:timers/promises'
import { expectInteger, expectKnownOptions, expectSignal } from '../core/checks.js'
import { loadAddon } from '../native.js'
import type { CpuMeter, CpuSample } from './cpu-meter.js'
import type { GpuSample } from './gpu-sample.js'
import { HardwareInfo } from './hardware-info.js'
import type { MachineMemory } from './memory.js'
import { GpuMonitor, type GpuMonitorOptions, withoutAddon, withoutUuid } from './monitor.js'
import { Accumulator, type MonitorSummary, type Spread } from './monitor-statistics.js'
import { iterate, type Sampling } from './sampling.js'

/** One measurement of a machine. */
export interface MachineSample {
  /** When it was taken, in milliseconds since 1970. */
  readonly time: number
  /** Processors, of the whole machine. */
  readonly cpu: CpuSample
  /** Memory of the machine, or of the container or service that limits this process. */
  readonly memory: MachineMemory
  /** The NVIDIA GPUs that could be measured. */
  readonly gpus: readonly GpuSample[]
  /** Why there is no GPU, or not every GPU of the machine, in words. */
  readonly gpuProblems: readonly string[]
}

/** Statistics of one GPU of a {@link MachineMonitor}. */
export interface GpuSummary {
  /** Which GPU. */
  readonly gpu: GpuSample['gpu']
  /** Of the samples that it was in. */
  readonly summary: MonitorSummary
}

/** Statistics of a {@link MachineMonitor}; null where no sample had the quantity. */
export interface MachineSummary {
  /** Number of samples. */
  readonly samples: number
  /** Seconds from the first sample to the last. */
  readonly seconds: number
  /** Use of the CPU, percent. */
  readonly cpuUtilization: Spread | null
  /** °C */
  readonly cpuTemperature: Spread | null
  /** Bytes of the machine's memory that were not available. */
  readonly memoryUsed: Spread | null
  /** Of each GPU, in the order of the samples. */
  readonly gpus: readonly GpuSummary[]
}

interface MonitoredGpu {
  readonly gpu: GpuSample['gpu']
  readonly monitor: GpuMonitor
}

interface Parts {
  readonly meter: CpuMeter
  readonly gpus: readonly MonitoredGpu[]
  readonly problems: readonly string[]
  memory(): MachineMemory
}

/** Time that the first sample of the CPU is about, in milliseconds. */
const firstMs = 100

/**
 * Samples CPU, memory and every NVIDIA GPU of the machine, also where there is none.
 * @example
 * for await (const { cpu, memory, gpus } of new MachineMonitor({ intervalMs: 2000 })) {
 *   console.log(cpu.utilization, memory.available, gpus.map(gpu => gpu.utilization))
 *   if (memory.available < 2 ** 30) break
 * }
 */
export class MachineMonitor implements AsyncIterable<MachineSample> {
  readonly #which: number | string | undefined
  readonly #sampling: Sampling<MachineSample>
  readonly #statistics = {
    cpuUtilization: new Accumulator(),
    cpuTemperature: new Accumulator(),
    memoryUsed: new Accumulator(),
  }
  #parts: Promise<Parts> | undefined
  #opened: Parts | undefined
  #samples = 0
  #first = 0
  #last = 0

  /**
   * @param options - how often, until when; with `gpu` that GPU alone
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
   * Measures once; the first time takes 100 ms longer, over which the use of the CPU is measured.
   * @throws SparkError only where `gpu` was given: what {@link GpuMonitor.sample} throws
   */
  async sample(): Promise<MachineSample> {
    this.#parts ??= openParts(this.#which)
    const parts = await this.#parts
    this.#opened = parts
    const time = Date.now()
    const measured = await Promise.all(parts.gpus.map(each => this.#sampleGpu(each)))
    const sample: MachineSample = {
      time,
      cpu: parts.meter.sample(),
      memory: parts.memory(),
      gpus: measured.filter(each => typeof each === 'object'),
      gpuProblems: [...parts.problems, ...measured.filter(each => typeof each === 'string')],
    }
    this.#add(sample)
    return sample
  }

  /** Samples until the loop is left or the signal aborts. */
  [Symbol.asyncIterator](): AsyncIterator<MachineSample, undefined> {
    return iterate(this.#sampling)
  }

  /** Peak and mean of all samples of this monitor so far. */
  summary(): MachineSummary {
    const { cpuUtilization, cpuTemperature, memoryUsed } = this.#statistics
    return {
      samples: this.#samples,
      seconds: (this.#last - this.#first) / 1000,
      cpuUtilization: cpuUtilization.spread(),
      cpuTemperature: cpuTemperature.spread(),
      memoryUsed: memoryUsed.spread(),
      gpus: (this.#opened?.gpus ?? []).map(({ gpu, monitor }) => ({ gpu, summary: monitor.summary() })),
    }
  }

  /** A sample of a GPU, or what is wrong with it. */
  async #sampleGpu({ gpu, monitor }: MonitoredGpu): Promise<GpuSample | string> {
    try {
      return await monitor.sample()
    } catch (error) {
      if (this.#which !== undefined) throw error
      return `GPU ${gpu.index} (${gpu.name}): ${(error as Error).message}`
    }
  }

  #add({ time, cpu, memory }: MachineSample): void {
    if (this.#samples === 0) this.#first = time
    this.#samples += 1
    this.#last = time
    this.#statistics.cpuUtilization.add(cpu.utilization)
    this.#statistics.cpuTemperature.add(cpu.temperature)
    this.#statistics.memoryUsed.add(memory.total - memory.available)
  }
}

async function openParts(which: number | string | undefined): Promise<Parts> {
  const [{ CpuMeter }, { machineMemory }, { systemRoot }] = await Promise.all([
    import('./cpu-meter.js'),
    import('./memory.js'),
    import('./system-files.js'),
  ])
  const meter = new CpuMeter(systemRoot())
  const [found] = await Promise.all([which === undefined ? everyGpu() : oneGpu(which), sleep(firstMs)])
  return { meter, memory: () => machineMemory(systemRoot()), ...found }
}

type Found = Pick<Parts, 'gpus' | 'problems'>

async function oneGpu(which: number | string): Promise<Found> {
  const monitor = new GpuMonitor({ gpu: which })
  return { gpus: [{ gpu: await monitor.target(), monitor }], problems: [] }
}

/** Monitors of the NVIDIA GPUs that can be measured, and why the others cannot. */
async function everyGpu(): Promise<Found> {
  const { gpus: all } = await HardwareInfo.detect()
  const nvidia = all.filter(({ vendor }) => vendor === 'nvidia')
  const loaded = loadAddon()
  if (nvidia.length === 0) {
    const others = all.map(({ name }) => name).join(', ')
    const rest = others ? `, and others are not measured: ${others}` : ''
    return { gpus: [], problems: [`there is no NVIDIA GPU${rest}`] }
  }
  if (!loaded.addon) return { gpus: [], problems: [withoutAddon(loaded.reason)] }
  const gpus: MonitoredGpu[] = []
  const problems: string[] = []
  for (const gpu of nvidia) {
    const { index, name, uuid } = gpu
    if (uuid) gpus.push({ gpu: { index, name, uuid }, monitor: new GpuMonitor({ gpu: uuid }) })
    else problems.push(withoutUuid(gpu))
  }
  return { gpus, problems }
}
