import { availableParallelism, cpus } from 'node:os'
import { normalizeName, readText } from './system-files.js'

/** The processor of a machine. */
export interface CpuInfo {
  /** Its name; for several kinds of cores `10 × Cortex-X925, 10 × Cortex-A725`; null when the system does not say. */
  readonly model: string | null
  /** Logical processors that this process may use. */
  readonly cores: number
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
  return { model: normalizeName(model === 'unknown' ? null : model), cores: availableParallelism() }
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
