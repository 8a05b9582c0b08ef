// measure.ts: numbers of a link: round trips all the time, bandwidth and loss when it begins and when somebody asks. What
// was not measured is undefined, never 0.
import { setTimeout as pause } from 'node:timers/promises'
import { classifyLink, type LinkClass } from './classify.js'
import { type EchoResponder, measureLoss, trainPackets } from './echo-train.js'
import type { FrameStream, LinkAddresses } from './frame-stream.js'
import { type InterfaceFacts, interfaceOf, localAddressTo } from './interface-facts.js'
import type { PathStats } from './pipe.js'
import { quantile, type RoundTrips, roundTripsOf, stabilityOf } from './statistics.js'
import { TransferRate } from './transfer-rate.js'

/** Numbers of one direction of a link, between two interfaces. */
export interface LinkReport {
  /** The uuid of the other node. */
  readonly nodeId: string
  /** What the link goes over, such as `tls`. */
  readonly transport: string
  /** Both ends. */
  readonly addresses: LinkAddresses
  /** The interface of this node. */
  readonly source: InterfaceFacts | undefined
  /** The interface of the other node. */
  readonly destination: InterfaceFacts | undefined
  /** Round trips. */
  readonly rtt: RoundTrips | undefined
  /** What a plan counts on is `p25`. */
  readonly bandwidth: Bandwidth | undefined
  /** Part of the packets, 0 to 1, that is lost on the way there or back. */
  readonly loss: number | undefined
  /** 0 to 1, over an hour: 1 − interquartile range / median of the round trips. */
  readonly stability: number | undefined
  /** Milliseconds since 1970 of the last round trips. */
  readonly measuredAt: number | undefined
  /** What it is taken for. */
  readonly class: LinkClass
}

/** A rate in bytes per second. */
export interface Bandwidth {
  /** Three of four measurements were faster. */
  readonly p25: number
  /** The median. */
  readonly p50: number
  /** From bytes that were sent to measure, or from frames that were sent anyway. */
  readonly from: 'probe' | 'transfers'
}

/** How often round trips are measured at least, in milliseconds. */
export const rttIntervalMs = 10_000

const pings = 20
/** Bytes of a ping and its answer on the wire: the record, and about 66 for TLS, TCP, IP and Ethernet, both ways. */
const pingBytes = 2 * (64 + 66 + 28)
const budget = 0.001
const hourOfRounds = 360
const firstProbeBytes = 256 << 10
const probeBytes = 4 << 20
const fastProbeBytes = 64 << 20
const fastBytesPerSecond = 110e6

/**
 * Milliseconds between rounds of pings so that they take at most a thousandth of the link.
 * @param bytesPerSecond - of the link, or undefined
 */
export const rttIntervalOf = (bytesPerSecond: number | undefined): number =>
  Math.max(rttIntervalMs, bytesPerSecond ? (pings * pingBytes * 1000) / (bytesPerSecond * budget) : 0)

/** Answers what the other node needs for its own measurements. Call it on both ends. */
export function answerMeasurements(link: FrameStream, echo?: EchoResponder): void {
  const local = async (): Promise<string | undefined> =>
    link.addresses.local || (await localAddressTo(link.addresses.remote))
  link.handle('interface', async () => {
    const address = await local()
    return address === undefined ? undefined : interfaceOf(address)
  })
  echo?.answer(link)
}

/**
 * Measures one link while it lasts.
 * @example
 * const meter = new LinkMeter(link)
 * const { bandwidth } = await meter.start()
 * console.log(bandwidth?.p25, meter.report.rtt?.p50Ms)
 * meter.stop()
 */
