// machine.ts: on what a benchmark ran.
import { packageVersion } from '../core/version.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import { listFolder, readText, systemRoot } from '../hardware/system-files.js'

/** The machine and the programs of a benchmark. */
export interface BenchmarkMachine {
  /** Name of the processor; null when the system does not say. */
  readonly cpu: string | null
  /** Logical processors that the process may use. */
  readonly cores: number
  /** Bytes of memory that the process may have. */
  readonly memory: number
  /** Name of the best GPU; null without one. */
  readonly gpu: string | null
  /** Version of its driver. */
  readonly driver: string | null
  /** Operating system and processor architecture, such as `linux x64`. */
  readonly platform: string
  /** Version of Node.js. */
  readonly node: string
  /** Version of this library. */
  readonly version: string
}

/** Describes this machine. */
export async function describeMachine(): Promise<BenchmarkMachine> {
  const { cpu, memory, bestGpu, gpus, platform } = await HardwareInfo.detect()
  const gpu = bestGpu ?? gpus[0] ?? null
  return {
    cpu: cpu.model,
    cores: cpu.cores,
    memory: memory.total,
    gpu: gpu?.name ?? null,
    driver: gpu?.driver ?? null,
    platform: `${platform.os} ${platform.arch}`,
    node: process.versions.node,
    version: packageVersion(),
  }
}

/** How often the cores of the processor were throttled since the start of the system (Linux, Intel); 0 where it tells not. */
export function cpuThrottles(root = systemRoot()): number {
  const folder = 'sys/devices/system/cpu'
  const counts = listFolder(root, folder)
    .filter(name => /^cpu\d+$/.test(name))
    .map(name => Number(readText(root, `${folder}/${name}/thermal_throttle/core_throttle_count`) ?? 0))
  return counts.reduce((sum, count) => sum + (Number.isFinite(count) ? count : 0), 0)
}
