// oom-kills.ts: how often the kernel killed processes of this control group for memory.
import { cgroupFolders } from './cgroup.js'
import { readBytes, readText } from './system-files.js'

/** What the control groups of this process say about killed processes. */
export interface OomKills {
  /** Processes that were killed for memory, in this group or else in the nearest one above it that lost any. */
  readonly kills: number
  /** Whether they are of this process's own group; otherwise they may be of others beside it. */
  readonly isOwn: boolean
  /** How often the group reached its limit; null where the kernel does not count it. */
  readonly limitReached: number | null
  /** The tightest limit of the groups, in bytes; null without one. */
  readonly limit: number | null
}

/** One group: `memory.events` of cgroup v2, or `memory.oom_control` and `memory.failcnt` of v1. */
interface Group {
  readonly kills: number | null
  readonly limitReached: number | null
  readonly limit: number | null
}

/** The count of killed processes below `root`; null where no group of this process has one. */
export function oomKills(root: string): OomKills | null {
  const groups = [
    ...cgroupFolders(root).map(folder => readV2(root, folder)),
    ...cgroupFolders(root, 'memory').map(folder => readV1(root, folder)),
  ]
  const counting = groups.filter(({ kills }) => kills !== null)
  const [own] = counting
  if (!own) return null
  const { kills, limitReached } = counting.find(group => group.kills! > 0) ?? own
  const limits = groups.flatMap(({ limit }) => limit ?? [])
  const limit = limits.length > 0 ? Math.min(...limits) : null
  return { kills: kills!, isOwn: own.kills === kills, limitReached, limit }
}

function readV2(root: string, folder: string): Group {
  const events = readText(root, `${folder}/memory.events`)
  return {
    kills: counter(events, /^oom_kill (\d{1,15})$/m),
    limitReached: counter(events, /^max (\d{1,15})$/m),
    limit: readBytes(root, `${folder}/memory.max`),
  }
}

function readV1(root: string, folder: string): Group {
  return {
    kills: counter(readText(root, `${folder}/memory.oom_control`), /^oom_kill (\d{1,15})$/m),
    limitReached: readBytes(root, `${folder}/memory.failcnt`),
    limit: readBytes(root, `${folder}/memory.limit_in_bytes`), // without a limit it has 19 digits
  }
}

function counter(text: string | null, pattern: RegExp): number | null {
  const match = pattern.exec(text ?? '')
  return match ? Number(match[1]) : null
}
