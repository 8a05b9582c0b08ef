// transport.ts: what every transport offers, and what it is made of.
import type { ConnectionGate } from '../trust/connection-gate.js'
import type { NodeCredentials, PeerPolicy } from '../trust/credentials.js'
import type { RefusalKind, Refusals } from '../trust/refusals.js'
import type { FrameStream } from './frame-stream.js'
import type { LinkOptions } from './options.js'
import type { Address, Pipe } from './pipe.js'

/** Names of the transports. */
export type TransportName = 'tls' | 'grpc' | 'quic' | 'tcp'

/** Options of a listener. */
export interface ListenOptions extends LinkOptions {
  /** Where to listen. Default `{ host: '127.0.0.1', port: 0 }`: a free port of this machine only. */
  address?: Address
  /** Links at once. Default 256. */
  maxLinks?: number
  /** Connections of one address within ten seconds; more are refused. Default 100. */
  maxConnectionsPer10s?: number
  /** Connections of one address at once. Default 64. */
  maxConnectionsPerAddress?: number
  /** Counts what is refused, and records it. Default: counts of its own. */
  refusals?: Refusals
}

/** Takes links; iterate over it. */
export interface StreamListener extends AsyncIterable<FrameStream> {
  /** Where it listens, with the port that the system chose. */
  readonly address: Address
  /** What it refused so far. */
  readonly refused: Readonly<Partial<Record<RefusalKind, number>>>
  /** New connections see another certificate of this node; links stay. */
  renew(credentials: NodeCredentials): void
  /** Ends the listener and all of its links. */
  close(): Promise<void>
}

/** Makes links to nodes of the cluster. */
export interface StreamTransport {
  /** Which one it is. */
  readonly name: TransportName
  /**
   * Takes links of nodes that the policy accepts.
   * @throws SparkError ERR_ARGUMENT, ERR_IO when the port cannot be had, ERR_UNSUPPORTED without an optional package
   */
  listen(credentials: NodeCredentials, policy: PeerPolicy, options?: ListenOptions): Promise<StreamListener>
  /**
   * Makes a link to a node.
   * @param credentials - a function is asked for each connection: a link that gets new keys may outlive a certificate
   * @param expectedNodeId - uuid; another node at this address is refused. Undefined: any node of the cluster may be there
   * @throws SparkError ERR_ARGUMENT, ERR_DENIED when either node refuses the other, ERR_IO without a connection,
   * ERR_UNSUPPORTED for an option that this transport lacks
   */
  connect(
    address: Address,
    credentials: NodeCredentials | (() => NodeCredentials),
    expectedNodeId: string | undefined,
    options?: ConnectOptions,
  ): Promise<FrameStream>
}

/** Options of a link that this node makes. */
export interface ConnectOptions extends LinkOptions {
  /** Who else is refused: revoked certificates, for example. Default: nobody. */
  policy?: PeerPolicy
  /** Of `tls` and `tcp`: the address of this machine to connect from; chooses the interface. Default: the system's choice. */
  localAddress?: string
}

/** What makes and takes connections of one kind. */
export interface PipeMaker {
  readonly name: TransportName
  dial(target: DialTarget): Promise<Pipe>
  serve(address: Address, service: PipeService): Promise<PipeServer>
}

/** A connection that is wanted. */
export interface DialTarget {
  readonly address: Address
  readonly credentials: NodeCredentials
  readonly policy: PeerPolicy
  readonly expectedNodeId: string | undefined
  readonly localAddress: string | undefined
  readonly signal: AbortSignal
}

/** What a server of connections asks and tells. */
export interface PipeService {
  readonly credentials: NodeCredentials
  readonly policy: PeerPolicy
  /** Each connection passes it first. */
  readonly gate: ConnectionGate
  readonly refusals: Refusals
  /** Milliseconds that a handshake may take. */
  readonly handshakeMs: number
  readonly accepted: (pipe: Pipe) => void
}

/** A server of connections. */
export interface PipeServer {
  readonly address: Address
  /** Where connections have certificates of the node: new ones have these. */
  renew?(credentials: NodeCredentials): void
  close(): Promise<void>
}
