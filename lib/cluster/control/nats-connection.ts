// nats-connection.ts: one connection to NATS: TLS 1.3 with the node's certificate, requests that outlast a change of leader,
// and the real reason when a server turns us away, which the client library reports as a timeout.
import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream'
import type { NatsConnection, NodeConnectionOptions } from '@nats-io/transport-node'
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { NodeCredentials, PeerPolicy } from '../trust/credentials.js'
import { tlsOptions } from '../trust/tls.js'
import { closedError, conflict } from './names.js'
import type { NatsAddress } from './nats-address.js'
import { inboxOf } from './nats-config.js'

/** The packages that NATS needs, loaded when it is used. */
export interface NatsPackages {
  readonly transport: typeof import('@nats-io/transport-node')
  readonly jetstream: typeof import('@nats-io/jetstream')
  readonly kv: typeof import('@nats-io/kv')
}

/** @throws SparkError ERR_UNSUPPORTED naming what is to be installed */
export async function natsPackages(): Promise<NatsPackages> {
  try {
    const [transport, jetstream, kv] = await Promise.all([
      import('@nats-io/transport-node'),
      import('@nats-io/jetstream'),
      import('@nats-io/kv'),
    ])
    return { transport, jetstream, kv }
  } catch (cause) {
    const names = '@nats-io/transport-node @nats-io/jetstream @nats-io/kv'
    const message = `the control plane 'nats' needs packages that are not installed: npm install ${names}`
    throw new SparkError('ERR_UNSUPPORTED', message, { cause })
  }
}

/** How consumers read: a server that is lost is noticed after two heartbeats, by default after half a minute. */
export const reading = { max_messages: 100, expires: 5000, idle_heartbeat: 1000 } as const

/** Between two tries to read on. */
export const retryMs = 500

