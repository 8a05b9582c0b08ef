// machine.ts: the machine and the GPUs of a report.
import { version } from 'node:os'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { normalizeName, readText, systemRoot } from '../../hardware/system-files.js'
import { loadAddon } from '../../native.js'

/** A machine, without names, serial numbers and addresses. */
export interface MachineDescription {
  /** `Debian GNU/Linux 12 (bookworm)` */
  readonly os: string
  /** `process.platform` */
  readonly platform: string
  /** `process.arch` */
  readonly arch: string
  /** Version of the kernel, `6.17.0-1008-nvidia`, without what its builder added. */
  readonly kernel: string
  readonly isDgxSpark: boolean
  /** Maker and product by the firmware; null where it tells none. */
  readonly product: string | null
  readonly cpu: string | null
  /** Logical processors that this process may use. */
  readonly cores: number
  /** The instruction set of the CPU's kernels; null without the native addon. */
  readonly cpuIsa: string | null
  readonly memoryGiB: number
}

/** A GPU of the machine. */
export interface GpuDescription {
  readonly index: number
  readonly name: string
  readonly computeCapability: string | null
  readonly driver: string | null
  /** Newest CUDA that the driver runs. */
  readonly cuda: string | null
  /** null where it is not known. */
  readonly memoryGiB: number | null
  /** Whether CPU and GPU share memory. */
  readonly sharesMemory: boolean | null
  /** Why it cannot be used; null where it can. */
  readonly problem: string | null
}

const gib = (bytes: number): number => Math.round((10 * bytes) / 2 ** 30) / 10

/** Describes this machine. */
export async function describeMachine(): Promise<MachineDescription> {
  const { platform, cpu, memory, isDgxSpark } = await HardwareInfo.detect()
  const names = [platform.vendor, platform.oemModel ?? platform.product].filter(Boolean)
  return {
    os: osName(systemRoot()),
    platform: platform.os,
    arch: platform.arch,
    kernel: kernelVersion(platform.kernel),
    isDgxSpark,
    product: names.join(' ') || null,
    cpu: cpu.model,
    cores: cpu.cores,
    cpuIsa: loadAddon().addon?.cpuIsa() ?? null,
    memoryGiB: gib(memory.total),
  }
}

/** Describes the GPUs of this machine, in the order of `HardwareInfo.gpus`. */
export async function describeGpus(): Promise<GpuDescription[]> {
  const { gpus } = await HardwareInfo.detect()
  return gpus.map(gpu => ({
    index: gpu.index,
    name: gpu.name,
    computeCapability: gpu.computeCapability,
    driver: gpu.driver,
    cuda: gpu.cudaVersion,
    memoryGiB: gpu.memory.total === null ? null : gib(gpu.memory.total),
    sharesMemory: gpu.integrated,
    problem: gpu.problem,
  }))
}

/** The name of the operating system: of a distribution below `root`, else what the system calls itself. */
function osName(root: string): string {
  const line = /^PRETTY_NAME=(?:"([^"\n]*)"|'([^'\n]*)'|(.*))$/m.exec(readText(root, 'etc/os-release') ?? '')
  return normalizeName(line?.[1] ?? line?.[2] ?? line?.[3] ?? null) ?? version()
}

/** Numbers of a kernel, and the kinds of distributions: a kernel that somebody built may be named for him. */
export const kernelVersion = (release: string): string =>
  /^[\d.]+(?:-\d+)*(?:-(?:generic|lowlatency|nvidia|64k|amd64|arm64|cloud|aws|azure|gcp|oracle|tegra))*/.exec(
    release,
  )?.[0] ?? 'unknown'