export class LinkMeter {
  readonly #link: FrameStream
  readonly #transfers = new TransferRate()
  readonly #medians: number[] = []
  #rtt: RoundTrips | undefined
  #probed: number[] = []
  #loss: number | undefined
  #path: PathStats | undefined
  #measuredAt: number | undefined
  #source: InterfaceFacts | undefined
  #destination: InterfaceFacts | undefined
  #nextProbe = 0
  #probing: Promise<Bandwidth | undefined> | undefined
  #timer: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(link: FrameStream) {
    this.#link = link
    link.onTransfer = (bytes, ms) => this.#transfers.add(bytes, ms, performance.now())
    link.closed.then(() => this.stop())
  }

  /** What is known now. */
  get report(): LinkReport {
    const { peer, transport, addresses } = this.#link
    const bandwidth = this.#bandwidth()
    const rtt = this.#rtt
    const facts = { source: this.#source, destination: this.#destination }
    return {
      nodeId: peer.nodeId,
      transport,
      addresses,
      ...facts,
      rtt,
      bandwidth,
      loss: this.#loss,
      stability: stabilityOf(this.#medians),
      measuredAt: this.#measuredAt,
      class: classifyLink({
        ...facts,
        rttMs: rtt?.p50Ms,
        jitterMs: rtt?.jitterMs,
        bytesPerSecond: bandwidth?.p50,
      }),
    }
  }

  /** Measures everything once, then round trips every ten seconds or less often. */
  async start(): Promise<LinkReport> {
    await this.#interfaces()
    await this.measureRtt()
    await this.measureBandwidth()
    await this.measureLoss()
    await this.#interfaces()
    this.#later()
    return this.report
  }

  /** Ends the measurements. */
  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  /** Twenty pings of 64 bytes. */
  async measureRtt(): Promise<RoundTrips | undefined> {
    const times: number[] = []
    try {
      for (let i = 0; i < pings; i++) {
        times.push(await this.#link.ping())
        await pause(1)
      }
    } catch {
      // The link ended: what came back counts.
    }
    const found = roundTripsOf(times, this.#rtt?.jitterMs)
    if (!found) return this.#rtt
    this.#rtt = found
    this.#measuredAt = Date.now()
    this.#medians.push(found.p50Ms)
    if (this.#medians.length > hourOfRounds) this.#medians.shift()
    this.#pathLoss()
    return found
  }

  /**
   * Sends three times 4 MiB, and 64 MiB on a fast link; less on a slow one. Where the last time was so short ago that
   * measuring would take more than a thousandth of the link, the numbers of that time.
   */
  async measureBandwidth(): Promise<Bandwidth | undefined> {
    if (performance.now() < this.#nextProbe) return this.#bandwidth()
    this.#probing ??= this.#probe().finally(() => {
      this.#probing = undefined
    })
    return this.#probing
  }

  /** Packets that get lost: QUIC counts its own; else 200 of UDP are sent there and back. */
  async measureLoss(): Promise<number | undefined> {
    if (this.#link.pathStats()) this.#pathLoss()
    else this.#loss = await measureLoss(this.#link, this.#link.addresses.remote).catch(() => undefined)
    return this.#loss
  }

  /** Asks for what is not known yet: a system lists an interface up to a second after it carries packets. */
  async #interfaces(): Promise<void> {
    const { local, remote } = this.#link.addresses
    const own = local || (await localAddressTo(remote))
    this.#source ??= own === undefined ? undefined : await interfaceOf(own)
    this.#destination ??= readFacts(await this.#link.call('interface', null).catch(() => undefined))
  }

  #bandwidth(): Bandwidth | undefined {
    const fromTransfers = this.#transfers.value
    if (fromTransfers !== undefined && this.#probed.length === 0)
      return { p25: fromTransfers, p50: fromTransfers, from: 'transfers' }
    const [p25, p50] = [0.25, 0.5].map(part => quantile(this.#probed, part))
    return p25 === undefined ? undefined : { p25, p50: p50!, from: 'probe' }
  }

  async #probe(): Promise<Bandwidth | undefined> {
    const start = performance.now()
    const rates: number[] = []
    try {
      const first = await this.#rateOf(firstProbeBytes)
      const bytes = Math.round(Math.min(probeBytes, Math.max(first * 0.5, firstProbeBytes / 4)))
      for (let i = 0; i < 3; i++) rates.push(await this.#rateOf(bytes))
      if (quantile(rates, 0.5)! >= fastBytesPerSecond) rates.push(await this.#rateOf(fastProbeBytes))
    } catch {
      // The link ended, or is so slow that no answer came.
    }
    // What a probe loses by its haste says nothing about the link.
    this.#path = this.#link.pathStats()
    this.#nextProbe = performance.now() + (performance.now() - start) / budget
    if (rates.length > 1) this.#probed = rates.slice(1)
    return this.#bandwidth()
  }

  /** Bytes per second of a probe, without the way back of its answer. */
  async #rateOf(bytes: number): Promise<number> {
    const ms = await this.#link.probe(bytes)
    const net = Math.max(ms - (this.#rtt?.minMs ?? 0), ms / 4)
    return (bytes * 1000) / net
  }

  #pathLoss(): void {
    const now = this.#link.pathStats()
    if (!now) return
    const before = this.#path ?? { sentPackets: 0, lostPackets: 0 }
    const sent = now.sentPackets - before.sentPackets
    if (sent < trainPackets) return
    this.#loss = (now.lostPackets - before.lostPackets) / sent
    this.#path = now
  }

  #later(): void {
    if (this.#isStopped) return
    const interval = rttIntervalOf(this.#bandwidth()?.p50)
    this.#timer = setTimeout(async () => {
      // Pings behind the pieces of a frame would measure the frame.
      if (this.#link.idle) await this.measureRtt()
      await this.#interfaces()
      this.#later()
    }, interval)
    this.#timer.unref()
  }
}

/** Numbers of a link, measured once. */
export async function measureLink(link: FrameStream): Promise<LinkReport> {
  const meter = new LinkMeter(link)
  return meter.start().finally(() => meter.stop())
}

const kinds = ['loopback', 'wired', 'wifi', 'mobile', 'virtual'] as const

/** What another node says about its interface. */
function readFacts(told: unknown): InterfaceFacts | undefined {
  const { name, kind, megabits } = (told ?? {}) as Record<string, unknown>
  if (typeof name !== 'string' || name.length > 64) return undefined
  const rate = typeof megabits === 'number' && megabits > 0 && megabits < 1e7 ? megabits : undefined
  return { name, kind: kinds.find(one => one === kind) ?? 'unknown', megabits: rate }
}
