// machine.ts: what a look at this machine finds, before any conclusion.
import { arch, release } from 'node:os'
import { debug } from '../core/log.js'
import { type CudaReport, loadAddon, type NvmlReport } from '../native.js'
import { type CpuInfo, readCpu } from './cpu.js'
import { type MachineMemory, machineMemory } from './memory.js'
import { type DriverReports, type GpuFacts, nvidiaGpus } from './nvidia.js'
import { gpuFromController, linuxOnly, otherLinuxGpus } from './other-gpus.js'
import { detectSpark, type Platform, readPlatform } from './spark.js'
import { normalizeName, systemRoot } from './system-files.js'

/** Why a driver library cannot be used, in words; null where it can. */
export interface DriverProblems {
  /** libnvidia-ml.so.1, which describes and measures GPUs. */
  readonly nvml: string | null
  /** libcuda.so.1, which computes on them. */
  readonly cuda: string | null
}

/** Findings of the detection. */
export interface Machine {
  readonly drivers: DriverProblems
  readonly facts: readonly GpuFacts[]
  readonly isDgxSpark: boolean
  readonly platform: Platform
  readonly cpu: CpuInfo
  readonly memory: MachineMemory
}

/** Looks at the machine. What cannot be found out is null, with the reason beside it. */
export const readMachine = (): Promise<Machine> => (process.platform === 'linux' ? onLinux() : elsewhere())

async function onLinux(): Promise<Machine> {
  const root = systemRoot()
  const reports = await askDrivers()
  const facts = [...nvidiaGpus(root, reports), ...otherLinuxGpus(root)]
  const names = [...reports.nvml.devices, ...reports.cuda.devices].flatMap(({ name }) => name ?? [])
  const isDgxSpark = detectSpark(root, names)
  const platform = readPlatform(root, isDgxSpark)
  const drivers = { nvml: reports.nvml.reason, cuda: reports.cuda.reason }
  const memory = machineMemory(root)
  return { facts, drivers, isDgxSpark, platform, cpu: readCpu(root), memory }
}

async function elsewhere(): Promise<Machine> {
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
  return { facts, drivers, isDgxSpark: false, platform, cpu, memory }
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
