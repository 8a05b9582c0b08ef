// enrolment.ts: where nodes join a cluster: a TLS listener that is open only while somebody is expected.
import { watch } from 'node:fs'
import type { TLSSocket, TlsOptions } from 'node:tls'
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { CertificateRequest, ClusterAuthority, Issued } from './authority.js'
import { ConnectionGate } from './connection-gate.js'
import type { NodeCredentials, Peer } from './credentials.js'
import { receiveFrame, sendFrame } from './frames.js'
import { GuardedServer } from './guarded-server.js'
import { makeSecretFolder } from './home.js'
import { Invitations, type JoinCode } from './invitations.js'
import { bindingOf } from './join.js'
import { RateLimits } from './rate-limits.js'
import { type RefusalKind, Refusals } from './refusals.js'

/** How long a node may take to send its request. */
const requestTimeoutMs = 5000

/** What an {@link Enrolment} needs. */
export interface EnrolmentOptions {
  readonly authority: ClusterAuthority
  /** Of the node that the CA is on. */
  readonly credentials: NodeCredentials
  /** An address of this machine. Default: '::', all of them. */
  readonly host?: string
  /** Default: any; it stays the same. */
  readonly port?: number
  /** Default: 10 connections of an address in 10 s. */
  readonly limits?: RateLimits
  /** How long a node may take to send its request, ms. Default: 5000. */
  readonly timeoutMs?: number
  /** Gets who joins, before it is answered. */
  onJoined?(node: { nodeId: string; address: string }): Promise<void> | void
  /** Counts what is refused, and records it. Default: counts of its own. */
  readonly refusals?: Refusals
}

/** What a node that joins sends. */
interface JoinRequest {
  /** The {@link CertificateRequest} in JSON: what the code is bound to. */
  readonly request?: unknown
  /** Of the invitation; without it the node relies on trust in the network. */
  readonly invitation?: unknown
  /** Hex. */
  readonly mac?: unknown
}

/**
 * Lets nodes join: with a code, or without one in the minute that {@link Enrolment.trustLan} opens. Its port is open only
 * then; other processes of this node make codes too (`dgx-spark invite`).
 * @example
 * const enrolment = await Enrolment.open({ authority, credentials })
 * const { code } = await enrolment.invite()
 */
export class Enrolment {
  /** Counts of what was refused. */
  readonly refusals: Refusals
  readonly #options: EnrolmentOptions
  readonly #invitations: Invitations
  readonly #end = new AbortController()
  readonly #server: GuardedServer
  #isOpen = false
  #closing: NodeJS.Timeout | undefined
  #port: number
  #lanUntil = 0
  #turn: Promise<void> = Promise.resolve()

