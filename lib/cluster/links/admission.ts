// admission.ts: which peers are welcome, and what the others hear.
import { SparkError } from '../../core/errors.js'
import type { NodeCredentials, Peer, PeerPolicy } from '../trust/credentials.js'
import type { Pipe } from './pipe.js'
import { encodeControl, recordKinds } from './record.js'

/** @throws SparkError ERR_DENIED for a peer of another cluster, another node, or one that the policy refuses */
export function expectWelcome(peer: Peer, own: NodeCredentials, policy: PeerPolicy, expected?: string): void {
  let reason = policy.accepts(peer)
  if (peer.clusterId !== own.clusterId) reason = `it is of cluster ${peer.clusterId}, not of ${own.clusterId}`
  else if (expected !== undefined && peer.nodeId !== expected)
    reason = `it is node ${peer.nodeId}, not ${expected}`
  if (reason !== null) throw new SparkError('ERR_DENIED', `the peer was refused: ${reason}`)
}

/** Tells a peer why it is refused, and ends the connection. */
export function refuse({ duplex }: Pipe, error: unknown): void {
  const reason = error instanceof SparkError ? error.message : 'the first words could not be read'
  duplex.end(encodeControl(recordKinds.close, 0, 0, Buffer.from(reason.slice(0, 500))))
  setTimeout(() => duplex.destroy(), 1000).unref()
}
