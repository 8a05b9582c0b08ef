// discovery.ts: where other nodes may be: multicast DNS, addresses that the user gave, peers that were reached before,
// and peers of peers. Whoever is found there is a candidate: only its certificate says who it is.
import { argumentError, expectKnownOptions } from '../../core/checks.js'
import type { FrameStream } from '../links/frame-stream.js'
import { type Address, formatAddress } from '../links/pipe.js'
import { addressesOf, parseAddress } from './addresses.js'
import { Browser, type Seen } from './browser.js'
import { isPeer, type KnownPeer, mergePeers, readKnownPeers, writeKnownPeers } from './known-peers.js'
import { type Arrival, MulticastNetwork, type PacketNetwork } from './network.js'
import { type Announcement, expectAnnouncement, serviceDomain, shortFingerprint } from './packets.js'
import { Responder, standardTiming, type Timing } from './responder.js'

/** How a node was found. */
export type DiscoverySource = 'mdns' | 'static' | 'known' | 'gossip'

/** A node that may be there. */
export interface FoundNode {
  /** The uuid that it claims, or `host:port` where none is known. */
  readonly key: string
  /** The uuid that it claims. */
  readonly nodeId: string | undefined
  /** The name that it claims. */
  readonly name: string | undefined
  /** Where to connect, the best first. */
  readonly addresses: readonly Address[]
  /** By the fingerprint that it tells: of this cluster, of another, or not known. Its certificate counts. */
  readonly cluster: 'own' | 'other' | 'unknown'
  /** Devices that it claims. */
  readonly devices: number | undefined
  /** GiB of memory that it claims. */
  readonly memoryGiB: number | undefined
  /** How it was found. */
  readonly sources: readonly DiscoverySource[]
}

/** What changed. */
export interface DiscoveryEvent {
  /** Whether it is new, has changed, or is no longer there. */
  readonly type: 'found' | 'updated' | 'lost'
  /** The node, as it is now. */
  readonly node: FoundNode
}

/** Options of {@link Discovery}. */
export interface DiscoveryOptions {
  /** What this node tells the network; without it the node only looks. */
  announce?: Announcement
  /** SHA-256 of this cluster's CA certificate; default: that of `announce`. */
  fingerprint?: string
  /** DNS-SD service. Default `_exo-gpu._tcp`. */
  service?: string
  /** Whether multicast DNS is used. Default true. */
  mdns?: boolean
  /** Names of interfaces for it. Default: all. */
  interfaces?: readonly string[]
  /** Addresses such as `10.0.0.7:7433` or `[fe80::1%eth0]:7433`. */
  peers?: readonly string[]
  /** Keeps peers that were reached. Default: they are forgotten at the end. */
  knownPeersFile?: string
  /** @internal for tests */
  network?: PacketNetwork
  /** @internal for tests */
  timing?: Timing
}

/** What went wrong while nodes were looked for. */
export interface DiscoveryProblems {
  /** Packets that could not be decoded. */
  readonly malformed: number
  /** Packets that came too fast. */
  readonly dropped: number
  /** Instances above those that are kept. */
  readonly overflow: number
  /** Why multicast failed on an interface, the last time that it did. */
  readonly network: string | undefined
  /** Why the file of known peers is not used. */
  readonly file: string | undefined
}

const optionNames = [
  'announce',
  'fingerprint',
  'service',
  'mdns',
  'interfaces',
  'peers',
  'knownPeersFile',
  'network',
  'timing',
] as const

const maxNodes = 1024
const maxEvents = 4096
const gossipPeers = 64
const gossipMs = 30_000

type Part = Omit<FoundNode, 'sources'>

/**
 * Finds nodes.
 * @example
 * const discovery = new Discovery({ announce, peers: ['10.0.0.7:7433'], knownPeersFile })
 * await discovery.start()
 * for await (const { type, node } of discovery.events()) console.log(type, node.name, node.addresses)
 */
export class Discovery {
  readonly #domain: string
  readonly #ownId: string
  readonly #fingerprint: string | undefined
  readonly #file: string | undefined
  readonly #network: PacketNetwork | undefined
  readonly #responder: Responder | undefined
  readonly #browser: Browser | undefined
  /** What each source says, by key. */
  readonly #parts = new Map<string, Map<string, Part>>()
  readonly #listeners = new Set<(event: DiscoveryEvent) => void>()
  readonly #end = new AbortController()
  #known: KnownPeer[] = []
  #saving: Promise<void> = Promise.resolve()
  #problem: string | undefined