  private constructor(options: EnrolmentOptions) {
    this.#options = options
    this.#port = options.port ?? 0
    this.#invitations = new Invitations(options.authority.folder)
    this.refusals = options.refusals ?? new Refusals()
    const limits = options.limits ?? new RateLimits({ address: { count: 10, seconds: 10 } })
    this.#server = new GuardedServer(secureOf(options.credentials), {
      gate: new ConnectionGate(this.refusals, { limits, total: 64, perAddress: 8 }),
      refusals: this.refusals,
      onSecure: socket => void this.#serve(socket),
    })
  }

  /** Begins to watch for invitations, and listens when there is one. @throws SparkError ERR_IO when the port is taken */
  static async open(options: EnrolmentOptions): Promise<Enrolment> {
    const { folder } = options.authority
    await makeSecretFolder(folder)
    const enrolment = new Enrolment(options)
    const { signal } = enrolment.#end
    const watcher = watch(folder, { persistent: false, signal }, (_event, name) => {
      if (name === null || name.startsWith('invitations')) {
        enrolment.#update().catch(error => debug(`enrolment: ${(error as Error).message}`))
      }
    })
    watcher.on('error', error => debug(`enrolment: ${error.message}`))
    await enrolment.#update()
    return enrolment
  }

  /** The port while nodes may join, otherwise null. */
  get port(): number | null {
    return this.#isOpen ? this.#port : null
  }

  /**
   * Makes a code that one node may join with.
   * @param minutes - how long, 1 to 1440. Default: 15
   */
  async invite(minutes?: number): Promise<JoinCode> {
    const made = await this.#invitations.create(this.#options.authority.fingerprint, minutes)
    await this.#update()
    return made
  }

  /** Lets nodes join without a code for a while: whoever reaches the port may. @param seconds - 1 to 60. Default: 60 */
  async trustLan(seconds = 60): Promise<void> {
    expectInteger('seconds', seconds, 1, 60)
    this.#lanUntil = Date.now() + seconds * 1000
    await this.#update()
  }

  /** New connections see another certificate of this node. */
  renew(credentials: NodeCredentials): void {
    this.#server.setSecure(secureOf(credentials))
  }

  /** Ends the listener; codes that are out stay. */
  async close(): Promise<void> {
    this.#end.abort()
    await this.#update()
    await this.#server.close()
  }

  /** Opens or closes the port, one change after the other. */
  #update(): Promise<void> {
    const next = this.#turn.then(() => this.#apply())
    this.#turn = next.catch(() => {})
    return next
  }

  async #apply(): Promise<void> {
    clearTimeout(this.#closing)
    const isOver = this.#end.signal.aborted
    const until = isOver ? 0 : Math.max(this.#lanUntil, await this.#invitations.openUntil())
    const left = until - Date.now()
    if (left <= 0) {
      this.#isOpen = false
      this.#server.stop()
      return
    }
    this.#closing = setTimeout(() => {
      this.#update().catch(error => debug(`enrolment: ${(error as Error).message}`))
    }, left + 1).unref()
    if (this.#isOpen) return
    this.#port = await this.#server.listen(this.#port, this.#options.host ?? '::')
    this.#isOpen = true
  }

  /** Answers one request, and ends the connection. */
  async #serve(socket: TLSSocket): Promise<void> {
    const address = socket.remoteAddress ?? ''
    const { timeoutMs = requestTimeoutMs } = this.#options
    let isRead = false
    try {
      const value = await receiveFrame(socket, timeoutMs)
      isRead = true
      const issued = await this.#answer(socket, (value ?? {}) as JoinRequest)
      await this.#options.onJoined?.({ nodeId: issued.nodeId, address })
      sendFrame(socket, { issued })
      socket.end()
    } catch (error) {
      const { code, message } = error as SparkError
      const kind: RefusalKind =
        isRead && code === 'ERR_DENIED' ? 'code' : code === 'ERR_BUSY' ? 'timeout' : 'frame'
      this.refusals.add({ kind, reason: message, address })
      const reason = error instanceof SparkError ? message : 'the request could not be answered'
      sendFrame(socket, { refused: reason })
      socket.end()
    } finally {
      // Whoever does not read the answer is not waited for.
      socket.setTimeout(timeoutMs, () => socket.destroy())
    }
  }

  async #answer(socket: TLSSocket, { request, invitation, mac }: JoinRequest): Promise<Issued> {
    if (typeof request !== 'string') throw new SparkError('ERR_FORMAT', 'the request is no request to join')
    if (typeof invitation === 'string' && typeof mac === 'string') {
      await this.#invitations.use(invitation, bindingOf(socket), request, Buffer.from(mac, 'hex'))
    } else if (Date.now() >= this.#lanUntil) {
      throw new SparkError(
        'ERR_DENIED',
        'a code is needed to join: run dgx-spark invite on a node of the cluster',
      )
    }
    let parsed: unknown
    try {
      parsed = JSON.parse(request)
    } catch {
      throw new SparkError('ERR_FORMAT', 'the request is no JSON')
    }
    const issued = await this.#options.authority.sign((parsed ?? {}) as CertificateRequest)
    return issued
  }
}

/** TLS without certificates of clients. The CA's goes along: the node that joins compares its fingerprint. */
const secureOf = ({ certificate, ca, privateKey }: NodeCredentials): TlsOptions => ({
  cert: `${certificate}\n${ca}`,
  key: privateKey,
  minVersion: 'TLSv1.3',
  handshakeTimeout: requestTimeoutMs,
})

/** Valid certificates of a node at most, where it asks itself: each is kept by the authority. */
const maxValid = 8

/**
 * Gives a node of the cluster its next certificate: the answer to {@link renewCertificate}.
 * @param peer - who asks, by the certificate that it has now
 * @throws SparkError ERR_DENIED when it asks for another node, ERR_BUSY when it has eight valid ones, and as
 * {@link ClusterAuthority.sign}
 */
export async function answerRenewal(
  authority: ClusterAuthority,
  peer: Peer,
  request: unknown,
): Promise<Issued> {
  const asked = (request ?? {}) as CertificateRequest
  if (asked.nodeId !== peer.nodeId)
    throw new SparkError('ERR_DENIED', `node ${peer.nodeId} may not ask for a certificate of another node`)
  const reason = authority.revocations.accepts(peer)
  if (reason !== null) throw new SparkError('ERR_DENIED', reason)
  return authority.sign(asked, undefined, maxValid)
}
