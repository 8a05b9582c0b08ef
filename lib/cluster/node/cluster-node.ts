// cluster-node.ts: this machine as a node of a cluster: identity and certificate, links to the other nodes, devices of all, and the
// state of the cluster for whoever looks.
import { debug } from '../../core/log.js'
import { packageVersion } from '../../core/version.js'
import type { ControlPlane } from '../control/control-plane.js'
import type { DeviceRegistry } from '../devices/device-registry.js'
import type { PressureGate } from '../devices/pressure-gate.js'
import type { Discovery } from '../discovery/discovery.js'
import { LinkChannels } from '../links/channels.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { LinkReport } from '../links/measure.js'
import { type Address, formatAddress } from '../links/pipe.js'
import { tlsTransport } from '../links/tls.js'
import type { StreamListener } from '../links/transport.js'
import type { StageService } from '../stages/stage-service.js'
import type { AuditLog } from '../trust/audit.js'
import { type ClusterAuthority, fingerprintOf } from '../trust/authority.js'
import { type NodeCredentials, needsRenewal, saveCredentials } from '../trust/credentials.js'
import { answerRenewal, Enrolment } from '../trust/enrolment.js'
import type { JoinCode } from '../trust/invitations.js'
import type { NodeIdentity } from '../trust/node-identity.js'
import type { Revocations, Revoked } from '../trust/revocations.js'
import { RevocationNotes } from '../trust/signed-revocations.js'
import type { Grant, TokenGate } from '../trust/token-gate.js'
import {
  ClusterEvents,
  type ClusterState,
  type NodeState,
  type PressureState,
  withoutOperators,
} from './cluster-state.js'
import { connectFound, discoveryOf, type Look, lookOf } from './look.js'
import { enrolmentPortOf, noAuthority } from './membership.js'
import { NodeAccess } from './node-access.js'
import type { NodeAudit } from './node-audit.js'
import type { NodeControl } from './node-control.js'
import type { NodeJobs } from './node-jobs.js'
import {
  anyHost,
  type ClusterNodeOptions,
  defaultPort,
  defaultStatePort,
  expectNodeOptions,
  fabricOf,
  handshakeMs,
  nameOf,
} from './node-options.js'
import { type NodeParts, openParts } from './node-parts.js'
import { OwnLinks } from './own-links.js'
import { PeerDevices } from './peer-devices.js'
import { PeerLinks } from './peer-links.js'
import { PeerNodes, type SaidOfItself } from './peer-nodes.js'
import type { PressureWatch } from './pressure-watch.js'
import { nextCredentials, renewWhenDue } from './renewal.js'
import { checkRoutes, type Route } from './routes.js'
import { StateServer } from './state-server.js'
import { Witnesses } from './witnesses.js'

/**
 * This machine as a node of a cluster.
 * @example
 * const node = await ClusterNode.start({ create: 'lab' })
 * console.log((await node.invite()).code)
 * for (const { name, isOnline } of node.state.nodes) console.log(name, isOnline)
 * await node.close()
 */
export class ClusterNode {
  /** Its id and key. */
  readonly identity: NodeIdentity
  /** Devices of this node, and of those that it has links to. */
  readonly registry: DeviceRegistry
  /** Decisions, keys and jobs: of this node, or of the cluster where they are kept in NATS. */
  readonly control: ControlPlane
  readonly #control: NodeControl
  /** What happens here. */
  readonly events = new ClusterEvents()
  readonly #authority: ClusterAuthority | undefined
  readonly #revocations: Revocations
  readonly #notes: RevocationNotes
  /** Records what is done for other nodes and tenants. */
  readonly audit: NodeAudit
  /** @internal stages of models, and the weights that nodes give each other. */
  readonly stages: StageService
  /** @internal jobs that nodes do for each other. */
  readonly jobs: NodeJobs
  /** @internal links of programs of this machine. */
  readonly own = new OwnLinks()
  readonly #log: AuditLog
  readonly #access: NodeAccess
  readonly #witnesses: Witnesses
  readonly #pressure: PressureWatch | null
  readonly #options: ClusterNodeOptions
  readonly #links: PeerLinks
  readonly #devices: PeerDevices
  readonly #transport = tlsTransport()
  readonly #peers = new PeerNodes()
  /** What other nodes measured, by node. */
  readonly #routes = new Map<string, readonly Route[]>()
  readonly #end = new AbortController()
  #credentials: NodeCredentials
  #listener: StreamListener | undefined
  #discovery: Discovery | undefined
  #enrolment: Enrolment | undefined
  #server: StateServer | undefined
  readonly #startedAt = Date.now()
  readonly #name: string