  /** @throws SparkError ERR_ARGUMENT */
  constructor(options: DiscoveryOptions = {}) {
    expectKnownOptions('options', options, optionNames)
    const { announce, mdns = true, timing = standardTiming } = options
    if (announce) expectAnnouncement(announce)
    this.#domain = serviceDomain(options.service ?? '_exo-gpu._tcp')
    this.#ownId = announce?.nodeId ?? ''
    this.#fingerprint = options.fingerprint ?? announce?.fingerprint
    this.#file = options.knownPeersFile
    for (const peer of options.peers ?? []) this.#addStatic(peer)
    if (!mdns) return
    this.#network = options.network ?? new MulticastNetwork(options.interfaces)
    this.#browser = new Browser(this.#network, this.#domain, this.#ownId, timing, (instance, seen) =>
      this.#seen(instance, seen),
    )
    if (announce) this.#responder = new Responder(this.#network, this.#domain, announce, timing)
  }

  /** Nodes that may be there now. */
  get nodes(): readonly FoundNode[] {
    return [...this.#parts.keys()].map(key => this.#node(key)!)
  }

  /** What went wrong so far. */
  get problems(): DiscoveryProblems {
    const { malformed = 0, dropped = 0, failure } = this.#network?.counts ?? {}
    return {
      malformed,
      dropped,
      overflow: this.#browser?.overflow ?? 0,
      network: failure,
      file: this.#problem,
    }
  }

  /** The name that this node has on the network; another node's equal name gives it a number. */
  get name(): string | undefined {
    return this.#responder?.label
  }

  /** Begins to look and to tell. Resolves when the name of this node is claimed. */
  async start(): Promise<void> {
    if (this.#file !== undefined) {
      const { peers, problem } = await readKnownPeers(this.#file)
      this.#known = mergePeers([...this.#known, ...peers])
      this.#problem = problem
      for (const peer of this.#known) this.#remembered(peer)
    }
    await this.#network?.start(
      arrival => this.#heard(arrival),
      () => {
        this.#responder?.repeat()
        this.#browser?.start()
      },
    )
    this.#browser?.start()
    this.#responder?.start()
    await this.#responder?.claimed
  }

  /** Changes from now on, after one `found` for each node that is there. Ends with {@link Discovery.close} or `signal`. */
  async *events(signal?: AbortSignal): AsyncGenerator<DiscoveryEvent, void, void> {
    const queue: DiscoveryEvent[] = this.nodes.map(node => ({ type: 'found', node }))
    let wake = (): void => {}
    const listener = (event: DiscoveryEvent): void => {
      if (queue.length >= maxEvents) queue.shift()
      queue.push(event)
      wake()
    }
    const woken = (): void => wake()
    const ends = signal ? AbortSignal.any([signal, this.#end.signal]) : this.#end.signal
    this.#listeners.add(listener)
    ends.addEventListener('abort', woken)
    try {
      for (;;) {
        while (queue.length > 0) yield queue.shift()!
        if (ends.aborted) return
        await new Promise<void>(resolve => {
          wake = resolve
        })
      }
    } finally {
      this.#listeners.delete(listener)
      ends.removeEventListener('abort', woken)
    }
  }

  /** Tells other numbers of devices and memory from now on. */
  update(announcement: Announcement): void {
    expectAnnouncement(announcement)
    this.#responder?.update(announcement)
  }

  /** Keeps where a node of the cluster was reached, after its certificate was checked. */
  async remember(nodeId: string, address: Address): Promise<void> {
    const peer = { nodeId, host: address.host, port: address.port, reachedAt: Date.now() }
    if (!isPeer(peer)) throw argumentError('address', 'of a node', { nodeId, ...address })
    const isNew = !this.#known.some(
      known => known.nodeId === nodeId && known.host === peer.host && known.port === peer.port,
    )
    this.#known = mergePeers([peer, ...this.#known])
    this.#remembered(peer)
    if (isNew)
      for (const link of this.#gossips)
        if (link.peer.nodeId !== nodeId) link.call('peers-changed', null).catch(() => {})
    const file = this.#file
    if (file === undefined) return
    const saved = this.#saving.then(() => writeKnownPeers(file, this.#known))
    this.#saving = saved.catch(() => {})
    await saved
  }

  /** Forgets a node that left the cluster. */
  async forget(nodeId: string): Promise<void> {
    this.#known = this.#known.filter(peer => peer.nodeId !== nodeId)
    this.#change(nodeId, parts => {
      for (const source of [...parts.keys()]) if (source !== 'mdns') parts.delete(source)
    })
    if (this.#file !== undefined) await writeKnownPeers(this.#file, this.#known)
  }

  readonly #gossips = new Set<FrameStream>()

  /** Exchanges peers with the node of a link: now, when it has reached a new one, and twice a minute while it lasts. */
  gossip(link: FrameStream): void {
    const teller = link.peer.nodeId
    this.#gossips.add(link)
    link.handle('peers', () => this.#known.slice(0, gossipPeers))
    const ask = async (): Promise<void> => {
      const peers = await link.call('peers', null).catch(() => [])
      this.#hearPeers(teller, Array.isArray(peers) ? peers.slice(0, gossipPeers) : [])
    }
    link.handle('peers-changed', () => {
      void ask()
      return null
    })
    void ask()
    const timer = setInterval(ask, gossipMs)
    timer.unref()
    link.closed.then(() => {
      clearInterval(timer)
      this.#gossips.delete(link)
      this.#hearPeers(teller, [])
    })
  }

  /** Says goodbye and ends. */
  async close(): Promise<void> {
    if (this.#end.signal.aborted) return
    this.#responder?.close()
    this.#browser?.close()
    await this.#network?.close()
    await this.#saving
    this.#end.abort()
  }

  #heard(arrival: Arrival): void {
    if (arrival.packet.type === 'query') this.#responder?.onQuery(arrival)
    else {
      this.#responder?.onResponse(arrival)
      this.#browser?.onResponse(arrival)
    }
  }

  #addStatic(peer: string): void {
    const { host, port } = parseAddress(peer)
    const key = formatAddress({ host, port })
    const part: Part = { ...unknownNode, key, addresses: [{ host, port }] }
    this.#change(key, parts => parts.set('static', part))
  }

  #remembered({ nodeId, host, port }: KnownPeer): void {
    this.#change(nodeId, parts => {
      const before = parts.get('known')?.addresses ?? []
      const others = before.filter(address => address.host !== host || address.port !== port)
      const addresses = [{ host, port }, ...others].slice(0, 8)
      parts.set('known', { ...unknownNode, key: nodeId, nodeId, addresses, cluster: 'own' })
    })
  }

  /** Replaces what one node tells about others. */
  #hearPeers(teller: string, told: readonly unknown[]): void {
    const source = `gossip ${teller}`
    const peers = told.filter(isPeer).filter(({ nodeId }) => nodeId !== this.#ownId)
    const gone = [...this.#parts.keys()].filter(
      key => this.#parts.get(key)!.has(source) && !peers.some(({ nodeId }) => nodeId === key),
    )
    for (const key of gone) this.#change(key, parts => parts.delete(source))
    for (const key of new Set(peers.map(({ nodeId }) => nodeId))) {
      const addresses = peers.filter(({ nodeId }) => nodeId === key).map(({ host, port }) => ({ host, port }))
      const part: Part = {
        ...unknownNode,
        key,
        nodeId: key,
        addresses: addresses.slice(0, 8),
        cluster: 'own',
      }
      this.#change(key, parts => parts.set(source, part))
    }
  }

  readonly #instances = new Map<string, string>()

  #seen(instance: string, seen: readonly Seen[]): void {
    const before = this.#instances.get(instance)
    const [first] = seen
    if (before !== undefined && before !== first?.nodeId) this.#change(before, parts => parts.delete('mdns'))
    if (!first) {
      this.#instances.delete(instance)
      return
    }
    this.#instances.set(instance, first.nodeId)
    const own = this.#fingerprint && shortFingerprint(this.#fingerprint)
    const part: Part = {
      key: first.nodeId,
      nodeId: first.nodeId,
      name: first.name,
      addresses: addressesOf(seen),
      cluster:
        own === undefined || first.fingerprint === ''
          ? 'unknown'
          : own === first.fingerprint
            ? 'own'
            : 'other',
      devices: first.devices,
      memoryGiB: first.memoryGiB,
    }
    this.#change(first.nodeId, parts => parts.set('mdns', part))
  }

  #node(key: string): FoundNode | undefined {
    const parts = this.#parts.get(key)
    const said = parts?.get('mdns') ?? parts?.values().next().value
    if (!parts || !said) return undefined
    const addresses = new Map(
      [...parts.values()].flatMap(part => part.addresses.map(one => [formatAddress(one), one])),
    )
    return { ...said, addresses: [...addresses.values()], sources: sourcesOf(parts) }
  }

  /** Changes what is said of a node, and tells who listens. */
  #change(key: string, act: (parts: Map<string, Part>) => void): void {
    const before = this.#node(key)
    const parts = this.#parts.get(key) ?? new Map<string, Part>()
    if (!before && this.#parts.size >= maxNodes) return
    act(parts)
    if (parts.size > 0) this.#parts.set(key, parts)
    else this.#parts.delete(key)
    const node = this.#node(key)
    if (JSON.stringify(node) === JSON.stringify(before)) return
    const type = !before ? 'found' : node ? 'updated' : 'lost'
    for (const listener of this.#listeners) listener({ type, node: (node ?? before)! })
  }
}

/** Keys of parts are sources; those of gossip also name who told. */
const sourcesOf = (parts: ReadonlyMap<string, unknown>): DiscoverySource[] => [
  ...new Set([...parts.keys()].map(key => key.split(' ')[0] as DiscoverySource)),
]

const unknownNode = {
  nodeId: undefined,
  name: undefined,
  cluster: 'unknown' as const,
  devices: undefined,
  memoryGiB: undefined,
}
