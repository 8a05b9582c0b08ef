// nats-address.ts: where the servers are, without the packages that connect to them.
import type { NodeCredentials, PeerPolicy } from '../trust/credentials.js'

/** Where the servers are, and who we are. */
export interface NatsAddress {
  /** Addresses as host:port. */
  readonly servers: readonly string[]
  /** Absent: without TLS, which only servers on this machine may be spoken to. */
  readonly credentials?: NodeCredentials
  /** Which nodes may answer: by default all with a certificate of the cluster. */
  readonly policy?: PeerPolicy
}
