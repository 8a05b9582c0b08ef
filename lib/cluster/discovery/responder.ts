// responder.ts: makes a node known: claims a name (three probes, another name where it is taken), announces it twice,
// answers questions, and takes everything back at the end (RFC 6762, sections 6 to 10).
import type { Answer, Packet, Question, RecordType } from 'dns-packet'
import { type Arrival, mdnsPort, type PacketNetwork } from './network.js'
import { type Announcement, namesOf, recordsOf, recordTtl, sightingsIn } from './packets.js'

/** Milliseconds between packets; tests take less. */
export interface Timing {
  readonly probeMs: number
  readonly announceMs: number
  /** Between questions at the start; doubled each time. */
  readonly queryMs: number
  /** How soon after a goodbye a node is lost. */
  readonly goodbyeMs: number
}

/** What RFC 6762 asks for. */
export const standardTiming: Timing = { probeMs: 250, announceMs: 1000, queryMs: 1000, goodbyeMs: 1000 }

/** A type of questions that the types of dns-packet leave out. */
const anyType = 'ANY' as RecordType

const probes = 3
const announcements = 2
const maxRenames = 100
const metaQuery = '_services._dns-sd._udp.local'

/** Answers for one node. */
export class Responder {
  readonly #network: PacketNetwork
  readonly #domain: string
  readonly #timing: Timing
  #announcement: Announcement
  #label: string
  #renames = 0
  #state: 'idle' | 'probing' | 'announced' | 'closed' = 'idle'
  #timer: NodeJS.Timeout | undefined
  #answerTimer: NodeJS.Timeout | undefined
  #lastAnswer = Number.NEGATIVE_INFINITY
  #claimed!: () => void
  /** Resolves when the name is claimed and announced once. */
  readonly claimed: Promise<void>

  constructor(network: PacketNetwork, domain: string, announcement: Announcement, timing: Timing) {
    this.#network = network
    this.#domain = domain
    this.#announcement = announcement
    this.#label = announcement.name
    this.#timing = timing
    this.claimed = new Promise(resolve => {
      this.#claimed = resolve
    })
  }

  /** The name that was claimed: the wanted one, or one with a number. */
  get label(): string {
    return this.#label
  }

  start(): void {
    this.#probe(0)
  }

  /** Tells everybody again: an interface came. */
  repeat(): void {
    if (this.#state === 'announced') this.#announce(0)
  }

  /** Tells other numbers from now on. */
  update(announcement: Announcement): void {
    this.#announcement = announcement
    this.repeat()
  }

  /** Takes the records back. */
  close(): void {
    if (this.#state === 'announced') this.#send(0)
    this.#state = 'closed'
    clearTimeout(this.#timer)
    clearTimeout(this.#answerTimer)
    this.#claimed()
  }

  /** A response of anybody: does it claim our name? */
  onResponse({ packet }: Arrival): void {
    const { instance } = this.#names()
    for (const other of sightingsIn(packet, this.#domain))
      if (other.instance === instance.toLowerCase() && other.nodeId !== this.#announcement.nodeId)
        this.#rename()
  }

  /** A question. */
  onQuery({ packet, from, reply }: Arrival): void {
    if (this.#state === 'probing') this.#rival(packet)
    if (this.#state !== 'announced') return
    const questions = (packet.questions ?? []).slice(0, 64)
    const wanted = questions.filter(question => this.#isOurs(question))
    if (wanted.length === 0) return
    if (from.port !== mdnsPort) {
      reply({ ...this.#response(recordTtl, []), id: packet.id ?? 0, questions: wanted })
      return
    }
    const isProbe = (packet.authorities?.length ?? 0) > 0
    if (!isProbe && this.#isKnown(packet)) return
    const since = performance.now() - this.#lastAnswer
    if (isProbe) this.#send(recordTtl)
    else if (since > this.#timing.announceMs) this.#answerSoon()
  }

  #names(): { instance: string; host: string } {
    return namesOf(this.#domain, this.#announcement, this.#label)
  }

  #isOurs({ name, type }: Question): boolean {
    const { instance, host } = this.#names()
    const asked = name.toLowerCase()
    const any = type === anyType
    if (asked === this.#domain.toLowerCase() || asked === metaQuery) return any || type === 'PTR'
    if (asked === instance.toLowerCase()) return any || type === 'SRV' || type === 'TXT'
    return asked === host.toLowerCase() && (any || type === 'A' || type === 'AAAA')
  }

  /** Whether the asking node knows the answer for half of its life to come (section 7.1). */
  #isKnown({ answers = [], questions = [] }: Packet): boolean {
    const instance = this.#names().instance.toLowerCase()
    const asksForPtr = questions.every(({ type }) => type === 'PTR')
    return (
      asksForPtr &&
      answers.some(
        answer =>
          answer.type === 'PTR' &&
          String(answer.data).toLowerCase() === instance &&
          (answer.ttl ?? 0) * 2 >= recordTtl,
      )
    )
  }

  /** Another node that probes for our name at the same time: the smaller uuid gives way. */
  #rival({ authorities = [] }: Packet): void {
    const { instance, host } = this.#names()
    for (const record of authorities.slice(0, 64)) {
      if (record.type !== 'SRV' || record.name.toLowerCase() !== instance.toLowerCase()) continue
      if (record.data.target.toLowerCase() > host) this.#rename()
    }
  }

  #rename(): void {
    if (this.#state === 'closed' || this.#renames >= maxRenames) return
    this.#renames++
    this.#label = `${this.#announcement.name} (${this.#renames + 1})`
    clearTimeout(this.#timer)
    this.#probe(0)
  }

  #probe(count: number): void {
    this.#state = 'probing'
    if (count === probes) {
      this.#state = 'announced'
      this.#announce(0)
      this.#claimed()
      return
    }
    const { instance } = this.#names()
    this.#network.send(addresses => ({
      type: 'query',
      questions: [{ name: instance, type: anyType, class: 'IN' }],
      authorities: this.#records(addresses, recordTtl).filter(({ type }) => type === 'SRV') as Answer[],
    }))
    this.#timer = setTimeout(() => this.#probe(count + 1), this.#timing.probeMs)
  }

  #announce(count: number): void {
    this.#send(recordTtl)
    clearTimeout(this.#timer)
    if (count + 1 < announcements)
      this.#timer = setTimeout(() => this.#announce(count + 1), this.#timing.announceMs)
  }

  /** Many nodes answer one question: each a little later than the others. */
  #answerSoon(): void {
    this.#answerTimer ??= setTimeout(
      () => {
        this.#answerTimer = undefined
        this.#send(recordTtl)
      },
      20 + Math.random() * 100,
    )
  }

  #send(ttl: number): void {
    this.#lastAnswer = performance.now()
    this.#network.send(addresses => this.#response(ttl, addresses))
  }

  #records(addresses: readonly string[], ttl: number): [Answer, ...Answer[]] {
    return recordsOf(this.#domain, this.#announcement, this.#label, addresses, ttl)
  }

  #response(ttl: number, addresses: readonly string[]): Packet {
    const [pointer, ...others] = this.#records(addresses, ttl)
    const meta: Answer = { name: metaQuery, type: 'PTR', ttl, class: 'IN', data: this.#domain }
    return { type: 'response', flags: 1 << 10, answers: [pointer, ...others, meta] }
  }
}
