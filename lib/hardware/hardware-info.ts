import { expectKnownOptions } from '../core/checks.js'
import { type Config, getConfig, type Precision } from '../core/config.js'
import { debug } from '../core/log.js'
import { loadAddon } from '../native.js'
import { type BackendChoice, bestOf, chooseBackend } from './backend-choice.js'
import type { CpuInfo } from './cpu.js'
import { type GpuInfo, recommendedPrecisionOf } from './gpu.js'
import type { DriverProblems, Machine } from './machine.js'
import type { MachineMemory } from './memory.js'
import type { Platform } from './spark.js'

/** Options of {@link HardwareInfo.detect}. */
export interface DetectOptions {
  /** Look again instead of giving the answer of the last detection. */
  readonly refresh?: boolean
}

/**
 * The hardware of this machine and the backends it supports.
 * @example
 * const hardware = await HardwareInfo.detect()
 * console.log(hardware.isDgxSpark, hardware.bestGpu?.name, hardware.backend.reason)
 */
export class HardwareInfo {
  static #detected: Promise<HardwareInfo> | undefined

  /** Whether this is an NVIDIA DGX Spark, the Founders Edition or another maker's GB10 machine. */
  readonly isDgxSpark: boolean
  /** Maker, product and operating system. */
  readonly platform: Platform
  /** Every GPU of the machine: NVIDIA first, in the order of nvidia-smi; also those that cannot be used. */
  readonly gpus: readonly GpuInfo[]
  /** The GPU `auto` would prefer: a Spark's, then by compute capability, then by memory; null: none can be used. */
  readonly bestGpu: GpuInfo | null
  /** Why NVIDIA's driver libraries cannot be used. */
  readonly drivers: DriverProblems
  /** Processor of the machine. */
  readonly cpu: CpuInfo
  /** Memory of the machine. */
  readonly memory: MachineMemory
  /** The engine that calls without a `backend` option run on, and why. */
  readonly backend: BackendChoice
  /** bf16 on a GPU from compute capability 8.0, fp16 from 7.0, fp32 on older ones and wherever the CPU computes. */
  readonly recommendedPrecision: Precision

  private constructor(facts: Omit<HardwareInfo, 'bestGpu'>) {
    this.isDgxSpark = facts.isDgxSpark
    this.platform = facts.platform
    this.gpus = facts.gpus
    this.bestGpu = bestOf(facts.gpus)
    this.drivers = facts.drivers
    this.cpu = facts.cpu
    this.memory = facts.memory
    this.backend = facts.backend
    this.recommendedPrecision = facts.recommendedPrecision
  }

  /**
   * Looks at the machine, off the JavaScript thread where that takes long. The answer is kept for the process. A
   * machine is never an error: what cannot be found out is null, with the reason beside it.
   * @throws SparkError ERR_ARGUMENT for an option it does not know
   */
  static async detect(options: DetectOptions = {}): Promise<HardwareInfo> {
    expectKnownOptions('options', options, ['refresh'])
    const config = getConfig()
    if (options.refresh || !HardwareInfo.#detected) {
      HardwareInfo.#detected = import('./machine.js')
        .then(({ readMachine }) => readMachine())
        .then(machine => HardwareInfo.#conclude(config, machine))
    }
    return HardwareInfo.#detected
  }

  static #conclude(config: Config, machine: Machine): HardwareInfo {
    const { facts, ...rest } = machine
    const gpus = facts.map((gpu, index): GpuInfo => ({ index, ...gpu }))
    const loaded = loadAddon()
    const addonProblem = loaded.addon ? null : loaded.reason
    const kernelFamilies = loaded.addon?.kernelFamilies() ?? []
    const backend = chooseBackend({ gpus, addonProblem, kernelFamilies }, config)
    debug(`backend ${backend.name}: ${backend.reason}`)
    const chosen = backend.gpu === null ? null : gpus[backend.gpu]!
    const recommendedPrecision = recommendedPrecisionOf(chosen?.computeCapability ?? null)
    return new HardwareInfo({ ...rest, gpus, backend, recommendedPrecision })
  }
}
