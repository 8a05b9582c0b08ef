// spark.ts: detection of DGX Spark from sysfs, DMI and the DGX release file. Serial numbers are never read.
import { arch, release } from 'node:os'
import { type PciGpu, readDriverGpus, scanPci } from './pci.js'
import { normalizeName, readText, systemRoot } from './system-files.js'

/** The identity of the machine according to its firmware and operating system, without serial numbers. */
export interface Platform {
  /** `process.platform`. */
  readonly os: string
  /** `process.arch`. */
  readonly arch: string
  /** Version of the kernel. */
  readonly kernel: string
  /** Maker of the machine. */
  readonly vendor: string | null
  /** Name of the machine, from its firmware. */
  readonly product: string | null
  /** `DGX Spark` on the machines of every maker. */
  readonly family: string | null
  /** The name a DGX Spark is sold under, null on every other machine. */
  readonly oemModel: string | null
  /** Version of DGX OS: the last update, else the first installation. */
  readonly dgxOsVersion: string | null
}

/** Firmware's words about the machine. */
export interface Dmi {
  readonly vendor: string | null
  readonly product: string | null
  readonly version: string | null
  readonly family: string | null
}

/** The evidence for "is this a DGX Spark". */
export interface SparkFacts {
  readonly pci: readonly PciIds[]
  /** GPU names, from any source. */
  readonly names: readonly string[]
  readonly dmi: Dmi
  /** Fields of the DGX release files. */
  readonly release: ReadonlyMap<string, string>
}

const nvidia = '10de'
const gb10 = '2e12'
/** The same chip in laptops (N1X): also compute capability 12.1, but not a DGX Spark. */
const n1x = ['2e03', '2e06']

/**
 * DGX Spark under the names of its makers. `product` is matched against DMI product name and version.
 * NVIDIA, ASUS and Dell: seen on machines; the others: from their makers' pages.
 */
const models: readonly { readonly model: string; readonly vendor: RegExp; readonly product: RegExp }[] = [
  { model: 'NVIDIA DGX Spark Founders Edition', vendor: /^nvidia/i, product: /(^|[_ ])DGX[_ ]Spark\b/i },
  { model: 'ASUS Ascent GX10', vendor: /^asus/i, product: /\bGX10\b/i },
  { model: 'Dell Pro Max with GB10', vendor: /^dell/i, product: /\bPro Max with GB10\b/i },
  { model: 'HP ZGX Nano G1n', vendor: /^(hp|hewlett)\b/i, product: /\bZGX Nano\b/i },
  { model: 'Lenovo ThinkStation PGX', vendor: /^lenovo/i, product: /\bThinkStation PGX\b/i },
  { model: 'Acer Veriton GN100', vendor: /^acer/i, product: /\bVeriton GN100\b/i },
  { model: 'MSI EdgeXpert', vendor: /^(msi\b|micro-star)/i, product: /\bEdgeXpert\b|\bMS-C931\b/i },
  { model: 'Gigabyte AI TOP ATOM', vendor: /^giga-?byte/i, product: /\bAI TOP ATOM\b|\bATAGB10\b/i },
]

/** Whether a GPU's name is that of the Spark's GPU: the whole token, so neither GB100 nor another Blackwell. */
function isSparkGpuName(name: string): boolean {
  return /^(NVIDIA )?GB10$/i.test(name.trim())
}

type PciIds = Pick<PciGpu, 'vendorId' | 'deviceId'>

const isGb10 = ({ vendorId, deviceId }: PciIds): boolean => vendorId === nvidia && deviceId === gb10
const isN1x = ({ vendorId, deviceId }: PciIds): boolean => vendorId === nvidia && n1x.includes(deviceId)

/** Whether a GPU is the one of a DGX Spark: by its PCI id, else by its name. */
export function isSparkGpu({ name, pci }: { name: string | null; pci: PciIds | null }): boolean {
  if (pci && (isGb10(pci) || isN1x(pci))) return isGb10(pci)
  return isSparkGpuName(name ?? '')
}

/**
 * Decides by PCI id, exact GPU name, DMI and DGX release file, in this order. Compute capability 12.1 alone is not
 * enough.
 * @returns the deciding fact in words, or null when the machine is not a DGX Spark
 */
