// nvidia.ts: one list of NVIDIA GPUs out of what NVML, CUDA, the kernel module and the PCI bus say. NVML and CUDA count
// in different orders, so they are joined by UUID, and by PCI address where a UUID is missing (MIG, old drivers).
import type { CudaDevice, CudaReport, NvmlDevice, NvmlReport } from '../native.js'
import {
  architectureOf,
  type GpuInfo,
  type GpuMemory,
  type PciDevice,
  precisionSupportOf,
  supportClassOf,
} from './gpu.js'
import { machineMemory, unifiedMemoryFree } from './memory.js'
import { normalizePciAddress, type PciGpu, pciName, readDriverGpus, readPciIds, scanPci } from './pci.js'
import { isSparkGpu } from './spark.js'
import { normalizeName, readText } from './system-files.js'

/** A GPU before its index is known. */
export type GpuFacts = Omit<GpuInfo, 'index'>

/** Facts from the driver libraries. */
export interface DriverReports {
  readonly nvml: NvmlReport
  readonly cuda: CudaReport
}

/** One GPU's entries in each source. */
interface Sources {
  nvml: NvmlDevice | null
  cuda: CudaDevice | null
  pci: PciGpu | null
}

const addressOf = ({ nvml, cuda }: Sources): string | null =>
  normalizePciAddress(nvml?.pci ?? null) ?? normalizePciAddress(cuda?.pci ?? null)

/** Takes the first element that satisfies `test` out of `list`. */
function take<T>(list: T[], test: (item: T) => boolean): T | null {
  const position = list.findIndex(test)
  return position < 0 ? null : list.splice(position, 1)[0]!
}

function join(reports: DriverReports, pciGpus: readonly PciGpu[]): Sources[] {
  const gpus = reports.nvml.devices.map((nvml): Sources => ({ nvml, cuda: null, pci: null }))
  const cudaLeft = [...reports.cuda.devices]
  for (const gpu of gpus) {
    const uuid = gpu.nvml!.uuid
    const address = addressOf(gpu)
    gpu.cuda =
      (uuid && take(cudaLeft, device => device.uuid === uuid)) ||
      (address && take(cudaLeft, device => normalizePciAddress(device.pci) === address)) ||
      null
  }
  // NVML lists every GPU, so the only one it cannot name is the only one that CUDA alone names.
  const unnamed = gpus.filter(({ nvml, cuda }) => !cuda && !nvml!.uuid && !nvml!.pci && !nvml!.problem)
  if (unnamed.length === 1 && cudaLeft.length === 1) unnamed[0]!.cuda = cudaLeft.shift()!
  gpus.push(...cudaLeft.map((cuda): Sources => ({ nvml: null, cuda, pci: null })))

  const pciLeft = [...pciGpus]
  for (const gpu of gpus) gpu.pci = take(pciLeft, ({ address }) => address === addressOf(gpu))
  // NVML gives no address for a GPU it cannot open. It counts by address, as sysfs does, so those without one and the
  // rest of the bus belong together when they are equally many.
  const unplaced = gpus.filter(gpu => addressOf(gpu) === null)
  if (unplaced.length === pciLeft.length) {
    for (const gpu of unplaced) gpu.pci = pciLeft.shift()!
  }
  return [...gpus, ...pciLeft.map((pci): Sources => ({ nvml: null, cuda: null, pci }))]
}

function pciDevice(sources: Sources): PciDevice | null {
  const { nvml, pci } = sources
  if (pci) return { address: pci.address, vendorId: pci.vendorId, deviceId: pci.deviceId }
  if (!nvml?.pciId) return null
  const digits = nvml.pciId.toString(16).padStart(8, '0')
  return { address: addressOf(sources), vendorId: digits.slice(4), deviceId: digits.slice(0, 4) }
}

/** Whether the GPU shares the machine's memory: CUDA says so; without CUDA only GB10 is known to. */
function isIntegrated(cuda: CudaDevice | null, name: string | null, pci: PciDevice | null): boolean | null {
  if (cuda && cuda.integrated !== null) return cuda.integrated
  return isSparkGpu({ name, pci }) ? true : null
}

