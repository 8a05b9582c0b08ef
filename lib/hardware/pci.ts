// pci.ts: GPUs in /sys/bus/pci/devices, with any driver.
import { linkName, listFolder, normalizeName, readText } from './system-files.js'

/** Makers of GPUs this library knows by name. */
export type GpuVendor = 'nvidia' | 'amd' | 'intel' | 'apple' | 'qualcomm' | 'unknown'

/** A display controller or accelerator on the PCI bus. */
export interface PciGpu {
  /** `000f:01:00.0`: domain, bus, device, function, lower-case hexadecimal. */
  readonly address: string
  readonly vendor: GpuVendor
  /** Four hexadecimal digits. */
  readonly vendorId: string
  readonly deviceId: string
  /** Kernel driver bound to the device. */
  readonly driver: string | null
}

const vendors: Readonly<Record<string, GpuVendor>> = {
  '10de': 'nvidia',
  '1002': 'amd',
  '8086': 'intel',
  '106b': 'apple',
  '17cb': 'qualcomm',
}

const hex = (text: string | null): string | null =>
  /^0x([0-9a-f]{4,6})$/i.exec(text ?? '')?.[1]?.toLowerCase() ?? null

/** Class 03 is a display controller; AMD Instinct cards say 1200, processing accelerator. */
function isGpu(vendor: GpuVendor, classCode: string): boolean {
  return classCode.startsWith('03') || (vendor === 'amd' && classCode.startsWith('1200'))
}

/** The GPUs of known vendors on the PCI bus, by address. Management controllers and virtual displays are not GPUs. */
export function scanPci(root: string): PciGpu[] {
  const found: PciGpu[] = []
  for (const entry of listFolder(root, 'sys/bus/pci/devices')) {
    const folder = `sys/bus/pci/devices/${entry}`
    const address = normalizePciAddress(entry)
    const vendorId = hex(readText(root, `${folder}/vendor`))
    const vendor = vendors[vendorId ?? '']
    if (!address || !vendorId || !vendor) continue
    const deviceId = hex(readText(root, `${folder}/device`))
    const classCode = hex(readText(root, `${folder}/class`))
    if (!deviceId || !classCode || !isGpu(vendor, classCode)) continue
    found.push({ address, vendor, vendorId, deviceId, driver: linkName(root, `${folder}/driver`) })
  }
  return found
}

/** NVML writes `0000000F:01:00.0`, CUDA `000F:01:00.0`, sysfs `000f:01:00.0`: the last form, or null. */
export function normalizePciAddress(text: string | null): string | null {
  const match = /^(?:0000)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$/i.exec(text ?? '')
  return match ? `${match[1]}:${match[2]}:${match[3]}.${match[4]}`.toLowerCase() : null
}

/** Looks names up in the text of the pci.ids file that distributions bring; null when it does not list the device. */
export function pciName(pciIds: string, vendorId: string, deviceId: string): string | null {
  const lines = pciIds.split('\n')
  const vendor = lines.findIndex(line => line.startsWith(`${vendorId} `))
  if (vendor < 0) return null
  for (const line of lines.slice(vendor + 1)) {
    if (/^[0-9a-f]{4} /.test(line)) return null
    if (line.startsWith(`\t${deviceId} `)) return line.slice(5).trim() || null
  }
  return null
}

/** The pci.ids text of this machine, empty when no distribution package brought it. */
export function readPciIds(root: string): string {
  return readText(root, 'usr/share/misc/pci.ids') ?? readText(root, 'usr/share/hwdata/pci.ids') ?? ''
}

/** The kernel module's data on its GPUs: `Key: value` lines of /proc/driver/nvidia/gpus/<address>/information. */
export function parseDriverInformation(text: string): { name: string | null; uuid: string | null } {
  const value = (key: string): string | null => {
    const line = text.split('\n').find(line => line.startsWith(`${key}:`))
    return normalizeName(line?.slice(key.length + 1) ?? null)
  }
  const uuid = value('GPU UUID')
  return { name: value('Model'), uuid: /^GPU-[0-9a-f-]{36}$/i.test(uuid ?? '') ? uuid : null }
}

/** GPUs of the NVIDIA kernel module, by PCI address. */
export function readDriverGpus(root: string): Map<string, { name: string | null; uuid: string | null }> {
  const folder = 'proc/driver/nvidia/gpus'
  return new Map(
    listFolder(root, folder).map(address => [
      address.toLowerCase(),
      parseDriverInformation(readText(root, `${folder}/${address}/information`) ?? ''),
    ]),
  )
}
