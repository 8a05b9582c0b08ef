import { arch, release } from 'node:os'
import { expectKnownOptions } from '../core/checks.js'
import { type Config, getConfig, type Precision } from '../core/config.js'
import { debug } from '../core/log.js'
import { type CudaReport, loadAddon, type NvmlReport } from '../native.js'
import { type BackendChoice, bestOf, chooseBackend } from './backend-choice.js'
import { type CpuInfo, readCpu } from './cpu.js'
import { type GpuInfo, recommendedPrecisionOf } from './gpu.js'
import { type MachineMemory, machineMemory } from './memory.js'
import { type DriverReports, type GpuFacts, nvidiaGpus } from './nvidia.js'
import { gpuFromController, linuxOnly, otherLinuxGpus } from './other-gpus.js'
import { detectSpark, type Platform, readPlatform } from './spark.js'
import { normalizeName, systemRoot } from './system-files.js'

/** Options of {@link HardwareInfo.detect}. */
export interface DetectOptions {
  /** Look again instead of giving the answer of the last detection. */
  readonly refresh?: boolean
}

/** Why a driver library cannot be used, in words; null where it can. */
export interface DriverProblems {
  /** libnvidia-ml.so.1, which describes and measures GPUs. */
  readonly nvml: string | null
  /** libcuda.so.1, which computes on them. */
  readonly cuda: string | null
}

/** Findings of the detection, before any conclusion. */
interface Machine {
  readonly drivers: DriverProblems
  readonly facts: readonly GpuFacts[]
  readonly isDgxSpark: boolean
  readonly platform: Platform
  readonly cpu: CpuInfo
  readonly memory: MachineMemory
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
      HardwareInfo.#detected =
        process.platform === 'linux' ? HardwareInfo.#onLinux(config) : HardwareInfo.#elsewhere(config)
    }
    return HardwareInfo.#detected
  }

  static async #onLinux(config: Config): Promise<HardwareInfo> {
    const root = systemRoot()
    const reports = await askDrivers()
    const facts = [...nvidiaGpus(root, reports), ...otherLinuxGpus(root)]
    const names = [...reports.nvml.devices, ...reports.cuda.devices].flatMap(({ name }) => name ?? [])
    const isDgxSpark = detectSpark(root, names)
    const platform = readPlatform(root, isDgxSpark)
    const drivers = { nvml: reports.nvml.reason, cuda: reports.cuda.reason }
    const memory = machineMemory(root)
    return HardwareInfo.#conclude(config, {
      facts,
      drivers,
      isDgxSpark,
      platform,
      cpu: readCpu(root),
      memory,
    })
  }

  static async #elsewhere(config: Config): Promise<HardwareInfo> {
    const { graphics, system } = await import('systeminformation')
    const [{ controllers }, { manufacturer, model }] = await Promise.all([
      graphics().catch(() => ({ controllers: [] })),
      system().catch(() => ({ manufacturer: '', model: '' })),
    ])
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
    const facts = controllers.map(gpuFromController)
    const drivers = { nvml: linuxOnly, cuda: linuxOnly }
    const root = systemRoot()
    const [cpu, memory] = [readCpu(root), machineMemory(root)]
    return HardwareInfo.#conclude(config, { facts, drivers, isDgxSpark: false, platform, cpu, memory })
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

/** Asks NVML and CUDA at the same time; without the addon both have the same reason for their silence. */
async function askDrivers(): Promise<DriverReports> {
  const loaded = loadAddon()
  if (!loaded.addon) {
    const reason = `the native addon is not loaded: ${loaded.reason}`
    const nvml: NvmlReport = { reason, driver: null, cudaVersion: null, devices: [] }
    const cuda: CudaReport = { reason, kernelsProblem: null, version: null, devices: [] }
    return { nvml, cuda }
  }
  const [nvml, cuda] = await Promise.all([loaded.addon.queryNvml(), loaded.addon.queryCuda()])
  debug(
    `NVML: ${nvml.reason ?? `${nvml.devices.length} GPUs`}; CUDA: ${cuda.reason ?? `${cuda.devices.length} devices`}`,
  )
  return { nvml, cuda }
}
