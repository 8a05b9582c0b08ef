// refusals.ts: why connections and requests are refused, counted and handed to whoever records them.
import type { TLSSocket } from 'node:tls'
import type { AuditEvent } from './audit-record.js'

/** Why something was refused. */
export type RefusalKind =
  | 'tls version'
  | 'no certificate'
  | 'foreign certificate'
  | 'expired certificate'
  | 'peer'
  | 'handshake'
  | 'timeout'
  | 'too many'
  | 'frame'
  | 'code'
  | 'token'
  | 'scope'

/** Something that was refused. */
export interface Refusal {
  /** Why, for programs. */
  readonly kind: RefusalKind
  /** What happened, for people. */
  readonly reason: string
  /** IP address; empty where there is none. */
  readonly address: string
  /** Uuid of the node that asked, where it is known. */
  readonly nodeId?: string
  /** Id of the token, where there was one. */
  readonly jti?: string
}

/** A refusal as the audit log records it. */
export const eventOf = ({ kind, reason, address, nodeId, jti }: Refusal): AuditEvent => ({
  actor: nodeId ?? (address === '' ? 'unknown' : address),
  op: 'refusal',
  ...(jti !== undefined && { jti }),
  result: `${kind}: ${reason}`,
})

/**
 * Counts refusals by kind and calls whoever records them.
 * @example
 * const refusals = new Refusals(({ kind, reason, address }) => console.log(kind, reason, address))
 * const listener = await transport.listen(credentials, revocations, { refusals })
 */
export class Refusals {
  readonly #counts = new Map<RefusalKind, number>()
  readonly #record: (refusal: Refusal) => void

  /** @param record - gets each refusal; of many that follow each other from one address for being too many only the first */
  constructor(record: (refusal: Refusal) => void = () => {}) {
    this.#record = record
  }

  /** How often something was refused, by kind. */
  get counts(): Readonly<Partial<Record<RefusalKind, number>>> {
    return Object.fromEntries(this.#counts)
  }

  /** Counts a refusal, and records it unless told otherwise. */
  add(refusal: Refusal, isRecorded = true): void {
    this.#counts.set(refusal.kind, (this.#counts.get(refusal.kind) ?? 0) + 1)
    if (isRecorded) this.#record(refusal)
  }
}

type Reason = Pick<Refusal, 'kind' | 'reason'>

/** Which refusal a failed handshake at a listener is, by what Node.js's TLS tells. */
export function handshakeRefusal(code: string, message: string): Reason {
  if (/UNSUPPORTED_PROTOCOL|VERSION/.test(code))
    return { kind: 'tls version', reason: 'the client does not speak TLS 1.3' }
  if (code === 'ERR_TLS_HANDSHAKE_TIMEOUT')
    return { kind: 'timeout', reason: 'the handshake was not finished in time' }
  return { kind: 'handshake', reason: `the handshake failed: ${code || message}` }
}

/** Why the certificate of a client is refused, or null when its chain leads to the CA. */
export function chainRefusal(socket: TLSSocket): Reason | null {
  if (socket.authorized) return null
  if (Object.keys(socket.getPeerCertificate()).length === 0)
    return { kind: 'no certificate', reason: 'the client has no certificate' }
  const error = String(socket.authorizationError)
  if (error === 'CERT_HAS_EXPIRED')
    return { kind: 'expired certificate', reason: 'the certificate has expired' }
  return { kind: 'foreign certificate', reason: `the certificate is not of this cluster (${error})` }
}
