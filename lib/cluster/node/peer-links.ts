// peer-links.ts: one link to each node of the cluster that is there, and its numbers.
import { debug } from '../../core/log.js'
import type { FoundNode } from '../discovery/discovery.js'
import { EchoResponder } from '../links/echo-train.js'
import type { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import { answerMeasurements, LinkMeter, type LinkReport } from '../links/measure.js'
import { type Address, formatAddress } from '../links/pipe.js'
import type { StreamTransport } from '../links/transport.js'
import type { NodeCredentials } from '../trust/credentials.js'
import type { Revocations } from '../trust/revocations.js'
import { type Route, routesOf } from './routes.js'

/** What {@link PeerLinks} need. */
export interface PeerLinksOptions {
  readonly transport: StreamTransport
  readonly credentials: () => NodeCredentials
  readonly policy: Revocations
  /** Networks that nobody else is on. */
  readonly fabric: Fabric
  /** A program of this machine has come, with the certificate of this node. */
  onOwn(link: FrameStream): void
  /** A node has come: its link is ready. `address` is where it was reached, by the node that connected. */
  onLink(link: FrameStream, address: Address | undefined): void
  /** A node has gone, and no other link to it is left. */
  onLost(nodeId: string, reason: string): void
  /** The numbers of a link have changed. */
  onMeasured(report: LinkReport): void
}

interface Entry {
  readonly link: FrameStream
  readonly meter: LinkMeter
}

/** How often the numbers of a link are told. */
const reportMs = 10_000
/** Until a node that could not be reached is tried again: this long at first, twice as long each time up to the second. */
const [firstRetryMs, lastRetryMs] = [500, 30_000]

/** Connects to nodes that are found, takes links of others, and keeps one of each. */
export class PeerLinks {
  readonly #options: PeerLinksOptions
  readonly #entries = new Map<string, Entry>()
  /** Keys of nodes that are being connected to. */
  readonly #dialling = new Set<string>()
  readonly #echo = new EchoResponder()
  readonly #end = new AbortController()

  constructor(options: PeerLinksOptions) {
    this.#options = options
  }

  /** Ids of the nodes that there is a link to. */
  get nodeIds(): readonly string[] {
    return [...this.#entries.keys()]
  }

  /** The link to a node. */
  link(nodeId: string): FrameStream | undefined {
    return this.#entries.get(nodeId)?.link
  }

  /** All links. */
  links(): FrameStream[] {
    return [...this.#entries.values()].map(({ link }) => link)
  }

  /** Numbers of all links. */
  reports(): LinkReport[] {
    return [...this.#entries.values()].map(({ meter }) => meter.report)
  }

  /** The same, in short. */
  routes(): Route[] {
    const { credentials, fabric } = this.#options
    return routesOf(credentials().nodeId, this.reports(), fabric)
  }

  /**
   * Connects to a node while `isWanted` says so, again when that fails or the link ends. Of two nodes that know each other the
   * one with the smaller id connects.
   * @param find - what is known of the node now; undefined when nothing is any more
   */
  async connect(key: string, find: () => FoundNode | undefined): Promise<void> {
    if (this.#dialling.has(key) || this.#end.signal.aborted) return
    this.#dialling.add(key)
    let retryMs = firstRetryMs
    /** Who was reached at an address that nothing else is known of. */
    let reached: string | undefined
    try {
      for (;;) {
        const node = find()
        const own = this.#options.credentials().nodeId
        const known = node?.nodeId
        if (!node || known === own || (known !== undefined && known < own)) return
        if (!this.link(known ?? reached ?? '')) reached = (await this.#dial(node))?.peer.nodeId ?? reached
        if (reached === own) return
        const link = this.link(known ?? reached ?? '')
        if (link) {
          await link.closed
          retryMs = firstRetryMs
        }
        await pause(retryMs, this.#end.signal)
        if (this.#end.signal.aborted) return
        retryMs = Math.min(lastRetryMs, retryMs * 2)
      }
    } finally {
      this.#dialling.delete(key)
    }
  }

  async #dial(node: FoundNode): Promise<FrameStream | undefined> {
    const { transport, credentials, policy } = this.#options
    for (const address of node.addresses) {
      if (this.#end.signal.aborted) return undefined
      try {
        const options = { policy, signal: this.#end.signal }
        const link = await transport.connect(address, credentials, node.nodeId, options)
        if (link.peer.nodeId === credentials().nodeId) await link.close('it is this node')
        else this.take(link, address)
        return link
      } catch (error) {
        debug(`no link to ${formatAddress(address)}: ${(error as Error).message}`)
      }
    }
    return undefined
  }

  /** Takes links until the listener ends. */
  async takeAll(listener: AsyncIterable<FrameStream>): Promise<void> {
    for await (const link of listener) this.take(link)
  }

  /** Takes a link, made here or by the peer; of two to one node the one that the node with the smaller id made stays. */
  take(link: FrameStream, address?: Address): void {
    const { nodeId } = link.peer
    const before = this.#entries.get(nodeId)
    const own = this.#options.credentials().nodeId
    if (nodeId === own) {
      this.#options.onOwn(link)
      return
    }
    const isPreferred = (address !== undefined) === own < nodeId
    if (before && !isPreferred) {
      void link.close('there is another link already')
      return
    }
    const meter = new LinkMeter(link)
    this.#entries.set(nodeId, { link, meter })
    if (before) {
      before.meter.stop()
      void before.link.close('there is another link now')
    }
    answerMeasurements(link, this.#echo)
    this.#options.onLink(link, address)
    this.#measure(link, meter)
    void link.closed.then(({ reason }) => {
      meter.stop()
      this.#remove(link, reason)
    })
  }

  #remove(link: FrameStream, reason: string): void {
    const { nodeId } = link.peer
    if (this.link(nodeId) !== link) return
    this.#entries.delete(nodeId)
    this.#options.onLost(nodeId, reason)
  }

  #measure(link: FrameStream, meter: LinkMeter): void {
    const tell = (): void => {
      if (this.link(link.peer.nodeId) === link) this.#options.onMeasured(meter.report)
    }
    meter.start().then(tell, error => debug(`link to ${link.peer.nodeId}: ${(error as Error).message}`))
    const timer = setInterval(tell, reportMs).unref()
    void link.closed.then(() => clearInterval(timer))
  }

  /** Ends links to nodes that were revoked. @param onRefused - told of each */
  dropRefused(onRefused: (link: FrameStream, reason: string) => void): void {
    for (const { link } of [...this.#entries.values()]) {
      const reason = this.#options.policy.accepts(link.peer)
      if (reason === null) continue
      onRefused(link, reason)
      this.#remove(link, reason)
      void link.close(reason)
    }
  }

  /** Ends all links. */
  async close(): Promise<void> {
    for (const { meter } of this.#entries.values()) meter.stop()
    await Promise.all(this.links().map(link => link.close('the node stops')))
    this.#end.abort()
    await this.#echo.close()
  }
}

/** Waits, or until `signal`. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise(resolve => {
    if (signal.aborted) return resolve()
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms).unref()
    signal.addEventListener('abort', done, { once: true })
  })
