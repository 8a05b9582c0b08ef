import { arch, release } from 'node:os'
import { expectKnownOptions } from '../core/checks.js'
import { getConfig, type Precision } from '../core/config.js'
import { type CudaReport, loadAddon, type NvmlReport } from '../native.js'
import { type BackendChoice, bestOf, chooseBackend } from './backend-choice.js'
import { type GpuInfo, recommendedPrecisionOf } from './gpu.js'
import { type MachineMemory, machineMemory } from './memory.js'
import { type DriverReports, type GpuFacts, nvidiaGpus } from './nvidia.js'
import { gpuFromController, otherLinuxGpus } from './other-gpus.js'
import { detectSpark, type Platform, readPlatform } from './spark.js'
import { normalizeName, systemRoot } from './system-files.js'

/** Options of {@link HardwareInfo.detect}. */
export interface DetectOptions {
  /** Look again instead of giving the answer of the last detection. */
  readonly refresh?: boolean
}

/**
 * What this machine is and what it can compute with.
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
    if (options.refresh || !HardwareInfo.#detected) {
      HardwareInfo.#detected =
        process.platform === 'linux' ? HardwareInfo.#onLinux() : HardwareInfo.#elsewhere()
    }
    return HardwareInfo.#detected
  }

  static async #onLinux(): Promise<HardwareInfo> {
    const root = systemRoot()
    const reports = await askDrivers()
    const facts = [...nvidiaGpus(root, reports), ...otherLinuxGpus(root)]
    const names = [...reports.nvml.devices, ...reports.cuda.devices].flatMap(({ name }) => name ?? [])
    const isDgxSpark = detectSpark(root, names)
    return HardwareInfo.#conclude(facts, isDgxSpark, readPlatform(root, isDgxSpark), machineMemory(root))
  }

  static async #elsewhere(): Promise<HardwareInfo> {
    const { graphics, system } = await import('systeminformation')
    const [{ controllers }, { manufacturer, model }] = await Promise.all([graphics(), system()])
    const platform: Platform = {
      os: process.platform,
      arch: arch(),
      kernel: release(),
      vendor: normalizeName(manufacturer),
      product: normalizeName(model),
      family: null,
      oemModel: null,
      dgxOsVersion: null,
    }
    return HardwareInfo.#conclude(
      controllers.map(gpuFromController),
      false,
      platform,
      machineMemory(systemRoot()),
    )
  }

  static #conclude(
    facts: readonly GpuFacts[],
    isDgxSpark: boolean,
    platform: Platform,
    memory: MachineMemory,
  ): HardwareInfo {
    const gpus = facts.map((gpu, index): GpuInfo => ({ index, ...gpu }))
    const loaded = loadAddon()
    const backend = chooseBackend(
      {
        gpus,
        addonProblem: loaded.addon ? null : loaded.reason,
        kernelFamilies: loaded.addon?.kernelFamilies() ?? [],
      },
      getConfig(),
    )
    const chosen = backend.gpu === null ? null : gpus[backend.gpu]!
    const recommendedPrecision = recommendedPrecisionOf(chosen?.computeCapability ?? null)
    return new HardwareInfo({ isDgxSpark, platform, gpus, memory, backend, recommendedPrecision })
  }
}

/** Asks NVML and CUDA at the same time; without the addon both have the same reason for their silence. */
async function askDrivers(): Promise<DriverReports> {
  const loaded = loadAddon()
  if (!loaded.addon) {
    const reason = `the native addon is not loaded: ${loaded.reason}`
    const nvml: NvmlReport = { reason, driver: null, cudaVersion: null, devices: [] }
    const cuda: CudaReport = { reason, version: null, devices: [] }
    return { nvml, cuda }
  }
  const [nvml, cuda] = await Promise.all([loaded.addon.queryNvml(), loaded.addon.queryCuda()])
  return { nvml, cuda }
}
