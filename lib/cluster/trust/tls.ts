// tls.ts: options for TLS 1.3 between nodes: both sides show certificates of the cluster's CA.
import { constants } from 'node:crypto'
import type { ConnectionOptions, TLSSocket, TlsOptions } from 'node:tls'
import { SparkError } from '../../core/errors.js'
import { type NodeCredentials, type Peer, type PeerPolicy, peerOf } from './credentials.js'

/** Options of both ends, and the check that a listener makes of each connection. */
export interface NodeTls {
  /** For `tls.createServer` and what is built on it. Call {@link NodeTls.admit} for each connection. */
  readonly server: TlsOptions
  /**
   * For `tls.connect` and what is built on it. A peer that is refused fails the handshake with an ERR_DENIED.
   * @param nodeId - uuid of the only node that may answer; default: any node of the cluster
   */
  client(nodeId?: string): ConnectionOptions
  /**
   * Who has connected to a listener. A connection that is refused is destroyed.
   * @throws SparkError ERR_DENIED with the reason
   */
  admit(socket: TLSSocket): Peer
}

/** How long a peer may take for its handshake. */
export const handshakeTimeoutMs = 5000

/**
 * Options for mutual TLS 1.3 with the nodes of a cluster. Sessions are never resumed, so each connection has new keys and
 * the certificate of its peer is checked again.
 * @example
 * const secure = tlsOptions(credentials, revocations)
 * createServer(secure.server, socket => console.log(secure.admit(socket).nodeId))
 * connect({ host, port, ...secure.client(nodeId) })
 */
export function tlsOptions(credentials: NodeCredentials, policy: PeerPolicy): NodeTls {
  const common = {
    ca: [credentials.ca],
    cert: credentials.certificate,
    key: credentials.privateKey,
    minVersion: 'TLSv1.3' as const,
    maxVersion: 'TLSv1.3' as const,
    rejectUnauthorized: true,
    secureOptions: constants.SSL_OP_NO_TICKET,
  }
  const refusal = (peer: Peer | null, expected?: string): SparkError | undefined => {
    const reason = reasonAgainst(credentials, policy, peer, expected)
    return reason === null ? undefined : new SparkError('ERR_DENIED', `the peer was refused: ${reason}`)
  }
  return {
    server: { ...common, requestCert: true, handshakeTimeout: handshakeTimeoutMs },
    client: nodeId => ({
      ...common,
      checkServerIdentity: (_host, certificate) => refusal(peerOf(certificate), nodeId),
    }),
    admit(socket) {
      const peer = peerOf(socket.getPeerCertificate())
      const error = socket.authorized ? refusal(peer) : refusal(null)
      if (!error && peer) return peer
      socket.destroy(error)
      throw error!
    },
  }
}

function reasonAgainst(
  { clusterId }: NodeCredentials,
  policy: PeerPolicy,
  peer: Peer | null,
  expected?: string,
): string | null {
  if (!peer) return 'its certificate names no node'
  if (peer.clusterId !== clusterId) return `it is of cluster ${peer.clusterId}, not of ${clusterId}`
  if (expected !== undefined && peer.nodeId !== expected) return `it is node ${peer.nodeId}, not ${expected}`
  return policy.accepts(peer)
}
