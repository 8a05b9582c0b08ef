// browser.ts: keeps what is known about the nodes of a service: asks, refreshes at 80 % of a record's life, forgets.
import type { Answer } from 'dns-packet'
import type { Arrival, PacketNetwork } from './network.js'
import { goodbyesIn, type Sighting, sightingsIn } from './packets.js'
import type { Timing } from './responder.js'

/** Instances that are kept: what more there are on a network is noise or an attack. */
const maxInstances = 256

/** The longest time between questions, in milliseconds. */
const maxQueryMs = 60_000

/** A sighting with the interface and address that it came from. */
export interface Seen extends Sighting {
  readonly from: string
  readonly interfaceName: string
}

interface Entry {
  readonly seen: Map<string, Seen>
  expires: number
  refreshes: number[]
}

/** What changed about an instance: all that was seen of it, on each interface; none when it is gone. */
export type SeenChange = (instance: string, seen: readonly Seen[]) => void

/** Watches one service. */
export class Browser {
  readonly #network: PacketNetwork
  readonly #domain: string
  readonly #ownId: string
  readonly #timing: Timing
  readonly #changed: SeenChange
  readonly #entries = new Map<string, Entry>()
  #nextQuery = 0
  #interval: number
  #timer: NodeJS.Timeout | undefined
  /** Instances for which there was no memory. */
  overflow = 0

  constructor(network: PacketNetwork, domain: string, ownId: string, timing: Timing, changed: SeenChange) {
    this.#network = network
    this.#domain = domain
    this.#ownId = ownId
    this.#timing = timing
    this.#changed = changed
    this.#interval = timing.queryMs
  }

  /** Asks now, and again at growing intervals. */
  start(): void {
    clearInterval(this.#timer)
    this.#interval = this.#timing.queryMs
    this.#nextQuery = 0
    this.#tick()
    this.#timer = setInterval(() => this.#tick(), Math.min(250, this.#timing.goodbyeMs))
  }

  close(): void {
    clearInterval(this.#timer)
  }

  /** A response; what this node said itself is not news. */
  onResponse({ packet, from, interfaceName }: Arrival): void {
    const now = performance.now()
    for (const instance of goodbyesIn(packet, this.#domain)) {
      const entry = this.#entries.get(instance)
      if (entry) entry.expires = Math.min(entry.expires, now + this.#timing.goodbyeMs)
    }
    for (const sighting of sightingsIn(packet, this.#domain))
      if (sighting.nodeId !== this.#ownId) this.#saw({ ...sighting, from: from.address, interfaceName }, now)
  }

  #saw(seen: Seen, now: number): void {
    let entry = this.#entries.get(seen.instance)
    if (!entry) {
      if (this.#entries.size >= maxInstances) {
        this.overflow++
        return
      }
      entry = { seen: new Map(), expires: 0, refreshes: [] }
      this.#entries.set(seen.instance, entry)
    }
    const life = seen.ttl * 1000
    entry.expires = now + life
    entry.refreshes = [0.8, 0.9].map(part => now + life * part)
    const key = `${seen.interfaceName} ${seen.from}`
    const before = entry.seen.get(key)
    if (before && JSON.stringify(before) === JSON.stringify(seen)) return
    if (!before && entry.seen.size >= 16) return
    entry.seen.set(key, seen)
    this.#changed(seen.instance, [...entry.seen.values()])
  }

  #tick(): void {
    const now = performance.now()
    let refresh = false
    for (const [instance, entry] of this.#entries) {
      if (now >= entry.expires) {
        this.#entries.delete(instance)
        this.#changed(instance, [])
      } else if (entry.refreshes.length > 0 && now >= entry.refreshes[0]) {
        entry.refreshes.shift()
        refresh = true
      }
    }
    if (now >= this.#nextQuery) {
      this.#nextQuery = now + this.#interval
      this.#interval = Math.min(this.#interval * 2, maxQueryMs)
    } else if (!refresh) return
    this.#ask(now)
  }

  /** Asks for all instances, with those that are known for half of their life and more. */
  #ask(now: number): void {
    const known: Answer[] = []
    for (const [instance, { expires, seen }] of this.#entries) {
      const ttl = Math.floor((expires - now) / 1000)
      const [first] = seen.values()
      if (first && ttl * 2 >= first.ttl && known.length < 32)
        known.push({ name: this.#domain, type: 'PTR', class: 'IN', ttl, data: instance })
    }
    this.#network.send(() => ({
      type: 'query',
      questions: [{ name: this.#domain, type: 'PTR', class: 'IN' }],
      answers: known,
    }))
  }
}
