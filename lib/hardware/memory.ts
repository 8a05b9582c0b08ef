import { freemem, totalmem } from 'node:os'
import { readText } from './system-files.js'

/** Memory of the machine, in bytes. */
export interface MachineMemory {
  readonly total: number
  /** What a new program can take without swapping. */
  readonly available: number
  /** Where the numbers come from: /proc/meminfo, or the operating system through Node. */
  readonly source: 'meminfo' | 'os'
}

/** Fields of /proc/meminfo: sizes in bytes, HugePages counts as they are. Lines of another form are passed over. */
export function parseMeminfo(text: string): ReadonlyMap<string, number> {
  const fields = new Map<string, number>()
  for (const line of text.split('\n')) {
    const match = /^([\w()]+):\s+(\d{1,15})( kB)?\s*$/.exec(line)
    if (match) fields.set(match[1]!, Number(match[2]) * (match[3] ? 1024 : 1))
  }
  return fields
}

/** The machine's memory. */
export function machineMemory(root: string): MachineMemory {
  const fields = parseMeminfo(readText(root, 'proc/meminfo') ?? '')
  const total = fields.get('MemTotal')
  const available = fields.get('MemAvailable')
  if (!total || available === undefined) return { total: totalmem(), available: freemem(), source: 'os' }
  return { total, available: Math.min(available, total), source: 'meminfo' }
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
