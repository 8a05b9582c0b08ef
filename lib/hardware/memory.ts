import { freemem, totalmem } from 'node:os'
import { SparkError } from '../core/errors.js'
import { cgroupFolders } from './cgroup.js'
import { readBytes, readText, systemRoot } from './system-files.js'

/** Memory this process can have, in bytes. */
export interface MachineMemory {
  /** The machine's memory, or the limit of a container or service. */
  readonly total: number
  /** Memory available without swapping. */
  readonly available: number
  /** Where `available` comes from: /proc/meminfo, a cgroup that allows less, or the operating system through Node. */
  readonly source: 'meminfo' | 'cgroup' | 'os'
}

/** Fields of /proc/meminfo: sizes in bytes, HugePages as counts. Other lines are ignored. */
export function parseMeminfo(text: string): ReadonlyMap<string, number> {
  const fields = new Map<string, number>()
  for (const line of text.split('\n')) {
    const match = /^([\w()]+):\s+(\d{1,15})( kB)?\s*$/.exec(line)
    if (match) fields.set(match[1]!, Number(match[2]) * (match[3] ? 1024 : 1))
  }
  return fields
}

/** The tightest limit (cgroup v2) of this process's group and the groups above it; null without one. */
function cgroupMemory(root: string): { total: number; available: number } | null {
  let tightest: { total: number; available: number } | null = null
  for (const folder of cgroupFolders(root)) {
    const total = readBytes(root, `${folder}/memory.max`)
    const current = readBytes(root, `${folder}/memory.current`)
    if (total !== null && current !== null) {
      const cache = /^inactive_file (\d{1,15})$/m.exec(readText(root, `${folder}/memory.stat`) ?? '')?.[1]
      const available = Math.max(0, total - current + Number(cache ?? 0)) // the kernel gives cache back
      if (!tightest || available < tightest.available) tightest = { total, available }
    }
  }
  return tightest
}

/** The memory this process can have. */
export function machineMemory(root: string): MachineMemory {
  const fields = parseMeminfo(readText(root, 'proc/meminfo') ?? '')
  const total = fields.get('MemTotal')
  if (!total || !fields.has('MemAvailable')) {
    return { total: totalmem(), available: freemem(), source: 'os' }
  }
  const available = Math.min(fields.get('MemAvailable')!, total)
  const limit = cgroupMemory(root)
  if (limit && limit.available < available) {
    return { total: Math.min(limit.total, total), available: limit.available, source: 'cgroup' }
  }
  return { total, available, source: 'meminfo' }
}

/** Fewer bytes are used without asking how many are free. */
const fewBytes = 2 ** 30

/**
 * Refuses what is not there: Linux grants it, swaps, and ends the process that writes it.
 * @param what - such as `the plan needs`
 * @param most - bytes that are there at most for another reason, such as those of a device
 * @throws SparkError ERR_OUT_OF_MEMORY when there are not so many bytes
 */
export function expectFreeBytes(what: string, bytes: number, most = Number.POSITIVE_INFINITY): void {
  if (bytes <= fewBytes) return
  const { total, available, source } = machineMemory(systemRoot())
  const free = source === 'os' ? total : available // macOS and Windows do not count their caches as free
  expectFit(what, bytes, Math.min(free, most))
}

/**
 * Refuses what does not fit into a memory.
 * @param what - such as `the plan needs`
 * @throws SparkError ERR_OUT_OF_MEMORY
 */
export function expectFit(what: string, bytes: number, free: number): void {
  if (bytes <= free) return
  throw new SparkError('ERR_OUT_OF_MEMORY', `${what} ${bytes} bytes, but only ${free} are free`)
}

/**
 * Memory a GPU that shares the machine's memory can still allocate, in bytes, or null without /proc/meminfo.
 * NVML and cuMemGetInfo leave out the page cache the kernel would give back, so they say less than there is.
 * Where huge pages are reserved, only those count: the rule of NVIDIA's own change to llama.cpp (pull request 17368).
 */
export function unifiedMemoryFree(root: string): number | null {
  const fields = parseMeminfo(readText(root, 'proc/meminfo') ?? '')
  if (fields.get('HugePages_Total')) {
    return (fields.get('HugePages_Free') ?? 0) * (fields.get('Hugepagesize') ?? 0)
  }
  return fields.get('MemAvailable') ?? null
}
