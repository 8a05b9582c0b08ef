import { availableParallelism, cpus } from 'node:os'
import { cgroupFolders } from './cgroup.js'
import { normalizeName, readText } from './system-files.js'

/** The processor of a machine. */
export interface CpuInfo {
  /** Its name; for several kinds of cores `10 × Cortex-X925, 10 × Cortex-A725`; null when the system does not say. */
  readonly model: string | null
  /** Logical processors that this process may use: those of its cpuset and affinity. */
  readonly cores: number
  /** Processors' worth of time that its cgroups allow, such as 1.5; null where they set no limit. */
  readonly quota: number | null
  /** Threads that kernels on the CPU use by default: `cores`, or as many as `quota` feeds. */
  readonly threads: number
}

/** Names of ARM's own cores by `CPU part` in /proc/cpuinfo, where `CPU implementer` is 0x41 (Linux, asm/cputype.h). */
const armCores: Readonly<Record<string, string>> = {
  '0xd08': 'Cortex-A72',
  '0xd0b': 'Cortex-A76',
  '0xd0c': 'Neoverse N1',
  '0xd40': 'Neoverse V1',
  '0xd42': 'Cortex-A78AE',
  '0xd49': 'Neoverse N2',
  '0xd4f': 'Neoverse V2',
  '0xd85': 'Cortex-X925',
  '0xd87': 'Cortex-A725',
}

/** The processor that /proc/cpuinfo below `root` describes, or that the operating system names through Node. */
export function readCpu(root: string): CpuInfo {
  const text = readText(root, 'proc/cpuinfo') ?? ''
  const [own] = cpus()
  const model = armModel(text) ?? /^model name\s*:(.*)$/m.exec(text)?.[1] ?? own?.model ?? null
  return { model: normalizeName(model === 'unknown' ? null : model), ...usableCores(root) }
}

/** How much of the processor this process may use. */
export function usableCores(root: string): Pick<CpuInfo, 'cores' | 'quota' | 'threads'> {
  const [cores, quota] = [availableParallelism(), cpuQuota(root)]
  // One thread more than the quota feeds, and the kernel would stop all of them for the rest of each period.
  const threads = Math.max(1, Math.min(cores, Math.floor(quota ?? cores)))
  return { cores, quota, threads }
}

/** The tightest limit of the groups of this process: cpu.max of cgroup v2, cpu.cfs_quota_us of v1; null without one. */
function cpuQuota(root: string): number | null {
  const limits = [
    ...cgroupFolders(root).map(folder => (readText(root, `${folder}/cpu.max`) ?? '').split(' ')),
    ...cgroupFolders(root, 'cpu').map(folder =>
      ['quota', 'period'].map(part => readText(root, `${folder}/cpu.cfs_${part}_us`)),
    ),
  ]
  const quotas = limits.map(([quota, period]) => Number(quota) / Number(period)) // NaN: `max`; negative: none
  const tightest = Math.min(...quotas.filter(quota => quota > 0))
  return Number.isFinite(tightest) ? tightest : null
}

/** The kinds of ARM's cores with their numbers, the most numerous first; null where a core has no known name. */
function armModel(text: string): string | null {
  const counts = new Map<string, number>()
  for (const processor of text.split(/\n\s*\n/)) {
    const part = /^CPU part\s*:\s*(0x[0-9a-f]+)/m.exec(processor)?.[1]
    if (part === undefined) continue
    const isArm = /^CPU implementer\s*:\s*0x41\b/m.test(processor)
    if (!isArm || !Object.hasOwn(armCores, part)) return null
    const name = armCores[part]!
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  const kinds = [...counts].sort(([, a], [, b]) => b - a)
  return kinds.map(([name, count]) => (kinds.length > 1 ? `${count} × ${name}` : name)).join(', ') || null
}