export function sparkEvidence({ pci, names, dmi, release }: SparkFacts): string | null {
  if (pci.some(isGb10)) return `PCI device ${nvidia}:${gb10}`
  if (pci.some(isN1x)) return null
  const name = names.find(isSparkGpuName)
  if (name) return `a GPU called ${name}`
  if (/^DGX Spark$/i.test(dmi.family ?? '')) return 'DMI product family DGX Spark'
  const model = modelByProduct(dmi, true)
  if (model) return `DMI product ${dmi.product}`
  if (isSparkRelease(release)) return 'the DGX release file'
  return null
}

/** The name the Spark with this firmware is sold under; `GB10 system` when no maker is known. */
function sparkModel(dmi: Dmi, release: ReadonlyMap<string, string>): string {
  const platform = normalizeName(release.get('DGX_PLATFORM') ?? null)
  return (
    modelByProduct(dmi, true) ??
    modelByProduct(dmi, false) ??
    modelByProduct({ ...dmi, product: platform, version: null }, true) ??
    'GB10 system'
  )
}

function modelByProduct(dmi: Dmi, sameVendor: boolean): string | null {
  const texts = [dmi.product, dmi.version].filter(text => text !== null)
  const found = models.find(
    ({ vendor, product }) =>
      (!sameVendor || vendor.test(dmi.vendor ?? '')) && texts.some(text => product.test(text)),
  )
  return found?.model ?? null
}

function isSparkRelease(release: ReadonlyMap<string, string>): boolean {
  return (
    /^DGX Spark$/i.test(release.get('DGX_NAME') ?? '') ||
    /^(NVIDIA )?DGX Spark$/i.test(release.get('DGX_PRETTY_NAME') ?? '') ||
    /^DGX Spark FASTOS$/i.test(release.get('NAME') ?? '')
  )
}

/**
 * Fields of a release file: `KEY="value"` lines, quotes optional, the last of a repeated key wins. Serial numbers are
 * left out.
 */
export function parseRelease(text: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>()
  for (const line of text.split('\n')) {
    const match = /^\s*([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*$/.exec(line)
    if (!match || match[1]!.includes('SERIAL')) continue
    const value = normalizeName(match[2]!.replace(/^(["'])(.*)\1$/, '$2'))
    if (value) fields.set(match[1]!, value)
  }
  return fields
}

/** Reads DMI and release files. */
function readFirmware(root: string): { dmi: Dmi; release: ReadonlyMap<string, string> } {
  const dmi = (name: string): string | null => normalizeName(readText(root, `sys/class/dmi/id/${name}`))
  const release = new Map([
    ...parseRelease(readText(root, 'etc/fastos-release') ?? ''),
    ...parseRelease(readText(root, 'etc/dgx-release') ?? ''),
  ])
  return {
    dmi: {
      vendor: dmi('sys_vendor'),
      product: dmi('product_name') ?? normalizeName(readText(root, 'proc/device-tree/model')),
      version: dmi('product_version'),
      family: dmi('product_family'),
    },
    release,
  }
}

/** The platform record of a Linux machine. */
export function readPlatform(root: string, isSpark: boolean): Platform {
  const { dmi, release: fields } = readFirmware(root)
  return {
    os: process.platform,
    arch: arch(),
    kernel: release(),
    vendor: dmi.vendor,
    product: dmi.product,
    family: dmi.family,
    oemModel: isSpark ? sparkModel(dmi, fields) : null,
    dgxOsVersion: fields.get('DGX_OTA_VERSION') ?? fields.get('DGX_SWBUILD_VERSION') ?? null,
  }
}

/** Gathers what needs no driver library and decides. */
export function detectSpark(root: string, names: readonly string[] = []): boolean {
  const driverNames = [...readDriverGpus(root).values()].flatMap(({ name }) => name ?? [])
  return (
    sparkEvidence({ pci: scanPci(root), names: [...names, ...driverNames], ...readFirmware(root) }) !== null
  )
}

let answer: boolean | undefined

/**
 * Whether this machine is an NVIDIA DGX Spark, the Founders Edition or one of the GB10 machines of ASUS, Dell, HP,
 * Lenovo, Acer, MSI or Gigabyte. Looks at sysfs, DMI and the DGX release file only, once per process, so it needs no
 * driver and no promise.
 * @example
 * if (isDgxSpark()) console.log('running on a DGX Spark')
 */
export function isDgxSpark(): boolean {
  answer ??= detectSpark(systemRoot())
  return answer
}