const isLoopback = (server: string): boolean => /^(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+$/.test(server)
const connectMs = 5000
/** How long one try of a request waits; a server that was lost is noticed by then. */
const tryMs = 2000

/** JetStream has fewer servers at present than a stream asks for: others are still to come, or come back. */
const noSuitablePeers = 10_005

const anyPeer: PeerPolicy = { accepts: () => null }

function tlsOf({ servers, credentials, policy = anyPeer }: NatsAddress): ConnectionOptions | null {
  if (servers.length === 0 || !servers.every(server => /^\S+:\d{1,5}$/.test(server)))
    throw argumentError('servers', 'host:port of at least one server', servers)
  if (credentials) return tlsOptions(credentials, policy).client()
  const open = servers.find(server => !isLoopback(server))
  if (open !== undefined)
    throw new SparkError('ERR_ARGUMENT', `credentials must be given: ${open} is not on this machine`)
  return null
}

/** A connection and JetStream on it. */
export class NatsLink {
  readonly packages: NatsPackages
  readonly connection: NatsConnection
  readonly stream: JetStreamClient
  readonly manager: JetStreamManager
  /** How long a request may take, changes of leaders included. */
  readonly timeoutMs: number
  /** Where answers arrive. */
  readonly inboxPrefix: string
  readonly #servers: number
  /** Each connection begins with what it says at the time; null without TLS. */
  readonly #tls: ConnectionOptions | null
  readonly #policy: PeerPolicy | undefined
  /** When we last went to another server. */
  #moved = 0
  readonly #afterReconnect = new Set<() => void>()

  private constructor(
    packages: NatsPackages,
    connection: NatsConnection,
    manager: JetStreamManager,
    timeoutMs: number,
    inboxPrefix: string,
    { servers, policy }: NatsAddress,
    tls: ConnectionOptions | null,
  ) {
    this.packages = packages
    this.connection = connection
    this.manager = manager
    this.stream = packages.jetstream.jetstream(connection, { timeout: tryMs })
    this.timeoutMs = timeoutMs
    this.inboxPrefix = inboxPrefix
    this.#servers = servers.length
    this.#policy = policy
    this.#tls = tls
  }

  /**
   * @throws SparkError ERR_DENIED where a certificate is the reason; ERR_IO where no server answers; ERR_ARGUMENT;
   * ERR_UNSUPPORTED
   */
  static async open(address: NatsAddress, timeoutMs: number): Promise<NatsLink> {
    const tls = tlsOf(address)
    const packages = await natsPackages()
    const id = address.credentials?.nodeId
    const inboxPrefix = id === undefined ? '_INBOX' : inboxOf(id)
    const options: NodeConnectionOptions = {
      servers: [...address.servers],
      name: id ?? 'dgx-spark',
      tls: tls as NodeConnectionOptions['tls'] & object,
      timeout: connectMs,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 200,
      reconnectJitter: 100,
      reconnectJitterTLS: 100,
      pingInterval: 2000,
      maxPingOut: 2,
      inboxPrefix,
    }
    await expectWelcome(address.servers, tls)
    const connection = await packages.transport.connect(options).catch(error => {
      throw new SparkError('ERR_IO', `no connection to NATS at ${address.servers}: ${error.message}`, {
        cause: error,
      })
    })
    const manager = await packages.jetstream.jetstreamManager(connection, { timeout: tryMs, checkAPI: false })
    return new NatsLink(packages, connection, manager, timeoutMs, inboxPrefix, address, tls)
  }

  /** Goes on with the next certificate of the node, over a new connection. Requests that are on their way are tried again. */
  async renew(credentials: NodeCredentials): Promise<void> {
    if (!this.#tls || this.connection.isClosed()) return
    Object.assign(this.#tls, tlsOptions(credentials, this.#policy ?? anyPeer).client())
    // What was published before arrives over the old connection.
    await this.connection.flush().catch(() => {})
    await this.connection.reconnect().catch(error => debug(`nats: ${(error as Error).message}`))
  }

  /**
   * Calls back whenever the connection has been made anew: what a server sent over the one before may be lost.
   * @returns ends that
   */
  onReconnect(call: () => void): () => void {
    this.#afterReconnect.add(call)
    return () => this.#afterReconnect.delete(call)
  }

  /** The connection has been made anew. */
  reconnected(): void {
    for (const call of [...this.#afterReconnect]) call()
  }

  /**
   * Tries a request until it is answered: while servers choose a leader, nobody answers.
   * @param attempt - must do the same however often it is called; gets its number, from 1
   * @throws SparkError ERR_CONFLICT, ERR_IO, ERR_DISPOSED
   */
  async persist<T>(what: string, attempt: (number: number) => Promise<T>): Promise<T> {
    const giveUp = performance.now() + this.timeoutMs
    for (let number = 1; ; number++) {
      try {
        return await attempt(number)
      } catch (error) {
        if (error instanceof SparkError) throw error
        if (this.isConflict(error))
          throw conflict(`${what}: somebody else was first: ${(error as Error).message}`)
        if (this.connection.isClosed()) throw closedError()
        const denial = this.#denial(error)
        if (denial)
          throw new SparkError('ERR_DENIED', `${what}: this node may not: ${denial}`, { cause: error })
        if (!this.#isTransient(error) || performance.now() >= giveUp) throw this.#failure(what, error)
      }
      await sleep(100)
      if (number % 3 === 0) await this.#tryAnotherServer()
    }
  }

  /** A server that is cut off from the others still talks to us, but can have nothing stored. */
  async #tryAnotherServer(): Promise<void> {
    if (this.#servers < 2 || performance.now() - this.#moved < tryMs) return
    this.#moved = performance.now()
    await this.connection.reconnect().catch(() => {})
  }

  /** Whether a compare-and-set found another value. */
  isConflict(error: unknown): boolean {
    const { JetStreamApiError, JetStreamApiCodes } = this.packages.jetstream
    const codes: readonly number[] = [
      JetStreamApiCodes.StreamWrongLastSequence,
      JetStreamApiCodes.StreamWrongLastSequenceUnknown,
    ]
    return error instanceof JetStreamApiError && codes.includes(error.code)
  }

  /** Whether JetStream has no stream or consumer of this name. */
  isMissing(error: unknown): boolean {
    const { JetStreamApiError, JetStreamApiCodes } = this.packages.jetstream
    const codes: readonly number[] = [JetStreamApiCodes.StreamNotFound, JetStreamApiCodes.ConsumerNotFound]
    return error instanceof JetStreamApiError && codes.includes(error.code)
  }

  #denial(error: unknown): string | undefined {
    const { PermissionViolationError } = this.packages.transport
    const [own, cause] = [error, (error as Error).cause]
    const found = [own, cause].find(each => each instanceof PermissionViolationError)
    return found && (found as Error).message
  }

  #isTransient(error: unknown): boolean {
    const { JetStreamApiError } = this.packages.jetstream
    // Of requests: no answer, no responder, no JetStream, a connection that was lost. What JetStream itself refuses is final,
    // except that it cannot at present: no leader, no room, too few servers, or without what a try made after a server has lost it.
    if (this.isMissing(error)) return true
    if (error instanceof JetStreamApiError) return error.status >= 500 || error.code === noSuitablePeers
    return error instanceof Error
  }

  #failure(what: string, error: unknown): SparkError {
    const { message } = error as Error
    const { JetStreamApiError } = this.packages.jetstream
    const isAnswer = error instanceof JetStreamApiError && error.status < 500
    const seconds = this.timeoutMs / 1000
    const text = isAnswer
      ? `${what}: NATS refused: ${message}`
      : `${what}: not acknowledged in ${seconds} s (${message}); whether it was stored is unknown: are most servers up?`
    return new SparkError('ERR_IO', text, { cause: error })
  }
}

/** Throws ERR_DENIED or ERR_IO with the reasons where no server takes us: the client library would call it a timeout. */
async function expectWelcome(servers: readonly string[], tls: ConnectionOptions | null): Promise<void> {
  const reasons = await Promise.all(servers.map(server => reasonOf(server, tls)))
  if (reasons.includes(undefined)) return
  const texts = servers.map((server, i) => `${server}: ${reasons[i]!.text}`)
  const isDenied = reasons.some(reason => reason?.isDenied)
  const message = `no NATS server takes this node: ${texts.join('; ')}`
  throw new SparkError(isDenied ? 'ERR_DENIED' : 'ERR_IO', message)
}

interface Reason {
  readonly text: string
  /** It is about certificates, and waiting does not help. */
  readonly isDenied: boolean
}

/** What TLS calls it, and what it means. */
const tlsReasons: Readonly<Record<string, string>> = {
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: 'TLS: the server wants a certificate of this node',
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: 'TLS: the certificate of this node is not of the CA of the server',
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: 'TLS: the server refuses the certificate of this node',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: 'TLS: the certificate of this node has expired',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: 'TLS: the server does not accept the certificate of this node',
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: 'TLS: the server does not speak TLS 1.3',
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'TLS: the server does not speak TLS 1.3',
}

/**
 * Speaks to a server as the client library does, and reads on after the handshake: in TLS 1.3 a server refuses the
 * certificate of a client only then.
 */
async function reasonOf(server: string, tls: ConnectionOptions | null): Promise<Reason | undefined> {
  const at = server.lastIndexOf(':')
  const host = server.slice(0, at).replace(/^\[|\]$/g, '')
  const socket = connectTcp({ host, port: Number(server.slice(at + 1)) })
  const signal = AbortSignal.timeout(connectMs)
  try {
    await once(socket, 'connect', { signal })
    const [info] = (await once(socket, 'data', { signal })) as [Buffer]
    const wantsTls = /"tls_(required|available)":\s*true/.test(info.toString('latin1'))
    if (!tls)
      return wantsTls
        ? { text: 'TLS: it asks for certificates: give credentials', isDenied: true }
        : undefined
    if (!wantsTls)
      return { text: 'TLS: the server speaks without TLS, which this node does not', isDenied: true }
    return await answerTo(connectTls({ ...tls, socket }), signal)
  } catch (error) {
    return describe(error)
  } finally {
    socket.destroy()
  }
}

async function answerTo(secure: TLSSocket, signal: AbortSignal): Promise<Reason | undefined> {
  try {
    await once(secure, 'secureConnect', { signal })
    secure.write('CONNECT {"verbose":false,"tls_required":true,"lang":"dgx-spark","version":"1"}\r\nPING\r\n')
    const [answer] = (await once(secure, 'data', { signal })) as [Buffer]
    const text = answer.toString('latin1', 0, 200).trim()
    if (!/^-ERR/.test(text)) return undefined
    const isUser = /Authorization Violation/i.test(text)
    return { text: isUser ? 'the server knows no node with this certificate' : text, isDenied: isUser }
  } finally {
    secure.destroy()
  }
}

function describe(error: unknown): Reason {
  const { code = '', message } = error as NodeJS.ErrnoException
  if (error instanceof SparkError) return { text: message, isDenied: error.code === 'ERR_DENIED' }
  if (code === 'ECONNREFUSED') return { text: 'no server listens there', isDenied: false }
  if (code === 'ABORT_ERR') return { text: `no answer in ${connectMs / 1000} s`, isDenied: false }
  const isTls = /^(ERR_SSL|ERR_TLS|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/.test(code)
  return { text: tlsReasons[code] ?? (isTls ? `TLS: ${message} (${code})` : message), isDenied: isTls }
}
