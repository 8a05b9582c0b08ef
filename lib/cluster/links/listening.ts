// listening.ts: the listening end of links: who may connect, how often, and which link a new connection continues.
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { ConnectionGate } from '../trust/connection-gate.js'
import type { NodeCredentials, Peer, PeerPolicy } from '../trust/credentials.js'
import { RateLimits } from '../trust/rate-limits.js'
import { type RefusalKind, Refusals } from '../trust/refusals.js'
import { expectWelcome, refuse } from './admission.js'
import { FrameStream } from './frame-stream.js'
import { type Greeting, greetConnector } from './hello.js'
import type { LinkLimits } from './options.js'
import type { Address, Pipe } from './pipe.js'
import type { ListenOptions, PipeServer, PipeService, StreamListener, TransportName } from './transport.js'

/** Connections in their first words, beside links, at once. */
const maxGreeting = 64

/** Takes links of one transport. */
export class Listening implements StreamListener {
  readonly #name: TransportName
  readonly #refusals: Refusals
  readonly #gate: ConnectionGate
  readonly #policy: PeerPolicy
  readonly #limits: LinkLimits
  readonly #maxLinks: number
  readonly #links = new Map<string, FrameStream>()
  readonly #abort = new AbortController()
  readonly #ready: FrameStream[] = []
  #credentials: NodeCredentials
  #wake: (() => void) | undefined
  #server: PipeServer | undefined

  constructor(
    name: TransportName,
    credentials: NodeCredentials,
    policy: PeerPolicy,
    limits: LinkLimits,
    options: ListenOptions,
  ) {
    const { maxLinks = 256, maxConnectionsPer10s = 100, maxConnectionsPerAddress = 64, signal } = options
    expectInteger('maxLinks', maxLinks, 1, 65_536)
    expectInteger('maxConnectionsPer10s', maxConnectionsPer10s, 1, 1_000_000)
    expectInteger('maxConnectionsPerAddress', maxConnectionsPerAddress, 1, 65_536)
    this.#name = name
    this.#credentials = credentials
    this.#policy = policy
    this.#limits = limits
    this.#maxLinks = maxLinks
    this.#refusals = options.refusals ?? new Refusals()
    this.#gate = new ConnectionGate(this.#refusals, {
      limits: new RateLimits({ address: { count: maxConnectionsPer10s, seconds: 10 } }),
      total: maxLinks + maxGreeting,
      perAddress: maxConnectionsPerAddress,
    })
    signal?.addEventListener('abort', () => this.close(), { once: true, signal: this.#abort.signal })
  }

  get address(): Address {
    return this.#server!.address
  }

  get refused(): Readonly<Partial<Record<RefusalKind, number>>> {
    return this.#refusals.counts
  }

  renew(credentials: NodeCredentials): void {
    this.#credentials = credentials
    this.#server?.renew?.(credentials)
  }

  /** Begins to listen. @throws SparkError ERR_IO where it was closed meanwhile */
  async open(serve: (service: PipeService) => Promise<PipeServer>): Promise<void> {
    const server = await serve({
      credentials: this.#credentials,
      policy: this.#policy,
      gate: this.#gate,
      refusals: this.#refusals,
      handshakeMs: this.#limits.handshakeMs,
      accepted: pipe => void this.#greet(pipe),
    })
    this.#server = server
    if (!this.#abort.signal.aborted) return
    await server.close()
    throw this.#abort.signal.reason
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FrameStream, void, void> {
    for (;;) {
      const link = this.#ready.shift()
      if (link) yield link
      else if (this.#abort.signal.aborted) return
      else {
        await new Promise<void>(resolve => {
          this.#wake = resolve
        })
      }
    }
  }

  async close(): Promise<void> {
    if (this.#abort.signal.aborted) return
    this.#abort.abort(new SparkError('ERR_IO', 'the listener was closed'))
    this.#wake?.()
    await Promise.all([...this.#links.values()].map(link => link.close('the listener was closed')))
    await this.#server?.close()
  }

  /** Hears the first words of a connection: a new link, or one that goes on with new keys. */
  async #greet(pipe: Pipe): Promise<void> {
    pipe.duplex.on('error', () => {})
    const tooLate = AbortSignal.timeout(this.#limits.handshakeMs)
    const signal = AbortSignal.any([tooLate, this.#abort.signal])
    let kind: RefusalKind = 'frame'
    let peer: Peer | undefined
    try {
      const credentials = this.#credentials
      const greeting = await greetConnector({
        pipe,
        credentials,
        limits: this.#limits,
        signal,
        admit: known => {
          peer = known
          kind = 'peer'
          expectWelcome(known, credentials, this.#policy)
          kind = 'frame'
        },
      })
      if (signal.aborted) throw signal.reason
      await this.#take(pipe, greeting)
    } catch (error) {
      refuse(pipe, error)
      if (this.#abort.signal.aborted) return
      const { code, message } = error as NodeJS.ErrnoException
      if (tooLate.aborted) kind = 'timeout'
      else if (code === 'ERR_DENIED') kind = 'peer'
      else if (code === 'ERR_BUSY') kind = 'too many'
      const reason = kind === 'timeout' ? 'the first words did not come in time' : message
      const { nodeId } = peer ?? {}
      this.#refusals.add({
        kind,
        reason,
        address: pipe.remoteAddress,
        ...(nodeId !== undefined && { nodeId }),
      })
    }
  }

  async #take(pipe: Pipe, greeting: Greeting): Promise<void> {
    const { session, resumes, peer } = greeting
    const known = this.#links.get(session)
    if (resumes || known) {
      if (!resumes || known?.peer.nodeId !== peer.nodeId)
        throw new SparkError(
          'ERR_DENIED',
          'the peer was refused: it goes on with a link that it does not have',
        )
      await known.moveTo(pipe, peer)
      return
    }
    if (this.#links.size >= this.#maxLinks)
      throw new SparkError('ERR_BUSY', `${this.#maxLinks} links are open`)
    const link = new FrameStream({ pipe, transport: this.#name, limits: this.#limits, ...greeting })
    this.#links.set(session, link)
    link.closed.then(() => this.#links.delete(session))
    this.#ready.push(link)
    this.#wake?.()
  }
}