  private constructor(options: ClusterNodeOptions, parts: NodeParts) {
    this.#options = options
    this.#name = nameOf(options)
    this.identity = parts.identity
    this.registry = parts.registry
    this.control = parts.control.plane
    this.#control = parts.control
    this.#log = parts.log
    this.audit = parts.audit
    this.stages = parts.stages
    this.jobs = parts.jobs
    this.#authority = parts.authority
    this.#credentials = parts.credentials
    this.#revocations = parts.revocations
    this.#notes = new RevocationNotes(
      parts.revocations,
      parts.credentials.ca,
      parts.authority && (list => parts.authority!.signRevocations(list)),
    )
    this.#access = new NodeAccess({
      ...{ credentials: parts.credentials, revocations: parts.revocations, audit: this.audit },
      onRefused: ({ kind, reason, address }) => this.events.add('refused', address, `${kind}: ${reason}`),
    })
    this.#pressure = parts.pressure
    this.#witnesses = new Witnesses(
      {
        ...{ identity: parts.identity, log: parts.log, links: () => this.#links.links() },
        onRefused: (link, reason) => this.#access.refusePeer(link, reason),
        onCosigned: nodeId => this.events.add('witness', nodeId),
      },
      this.#end.signal,
    )
    this.#devices = new PeerDevices(parts.registry, event =>
      this.events.add('device', event.device.id, event.type),
    )
    this.#links = new PeerLinks({
      ...{ transport: this.#transport, credentials: () => this.#credentials },
      ...{ policy: parts.revocations, fabric: fabricOf(options), onOwn: link => this.own.take(link) },
      onLink: (link, address) => this.#linked(link, address),
      onLost: (nodeId, reason) => this.#lost(nodeId, reason),
      onMeasured: report => this.#measured(report),
    })
  }

  /**
   * Starts the node; the first time it begins a cluster (`create`) or joins one (`code`, `trustLan`).
   * @throws SparkError ERR_ARGUMENT, ERR_DENIED when the cluster refuses the node, ERR_IO when a port is taken or no cluster found,
   * ERR_BUSY when another process runs the node of this folder
   */
  static async start(options: ClusterNodeOptions = {}): Promise<ClusterNode> {
    expectNodeOptions(options)
    const look = lookOf(options)
    let node: ClusterNode | undefined
    const parts = await openParts(options, look, () => (node ? node.#witnesses.ask() : undefined))
    node = new ClusterNode(options, parts)
    try {
      await node.#open(look)
      return node
    } catch (error) {
      await node.close()
      throw error
    }
  }

  /** What this node knows of its cluster. */
  get state(): ClusterState {
    const { clusterId: id, clusterName: name, ca, nodeId } = this.#credentials
    const self: NodeState = {
      ...{ id: nodeId, name: this.#name, version: packageVersion(), isSelf: true, isOnline: true },
      ...{ address: this.#listener && formatAddress(this.address), since: this.#startedAt },
      pressure: this.#pressure?.state.level,
    }
    return {
      version: this.events.version,
      cluster: {
        ...{ id, name, fingerprint: fingerprintOf(ca), hasAuthority: this.#authority !== undefined },
        enrolmentPort: this.#enrolment?.port ?? null,
      },
      nodes: [self, ...this.#peers.list],
      devices: this.registry.devices.map(withoutOperators),
      links: this.#links.reports(),
      routes: [...this.#links.routes(), ...[...this.#routes.values()].flat()],
      others: (this.#discovery?.nodes ?? []).filter(({ cluster }) => cluster === 'other'),
      pressure: this.#pressure?.state ?? null,
      refused: this.#access.refusals.counts,
      audit: { ...this.audit.counts, witnesses: this.#witnesses.count },
      control: { kind: this.control.kind, quorum: this.control.quorum },
    }
  }

  /** Work passes it before each step: it is closed under pressure. Null where the node does not look for any. */
  get pressureGate(): PressureGate | null {
    return this.#pressure?.gate ?? null
  }

  /** Checks tokens of tenants: {@link ClusterNode.grant} for what comes over links. */
  get gate(): TokenGate {
    return this.#access.gate
  }

  /**
   * What the token of a question allows that came over a link. Once it is revoked or has expired no step begins, its signal
   * is aborted, and memory that it registered is zeroed.
   * @throws SparkError ERR_DENIED with the reason, ERR_BUSY when it is used too often
   */
  grant(link: FrameStream, token: unknown): Promise<Grant> {
    return this.#access.grant(link, token)
  }

  /** Where it takes links. */
  get address(): Address {
    return this.#listener!.address
  }

  /** The port of `/api/state`, or null. */
  get statePort(): number | null {
    return this.#server?.port ?? null
  }

  /**
   * Makes a code that one node may join with.
   * @param minutes - how long, 1 to 1440. Default: 15
   * @throws SparkError ERR_IO on a node without the CA
   */
  async invite(minutes?: number): Promise<JoinCode> {
    const made = await this.#joining.invite(minutes)
    this.events.add('enrolment', 'code', made.until.toISOString())
    return made
  }

  /** Lets nodes join without a code for a minute: whoever reaches the port may. @throws SparkError ERR_IO without the CA */
  async trustLan(seconds?: number): Promise<void> {
    await this.#joining.trustLan(seconds)
    this.events.add('enrolment', 'lan')
  }

  /** Revokes nodes, certificates or tokens, here and on all nodes that are there. @throws SparkError ERR_IO without the CA */
  async revoke(revoked: Revoked): Promise<void> {
    if (!this.#authority) throw noAuthority(this.#credentials.clusterName)
    await this.#revocations.add(revoked)
  }

  /** Ends links, listeners and timers. The folder keeps identity, certificate, devices and decisions. */
  async close(): Promise<void> {
    if (this.#end.signal.aborted) return
    this.#end.abort()
    await this.jobs.close()
    await this.#server?.close()
    await this.#enrolment?.close()
    await this.#discovery?.close()
    await this.#links.close()
    await this.#listener?.close()
    await this.registry.settled()
    await this.stages.close()
    this.gate[Symbol.dispose]()
    await this.#control.close()
    await this.#log.close()
  }

  get #joining(): Enrolment {
    if (this.#enrolment) return this.#enrolment
    throw noAuthority(this.#credentials.clusterName)
  }

  async #open(look: Look): Promise<void> {
    const { signal } = this.#end
    const host = this.#options.host ?? anyHost()
    const port = this.#options.port ?? defaultPort
    this.registry.watch({ signal, onEvent: event => this.#devices.changed(event, this.#links.links()) })
    void this.#devices.measureRates(() => this.#links.links(), signal)
    void this.#pressure?.follow(
      () => this.#devices.own,
      state => this.#pressed(state),
      signal,
    )
    await this.#revocations.follow(signal)
    this.#revocations.onAdded(added => this.#revoked(added))
    await this.#listen({ host, port })
    this.#discovery = discoveryOf({
      ...{ look, port, credentials: this.#credentials, folder: this.identity.folder },
      ...{ name: this.#name, devices: this.#devices.own.length },
    })
    await this.#discovery.start()
    void connectFound(this.#discovery, this.#links, signal)
    const { statePort = defaultStatePort } = this.#options
    const told = { state: () => this.state, events: this.events, witnessed: () => this.#witnesses.held() }
    if (statePort !== null) this.#server = await StateServer.open(told, statePort)
    renewWhenDue(() => this.#renew(), signal)
  }

  /** Takes links at an address, and lets nodes join at the port behind it. */
  async #listen({ host, port }: Address): Promise<void> {
    const listener = await this.#transport.listen(this.#credentials, this.#revocations, {
      ...{ address: { host, port }, refusals: this.#access.refusals, handshakeMs },
    })
    this.#listener = listener
    if (this.#authority) {
      this.#enrolment = await Enrolment.open({
        ...{ authority: this.#authority, credentials: this.#credentials, host, port: enrolmentPortOf(port) },
        onJoined: async ({ nodeId, address }) => {
          await this.#control.update()
          this.events.add('node-joined', nodeId, address)
        },
        refusals: this.#access.refusals,
      })
    }
    await this.own.announce(this.identity.folder, listener.address)
    void this.#links.takeAll(listener)
  }

  #linked(link: FrameStream, address: Address | undefined): void {
    const { nodeId } = link.peer
    this.#access.guard(link)
    this.#witnesses.answer(link)
    link.handle('node', () => ({
      ...{ name: this.#name, version: packageVersion(), port: this.address.port },
      publicKey: this.identity.publicKey,
    }))
    link.handle('revoked', list => this.#notes.take(list).then(() => this.#notes.current))
    link.handle('routes', value => void this.#routes.set(nodeId, checkRoutes(nodeId, value)))
    link.handle('pressure', level => void this.#peers.pressed(nodeId, level))
    if (this.#authority) link.handle('renew', request => answerRenewal(this.#authority!, link.peer, request))
    const channels = new LinkChannels(link)
    this.#devices.exchange(channels)
    this.stages.attach(link, channels, token => this.grant(link, token))
    this.jobs.attach(link)
    this.#discovery?.gossip(link)
    void this.#greet(link, address).catch(error => {
      debug(`node ${nodeId}: ${(error as Error).message}`)
      void link.close('it did not say who it is')
    })
  }

  /** Asks a node for its name, tells it what is revoked, and remembers where it is. */
  async #greet(link: FrameStream, address: Address | undefined): Promise<void> {
    const { nodeId } = link.peer
    const said = (await link.call('node', null)) as SaidOfItself | null
    await this.#notes.take(await link.call('revoked', this.#notes.current))
    if (said?.publicKey !== undefined) await this.#witnesses.met(link, said.publicKey)
    // It may be among them.
    if (this.#links.link(nodeId) !== link) return
    const at = this.#peers.met(link, said, address)
    this.events.add('node-online', nodeId, formatAddress(at))
    if (this.#pressure) this.#tellAll('pressure', this.#pressure.state.level, [link])
    await this.#discovery?.remember(nodeId, at)
  }

  #lost(nodeId: string, reason: string): void {
    this.#peers.lost(nodeId)
    this.#devices.lost(nodeId)
    this.#routes.delete(nodeId)
    this.events.add('node-offline', nodeId, reason)
    this.#tellAll('routes', this.#links.routes())
  }

  /** Tells the other nodes what was measured here. */
  #measured({ nodeId, class: { kind } }: LinkReport): void {
    this.events.add('link', nodeId, kind)
    this.#tellAll('routes', this.#links.routes())
  }

  /** Tells the other nodes what this one does under pressure. */
  #pressed({ level, reasons }: PressureState): void {
    this.events.add('pressure', this.#credentials.nodeId, [level, ...reasons].join(': '))
    this.#tellAll('pressure', level)
  }

  #tellAll(method: string, value: unknown, links = this.#links.links()): void {
    for (const link of links)
      link.call(method, value).catch(error => debug(`${method}: ${(error as Error).message}`))
  }

  /** Tells the other nodes what was revoked, and ends links to those that were. */
  #revoked(added: Required<Revoked>): void {
    this.events.add('revoked', [...added.nodes, ...added.serials, ...Object.keys(added.tokens)].join(' '))
    if (added.nodes.length > 0) void this.#control.update()
    this.#links.dropRefused((link, reason) => this.#access.refusePeer(link, reason))
    this.#tellAll('revoked', this.#notes.current)
  }

  /** Gets the next certificate when this one is past half of its life. New connections show it. */
  async #renew(): Promise<void> {
    if (!needsRenewal(this.#credentials)) return
    const next = await nextCredentials(this.identity, this.#credentials, this.#authority, this.#links.links())
    if (!next || this.#end.signal.aborted) return
    await saveCredentials(next, this.identity.folder)
    this.#credentials = next
    this.#listener?.renew(next)
    this.#enrolment?.renew(next)
    await this.#control.renew(next)
  }
}
