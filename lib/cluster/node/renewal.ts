// renewal.ts: where a node gets its next certificate: from the CA, which is here or on another node.
import { debug } from '../../core/log.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { ClusterAuthority } from '../trust/authority.js'
import type { NodeCredentials } from '../trust/credentials.js'
import { renewCertificate } from '../trust/join.js'
import type { NodeIdentity } from '../trust/node-identity.js'

/** How often it is asked whether the certificate is due. */
const checkMs = 3_600_000

/** Calls `renew` now and every hour, until the signal aborts. */
export function renewWhenDue(renew: () => Promise<void>, signal: AbortSignal): void {
  const check = (): void => {
    renew().catch(error => debug(`renewal: ${(error as Error).message}`))
  }
  const timer = setInterval(check, checkMs).unref()
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  check()
}

/**
 * The next credentials of a node; undefined while the node with the CA cannot be asked.
 * @param authority - where the CA is here
 * @param links - to other nodes, of which the one with the CA answers `renew`
 */
export async function nextCredentials(
  identity: NodeIdentity,
  credentials: NodeCredentials,
  authority: ClusterAuthority | undefined,
  links: readonly Pick<FrameStream, 'call' | 'peer'>[],
): Promise<NodeCredentials | undefined> {
  if (authority) return authority.certify(identity)
  for (const link of links) {
    try {
      return await renewCertificate(identity, credentials, request => link.call('renew', request))
    } catch (error) {
      debug(`the certificate was not renewed by ${link.peer.nodeId}: ${(error as Error).message}`)
    }
  }
  return undefined
}
