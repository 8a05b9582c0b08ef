// classify.ts: what kind of link it is, and what is wrong with it, from the interfaces of both ends and from numbers.
import type { InterfaceFacts, InterfaceKind } from './interface-facts.js'

/** Kinds of links. */
export type LinkKind = 'loopback' | 'wired' | 'wifi' | 'mobile' | 'unknown'

/** What a classification is made from; what was not measured is undefined. */
export interface LinkFacts {
  /** The interface of this node. */
  readonly source: InterfaceFacts | undefined
  /** The interface of the other node. */
  readonly destination: InterfaceFacts | undefined
  /** Median round trip. */
  readonly rttMs: number | undefined
  /** How much round trips vary. */
  readonly jitterMs: number | undefined
  /** Its bandwidth. */
  readonly bytesPerSecond: number | undefined
}

/** A class of a link, and its flags. */
export interface LinkClass {
  /** What it goes over. */
  readonly kind: LinkKind
  /** Whether an interface says so, or numbers only suggest it. */
  readonly from: 'interfaces' | 'numbers' | 'nothing'
  /** Like `RTT over 50 ms` and `below 100 Mb/s`: the worst of each. */
  readonly flags: readonly string[]
}

const rttLimitsMs = [200, 50, 10]
const megabitLimits = [50, 100, 1000]

/** Classifies a link. The slower of both ends counts: a link is Wi-Fi when one of them is. */
export function classifyLink(facts: LinkFacts): LinkClass {
  const flags = flagsOf(facts)
  const kinds = [facts.source?.kind, facts.destination?.kind]
  const order: InterfaceKind[] = ['mobile', 'wifi', 'loopback', 'wired']
  const found = order.find(kind => kinds.includes(kind))
  if (found === 'mobile' || found === 'wifi' || found === 'loopback')
    return { kind: found, from: 'interfaces', flags }
  if (kinds.every(kind => kind === 'wired')) return { kind: 'wired', from: 'interfaces', flags }
  const kind = kindByNumbers(facts)
  return { kind, from: kind === 'unknown' ? 'nothing' : 'numbers', flags }
}

/**
 * Typical numbers, where an interface is virtual or not known: a cable has a steady round trip below 2 ms at 400 Mb/s and
 * more; Wi-Fi varies by milliseconds; mobile networks take 20 ms and more at every rate.
 */
function kindByNumbers({ rttMs, jitterMs, bytesPerSecond }: LinkFacts): LinkKind {
  if (rttMs === undefined || jitterMs === undefined) return 'unknown'
  if (rttMs < 2 && jitterMs < 0.5)
    return bytesPerSecond !== undefined && bytesPerSecond < 50e6 ? 'unknown' : 'wired'
  if (rttMs < 20 && jitterMs >= 0.5) return 'wifi'
  return rttMs >= 20 && jitterMs >= 2 ? 'mobile' : 'unknown'
}

function flagsOf({ rttMs, bytesPerSecond }: LinkFacts): string[] {
  const megabits = bytesPerSecond === undefined ? undefined : (bytesPerSecond * 8) / 1e6
  const slow = rttLimitsMs.find(limit => rttMs !== undefined && rttMs > limit)
  const narrow = megabitLimits.find(limit => megabits !== undefined && megabits < limit)
  const flags: string[] = []
  if (slow !== undefined) flags.push(`RTT over ${slow} ms`)
  if (narrow !== undefined) flags.push(narrow === 1000 ? 'below 1 Gb/s' : `below ${narrow} Mb/s`)
  return flags
}
