// detect-devices.ts: the records of the devices of this machine.
import { arch } from 'node:os'
import type { GpuInfo } from '../../hardware/gpu.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import type { ModelOptions } from '../../model/model-options.js'
import { loadAddon } from '../../native.js'
import {
  type BackendCapability,
  type DeviceRecord,
  type DeviceVendor,
  known,
  type RuntimeStatus,
} from './device-record.js'

/** Looks at the machine that it runs on; throws nothing that is about the machine. */
export type DeviceDetector = (nodeId: string) => Promise<readonly DeviceRecord[]>

/** The devices of this machine now: every GPU, also those that nothing computes on, and the processor. */
export const detectDevices: DeviceDetector = async nodeId => {
  const hardware = await HardwareInfo.detect({ refresh: true })
  // The operators are those of the engine, which is loaded only now.
  const { cpuCapabilities, gpuCapabilities } = await import('./operator-sets.js')
  return [
    ...hardware.gpus.map(gpu => gpuRecord(nodeId, gpu, hardware, gpuCapabilities(gpu))),
    cpuRecord(nodeId, hardware, cpuCapabilities()),
  ]
}

/** The id of a GPU: its uuid, or else its place, which is unique in its node only. */
function gpuId(nodeId: string, { uuid, pci, index }: GpuInfo): string {
  return uuid ?? `${nodeId}/${pci?.address ? `pci-${pci.address}` : `gpu-${index}`}`
}

/** The id of the GPU that a model with these options runs on; undefined where it runs on the processor. */
export function gpuOfModel(
  nodeId: string,
  hardware: Pick<HardwareInfo, 'gpus' | 'bestGpu' | 'backend'>,
  { backend = 'auto', device }: Pick<ModelOptions, 'backend' | 'device'>,
): string | undefined {
  if ((backend === 'auto' ? hardware.backend.name : backend) !== 'cuda') return undefined
  const { gpus, bestGpu } = hardware
  const gpu =
    device === undefined ? bestGpu : gpus.find(({ index, uuid }) => index === device || uuid === device)
  return gpu ? gpuId(nodeId, gpu) : undefined
}

function gpuRecord(
  nodeId: string,
  gpu: GpuInfo,
  hardware: HardwareInfo,
  backends: readonly BackendCapability[],
): DeviceRecord {
  const { memory } = gpu
  return {
    id: gpuId(nodeId, gpu),
    nodeId,
    kind: 'gpu',
    vendor: gpu.vendor,
    model: gpu.name,
    ...known({
      architecture: gpu.architecture,
      memoryBytes: memory.total,
      sharesHostMemory: gpu.integrated,
      computeCapability: gpu.computeCapability,
      computeUnits: gpu.smCount,
      driver: gpu.driver,
    }),
    runtime: runtimeOf(gpu, hardware),
    support: { class: gpu.supportClass, reason: supportReason(gpu, backends.length > 0) },
    backends,
  }
}

function runtimeOf(gpu: GpuInfo, { drivers }: HardwareInfo): RuntimeStatus {
  const version = known({ version: gpu.cudaVersion })
  if (gpu.vendor !== 'nvidia')
    return { state: 'missing', problem: `this library has no runtime for GPUs of ${gpu.vendor}` }
  if (drivers.cuda !== null) return { state: 'missing', ...version, problem: drivers.cuda }
  return gpu.problem === null
    ? { state: 'ready', ...version }
    : { state: 'failed', ...version, problem: gpu.problem }
}

function supportReason(gpu: GpuInfo, computes: boolean): string {
  if (gpu.problem !== null) return gpu.problem
  const capability = `compute capability ${gpu.computeCapability ?? 'unknown'}`
  switch (gpu.supportClass) {
    case 'full':
      return computes
        ? `the package has machine code of every kernel for ${capability}`
        : 'the addon was built without CUDA kernels'
    case 'experimental':
      return `the driver compiles the kernels for ${capability} when they are loaded`
    case 'partial':
      return `${capability} has unified memory and the monitor; the CPU computes`
    case 'unsupported':
      return gpu.vendor === 'nvidia'
        ? `${capability} is below what kernels are built for`
        : `no backend of this library computes on GPUs of ${gpu.vendor}; ONNX Runtime may`
  }
}

function cpuRecord(
  nodeId: string,
  { cpu, memory }: HardwareInfo,
  backends: readonly BackendCapability[],
): DeviceRecord {
  const { addon, reason } = { reason: '', ...loadAddon() }
  return {
    id: `${nodeId}/cpu`,
    nodeId,
    kind: 'cpu',
    vendor: cpuVendor(cpu.model ?? ''),
    model: cpu.model ?? `${arch()} processor`,
    architecture: addon ? `${arch()} ${addon.cpuIsa()}` : arch(),
    memoryBytes: memory.total,
    sharesHostMemory: true,
    computeUnits: cpu.cores,
    runtime: addon ? { state: 'ready' } : { state: 'missing', problem: reason },
    support: addon
      ? { class: 'full', reason: `kernels for ${addon.cpuIsa()}` }
      : { class: 'partial', reason: `computes in JavaScript, slowly: ${reason}` },
    backends,
  }
}

function cpuVendor(model: string): DeviceVendor {
  if (/intel/i.test(model)) return 'intel'
  if (/\bamd\b/i.test(model)) return 'amd'
  if (/apple/i.test(model)) return 'apple'
  if (/snapdragon|qualcomm|oryon/i.test(model)) return 'qualcomm'
  return /cortex|neoverse/i.test(model) ? 'arm' : 'unknown'
}
