// other-gpus.ts: GPUs of other makers. They are listed so that a machine is described truthfully; nothing computes on
// them. Linux: PCI bus, kgsl and drm. macOS and Windows: the systeminformation package.
import { architectureOf, type GpuMemory, type PciDevice, precisionSupportOf, supportClassOf } from './gpu.js'
import type { GpuFacts } from './nvidia.js'
import { type GpuVendor, type PciGpu, pciName, readPciIds, scanPci } from './pci.js'
import { linkName, listFolder, normalizeName, readBytes, readText } from './system-files.js'

const makers: Readonly<Record<GpuVendor, string>> = {
  nvidia: 'NVIDIA',
  amd: 'AMD',
  intel: 'Intel',
  apple: 'Apple',
  qualcomm: 'Qualcomm',
  unknown: 'Unknown',
}

const unknownMemory: GpuMemory = { total: null, free: null, source: null }

function listed(
  facts: Pick<GpuFacts, 'vendor' | 'name' | 'pci' | 'driver' | 'integrated'> & { memory?: GpuMemory },
): GpuFacts {
  return {
    uuid: null,
    cudaIndex: null,
    computeCapability: null,
    smCount: null,
    architecture: architectureOf(null),
    cudaVersion: null,
    memory: unknownMemory,
    pageableMemoryAccess: null,
    supportClass: supportClassOf(facts.vendor, null),
    precision: precisionSupportOf(facts.vendor, null),
    problem: null,
    unavailable: {},
    ...facts,
  }
}

// --- Linux ---

function fromPci(root: string, gpu: PciGpu, pciIds: string): GpuFacts {
  const folder = `sys/bus/pci/devices/${gpu.address}`
  // Written by amdgpu alone.
  const total = readBytes(root, `${folder}/mem_info_vram_total`)
  const used = readBytes(root, `${folder}/mem_info_vram_used`)
  const name =
    normalizeName(readText(root, `${folder}/product_name`)) ?? pciName(pciIds, gpu.vendorId, gpu.deviceId)
  return listed({
    vendor: gpu.vendor,
    name: name
      ? `${makers[gpu.vendor]} ${name}`
      : `${makers[gpu.vendor]} GPU ${gpu.vendorId}:${gpu.deviceId}`,
    pci: { address: gpu.address, vendorId: gpu.vendorId, deviceId: gpu.deviceId },
    driver: gpu.driver,
    // Intel puts the graphics of its processors at this address and nothing else there.
    integrated: gpu.vendor === 'intel' ? gpu.address === '0000:00:02.0' : null,
    ...(total !== null && {
      memory: { total, free: used !== null && used <= total ? total - used : null, source: 'sysfs' },
    }),
  })
}

/** Kernel drivers of GPUs that sit in a system on a chip and not on a PCI bus. */
const platformDrivers: Readonly<Record<string, GpuVendor>> = {
  msm: 'qualcomm',
  msm_dpu: 'qualcomm',
  msm_drm: 'qualcomm',
  adreno: 'qualcomm',
  asahi: 'apple',
}

/** `Adreno 630` of `Adreno630v2`, the form kgsl writes. */
function adrenoName(model: string | null): string {
  const number = /adreno[^\d]*(\d{3})/i.exec(model ?? '')?.[1]
  return number ? `Qualcomm Adreno ${number}` : 'Qualcomm Adreno'
}

function platformGpus(root: string): GpuFacts[] {
  const gpus: GpuFacts[] = []
  const onChip = { pci: null, integrated: true } as const
  if (listFolder(root, 'sys/class/kgsl').includes('kgsl-3d0')) {
    const model = readText(root, 'sys/class/kgsl/kgsl-3d0/gpu_model')
    gpus.push(listed({ vendor: 'qualcomm', name: adrenoName(model), driver: 'kgsl', ...onChip }))
  }
  for (const card of listFolder(root, 'sys/class/drm').filter(entry => /^card\d+$/.test(entry))) {
    const driver = linkName(root, `sys/class/drm/${card}/device/driver`)
    const vendor = platformDrivers[driver ?? '']
    if (!vendor || gpus.some(gpu => gpu.vendor === vendor)) continue // one GPU, several cards
    const compatible = readText(root, `sys/class/drm/${card}/device/of_node/compatible`)
    const name = vendor === 'qualcomm' ? adrenoName(compatible) : 'Apple GPU'
    gpus.push(listed({ vendor, name, driver, ...onChip }))
  }
  return gpus
}

/** GPUs that are not NVIDIA's on a Linux machine. */
export function otherLinuxGpus(root: string): GpuFacts[] {
  const pciGpus = scanPci(root).filter(gpu => gpu.vendor !== 'nvidia')
  const pciIds = pciGpus.length > 0 ? readPciIds(root) : ''
  return [...pciGpus.map(gpu => fromPci(root, gpu, pciIds)), ...platformGpus(root)]
}

// --- macOS and Windows ---

/** Why NVIDIA GPUs compute nothing on macOS and Windows. */
export const linuxOnly = 'the CUDA backend runs on Linux only'

/** The fields used of a graphics controller of the systeminformation package. */
export interface Controller {
  readonly vendor?: string
  readonly model?: string
  readonly name?: string
  readonly vendorId?: string
  readonly deviceId?: string
  readonly driverVersion?: string
  /** MiB */
  readonly vram?: number | null
  readonly vramDynamic?: boolean
}

function vendorByName(text: string): GpuVendor {
  if (/nvidia|geforce|quadro/i.test(text)) return 'nvidia'
  if (/\bamd\b|\bati\b|advanced micro devices|radeon/i.test(text)) return 'amd'
  if (/intel/i.test(text)) return 'intel'
  if (/apple/i.test(text)) return 'apple'
  return /qualcomm|adreno/i.test(text) ? 'qualcomm' : 'unknown'
}

const hexId = (id: string | undefined): string | null =>
  /^(?:0x)?([0-9a-f]{4})$/i.exec(id ?? '')?.[1]?.toLowerCase() ?? null

/** The record of a graphics controller on macOS or Windows, where no NVIDIA driver library is asked. */
export function gpuFromController(controller: Controller): GpuFacts {
  const vendor = vendorByName(`${controller.vendor ?? ''} ${controller.model ?? ''}`)
  const name = normalizeName(controller.name ?? null) ?? normalizeName(controller.model ?? null)
  const vendorId = hexId(controller.vendorId)
  const deviceId = hexId(controller.deviceId)
  const pci: PciDevice | null = vendorId && deviceId ? { address: null, vendorId, deviceId } : null
  const total = controller.vram && controller.vram > 0 ? controller.vram * 2 ** 20 : null
  return {
    ...listed({
      vendor,
      name: name ?? `${makers[vendor]} GPU`,
      pci,
      driver: controller.driverVersion || null,
      integrated: vendor === 'apple' ? true : (controller.vramDynamic ?? null),
      memory: total === null ? unknownMemory : { total, free: null, source: 'systeminformation' },
    }),
    problem: vendor === 'nvidia' ? linuxOnly : null,
  }
}