function memoryOf({ nvml, cuda }: Sources, integrated: boolean | null, root: string): GpuMemory {
  if (integrated) {
    // NVML is not asked: on GB10 it answers "Not Supported", and under one driver with the machine's own numbers.
    const total = cuda?.memory ?? machineMemory(root).total
    const free = unifiedMemoryFree(root)
    return free === null
      ? { total, free: null, source: cuda?.memory ? 'cuda' : null }
      : { total, free: Math.min(free, total), source: 'meminfo' }
  }
  const memory = nvml?.memory
  if (memory && memory.total > 0 && memory.free <= memory.total) {
    return { total: memory.total, free: memory.free, source: 'nvml' }
  }
  return cuda?.memory
    ? { total: cuda.memory, free: null, source: 'cuda' }
    : { total: null, free: null, source: null }
}

/** Why a GPU cannot compute, or null. */
function problemOf({ nvml, cuda, pci }: Sources, reports: DriverReports): string | null {
  if (nvml?.problem) return nvml.problem
  if (cuda) return cuda.computeCapability ? null : 'the CUDA driver does not tell its compute capability'
  if (pci?.driver && pci.driver !== 'nvidia') return `the kernel driver ${pci.driver} holds it, not NVIDIA's`
  if (reports.cuda.reason) return `CUDA cannot be used: ${reports.cuda.reason}`
  if (process.env.CUDA_VISIBLE_DEVICES !== undefined) {
    return `hidden from CUDA by CUDA_VISIBLE_DEVICES=${process.env.CUDA_VISIBLE_DEVICES}`
  }
  return 'the CUDA driver does not list it'
}

const cudaVersionText = (version: number | null): string | null =>
  version === null ? null : `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`

/** The NVIDIA GPUs of the machine below `root`. */
export function nvidiaGpus(root: string, reports: DriverReports): GpuFacts[] {
  const kernelModule = readDriverGpus(root)
  const moduleVersion = /\b\d{3,4}\.\d+(?:\.\d+)?\b/.exec(
    readText(root, 'proc/driver/nvidia/version') ?? '',
  )?.[0]
  const pciGpus = scanPci(root).filter(gpu => gpu.vendor === 'nvidia')
  const pciIds = pciGpus.length > 0 ? readPciIds(root) : ''

  return join(reports, pciGpus).map((sources): GpuFacts => {
    const { nvml, cuda } = sources
    const pci = pciDevice(sources)
    const known = kernelModule.get(pci?.address ?? '')
    const name = normalizeName(nvml?.name ?? cuda?.name ?? known?.name ?? null)
    const integrated = isIntegrated(cuda, name, pci)
    const capability = cuda?.computeCapability ?? nvml?.computeCapability ?? null
    return {
      vendor: 'nvidia',
      name: name ?? nameFromPci(pci, pciIds),
      uuid: nvml?.uuid ?? cuda?.uuid ?? known?.uuid ?? null,
      pci,
      cudaIndex: cuda?.ordinal ?? null,
      computeCapability: capability,
      smCount: cuda?.smCount ?? null,
      architecture: architectureOf(capability),
      driver: reports.nvml.driver ?? moduleVersion ?? null,
      cudaVersion: cudaVersionText(reports.nvml.cudaVersion ?? reports.cuda.version),
      memory: memoryOf(sources, integrated, root),
      integrated,
      pageableMemoryAccess: cuda?.pageableMemoryAccess ?? null,
      supportClass: supportClassOf('nvidia', capability),
      precision: precisionSupportOf('nvidia', capability),
      problem: problemOf(sources, reports),
      unavailable: nvml?.unavailable ?? {},
    }
  })
}

function nameFromPci(pci: PciDevice | null, pciIds: string): string {
  if (!pci) return 'NVIDIA GPU'
  const name = pciName(pciIds, pci.vendorId, pci.deviceId)
  return name ? `NVIDIA ${name}` : `NVIDIA GPU ${pci.vendorId}:${pci.deviceId}`
}
