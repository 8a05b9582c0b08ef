// gpu.ts: the description of a GPU, and tables of capabilities by architecture.
import type { Precision } from '../core/config.js'
import type { GpuVendor } from './pci.js'

/**
 * How a GPU holds a precision. `native`: its arithmetic units compute in it. `emulated`: weights are stored in it and
 * our kernels compute in a wider format. `none`: neither.
 */
export type PrecisionSupport = 'native' | 'emulated' | 'none'

/**
 * How far this library supports a GPU.
 *
 * | vendor | compute capability | class | why |
 * |---|---|---|---|
 * | NVIDIA | 8.0 to 9.0, 10.0, 10.3, 12.0, 12.1 | `full` | the package has machine code of every kernel for it |
 * | NVIDIA | another one above 8.0 | `experimental` | the driver compiles the kernels when they are loaded |
 * | NVIDIA | 6.0 to 7.5 | `partial` | unified memory and the monitor work; computation is on the CPU |
 * | NVIDIA | below 6.0 or unknown | `unsupported` | listed only |
 * | others | | `unsupported` | listed only |
 */
export type SupportClass = 'full' | 'partial' | 'experimental' | 'unsupported'

/** A device on the PCI bus. */
export interface PciDevice {
  /** `000f:01:00.0`: domain, bus, device, function, as sysfs writes it; null where the system does not tell. */
  readonly address: string | null
  /** Four hexadecimal digits, `10de` for NVIDIA. */
  readonly vendorId: string
  /** Four hexadecimal digits, `2e12` for GB10. */
  readonly deviceId: string
}

/** Memory a GPU can use, in bytes. */
export interface GpuMemory {
  /** null if unknown. */
  readonly total: number | null
  /**
   * Free now, null if unknown. A GPU that shares the machine's memory has what the kernel could give
   * (`/proc/meminfo`), since its driver does not count the page cache.
   */
  readonly free: number | null
  /** Where `free` comes from, or `total` where `free` is null. */
  readonly source: 'nvml' | 'cuda' | 'meminfo' | 'sysfs' | 'systeminformation' | null
}

/** Properties of a GPU; null where unknown. */
export interface GpuInfo {
  /** Position in {@link HardwareInfo.gpus}: NVIDIA first, in the order of nvidia-smi. */
  readonly index: number
  /** Maker. */
  readonly vendor: GpuVendor
  /** Name as the driver gives it, else from the PCI id. */
  readonly name: string
  /** `GPU-…`, the same in NVML, CUDA and nvidia-smi. */
  readonly uuid: string | null
  /** Place and ids on the PCI bus. */
  readonly pci: PciDevice | null
  /** The GPU's number in CUDA, which counts in another order and honours CUDA_VISIBLE_DEVICES. */
  readonly cudaIndex: number | null
  /** `12.1`, from the driver. */
  readonly computeCapability: string | null
  /** Streaming multiprocessors. */
  readonly smCount: number | null
  /** `Blackwell`, `Hopper`, … */
  readonly architecture: string | null
  /** Version of the driver, or its name for other vendors. */
  readonly driver: string | null
  /** Newest CUDA version the driver runs, `13.0`. */
  readonly cudaVersion: string | null
  /** Memory the GPU can use. */
  readonly memory: GpuMemory
  /** Whether the GPU shares the machine's memory. */
  readonly integrated: boolean | null
  /** Whether the GPU reads ordinary process memory. */
  readonly pageableMemoryAccess: boolean | null
  /** How far this library supports it. */
  readonly supportClass: SupportClass
  /** Support of each precision. */
  readonly precision: Readonly<Record<Precision, PrecisionSupport>>
  /** Why the GPU cannot be used for computing, in words; null when nothing speaks against it. */
  readonly problem: string | null
  /** Values the driver did not give, with its words for why: `{ memory: 'Not Supported' }` on GB10. */
  readonly unavailable: Readonly<Record<string, string>>
}

/** Oldest compute capability with kernels: they are built for sm_80 and newer. */
export const kernelsFrom = '8.0'

/** Lowest compute capability that computes in each precision. */
const nativeFrom: Readonly<Record<Precision, string>> = {
  fp32: '0.0',
  fp16: '7.0',
  bf16: '8.0',
  fp8: '8.9',
  nvfp4: '10.0',
}

/** Compute capabilities, newest first, with the architecture that starts there. */
const architectures: readonly (readonly [from: string, name: string])[] = [
  ['10.0', 'Blackwell'],
  ['9.0', 'Hopper'],
  ['8.9', 'Ada Lovelace'],
  ['8.0', 'Ampere'],
  ['7.5', 'Turing'],
  ['7.0', 'Volta'],
  ['6.0', 'Pascal'],
  ['5.0', 'Maxwell'],
  ['3.0', 'Kepler'],
]
const newestArchitecture = '13.0'

/** Compute capabilities above 9.0 the kernels have machine code for. */
const builtFor = ['10.0', '10.3', '12.0', '12.1']

/** A compute capability as a number that can be compared: 1201 for `12.1`; null for another text. */
export function capabilityNumber(capability: string | null): number | null {
  const match = /^(\d{1,3})\.(\d{1,2})$/.exec(capability ?? '')
  return match ? Number(match[1]) * 100 + Number(match[2]) : null
}

/** Whether `capability` is known and at least `from`. */
export function hasCapability(capability: string | null, from: string): boolean {
  const number = capabilityNumber(capability)
  return number !== null && number >= capabilityNumber(from)!
}

/** Architecture of an NVIDIA compute capability; null for one that is unknown or newer than this table. */
export function architectureOf(capability: string | null): string | null {
  if (hasCapability(capability, newestArchitecture)) return null
  return architectures.find(([from]) => hasCapability(capability, from))?.[1] ?? null
}

/** Support class by the table of {@link SupportClass}. */
export function supportClassOf(vendor: GpuVendor, capability: string | null): SupportClass {
  if (vendor !== 'nvidia' || !hasCapability(capability, '6.0')) return 'unsupported'
  if (!hasCapability(capability, kernelsFrom)) return 'partial'
  const built = builtFor.includes(capability!) || !hasCapability(capability, '9.1')
  return built ? 'full' : 'experimental'
}

/**
 * Support of each precision: native from compute capability 7.0 (fp16), 8.0 (bf16), 8.9 (fp8) and 10.0 (nvfp4) on;
 * below that emulated where our kernels run, which is from 8.0.
 */
export function precisionSupportOf(
  vendor: GpuVendor,
  capability: string | null,
): Record<Precision, PrecisionSupport> {
  const support = (precision: Precision): PrecisionSupport => {
    if (vendor !== 'nvidia') return 'none'
    if (hasCapability(capability, nativeFrom[precision])) return 'native'
    return hasCapability(capability, kernelsFrom) ? 'emulated' : 'none'
  }
  return {
    fp32: support('fp32'),
    fp16: support('fp16'),
    bf16: support('bf16'),
    fp8: support('fp8'),
    nvfp4: support('nvfp4'),
  }
}

/** The precision a GPU is best used with: bf16 from compute capability 8.0, fp16 from 7.0, else fp32. */
export function recommendedPrecisionOf(capability: string | null): Precision {
  if (hasCapability(capability, nativeFrom.bf16)) return 'bf16'
  return hasCapability(capability, nativeFrom.fp16) ? 'fp16' : 'fp32'
}
