// system-files.ts: reading /sys, /proc and /etc. Unreadable files are null or empty, never an exception.
import { closeSync, openSync, readdirSync, readlinkSync, readSync } from 'node:fs'
import path from 'node:path'

/** Nothing read here is longer on a real machine; /usr/share/misc/pci.ids has 1.5 MB. */
const maxBytes = 4 << 20

/**
 * The folder below which /sys, /proc, /etc and /usr are read. Internal: DGX_SPARK_SYSFS_ROOT names another machine's
 * files for tests.
 */
export function systemRoot(): string {
  return process.env.DGX_SPARK_SYSFS_ROOT || '/'
}

/** The text of a file below `root`, trailing NULs and white space removed, or null. */
export function readText(root: string, file: string): string | null {
  try {
    const descriptor = openSync(path.join(root, file), 'r')
    try {
      const chunks: Buffer[] = []
      for (let total = 0; total < maxBytes; ) {
        const chunk = Buffer.allocUnsafe(64 << 10)
        const count = readSync(descriptor, chunk, 0, chunk.length, null)
        if (count === 0) break
        total += count
        chunks.push(chunk.subarray(0, count))
      }
      return Buffer.concat(chunks)
        .toString('utf8')
        .replace(/[\0\s]+$/, '')
    } finally {
      closeSync(descriptor)
    }
  } catch {
    return null
  }
}

/** The decimal count of bytes in a file below `root`; null for any other content (`max` in a cgroup). */
export function readBytes(root: string, file: string): number | null {
  const text = readText(root, file) ?? ''
  return /^\d{1,15}$/.test(text) ? Number(text) : null
}

/** The entries of a folder below `root`, sorted; empty when there is none. */
export function listFolder(root: string, folder: string): string[] {
  try {
    return readdirSync(path.join(root, folder)).sort()
  } catch {
    return []
  }
}

/** The base name of the target of a symbolic link below `root` (the name of a driver), or null. */
export function linkName(root: string, link: string): string | null {
  try {
    return path.basename(readlinkSync(path.join(root, link)))
  } catch {
    return null
  }
}

/** A name with runs of white space collapsed to one space; null when nothing is left. */
export function normalizeName(text: string | null): string | null {
  return text?.replace(/[\s\0]+/g, ' ').trim() || null
}
