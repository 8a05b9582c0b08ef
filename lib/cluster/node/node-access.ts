// node-access.ts: what nodes and tenants may ask of a node: how often, and with which token. Who is refused is counted and
// recorded.
import { expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { FrameStream } from '../links/frame-stream.js'
import { RateLimits } from '../trust/rate-limits.js'
import { eventOf, type Refusal, type RefusalKind, Refusals } from '../trust/refusals.js'
import { type TokenScope, tokenScopes } from '../trust/token-claims.js'
import { type Grant, TokenGate, type TokenGateOptions } from '../trust/token-gate.js'
import type { NodeAudit } from './node-audit.js'

/** What a {@link NodeAccess} needs. */
export interface NodeAccessOptions extends Pick<TokenGateOptions, 'credentials' | 'revocations'> {
  readonly audit: NodeAudit
  /** Told of each refusal that is recorded. */
  onRefused(refusal: Refusal): void
}

/** Errors that end a link because of what its peer did. */
const wrongs: Readonly<Record<string, RefusalKind>> = { ERR_FORMAT: 'frame', ERR_BUSY: 'timeout' }

/** Lets peers in, and tells what they did wrong. */
export class NodeAccess {
  /** Counts of what was refused on this node. */
  readonly refusals: Refusals
  /** Checks tokens. */
  readonly gate: TokenGate
  readonly #limits = new RateLimits()

  constructor({ credentials, revocations, audit, onRefused }: NodeAccessOptions) {
    this.refusals = new Refusals(refusal => {
      onRefused(refusal)
      void audit.add(eventOf(refusal))
    })
    this.gate = new TokenGate({
      ...{ credentials, revocations, limits: this.#limits, refusals: this.refusals },
      onEvent: event => void audit.add(event),
    })
  }

  /**
   * Checks the token of a question that came over a link.
   * @throws SparkError ERR_DENIED with the reason, ERR_BUSY when it is used too often
   */
  grant({ peer, addresses }: FrameStream, token: unknown): Promise<Grant> {
    return this.gate.open(token as string, peer.thumbprint, addresses.remote)
  }

  /** A peer is not welcome any more, or lied. */
  refusePeer({ peer: { nodeId }, addresses }: FrameStream, reason: string): void {
    this.refusals.add({ kind: 'peer', reason, address: addresses.remote, nodeId })
  }

  /** Counts what the peer of a link asks and does wrong; answers whether a token allows something. */
  guard(link: FrameStream): void {
    const { nodeId } = link.peer
    const refuse = (kind: RefusalKind, reason: string, isRecorded = true): void =>
      this.refusals.add({ kind, reason, address: link.addresses.remote, nodeId }, isRecorded)
    link.limitCalls(async () => {
      const { isAllowed, isFirstRefusal, retryMs } = await this.#limits.take('peer', nodeId)
      if (isAllowed) return
      const reason = `node ${nodeId} asks too often: try again in ${retryMs} ms`
      refuse('too many', reason, isFirstRefusal)
      throw new SparkError('ERR_BUSY', reason)
    })
    link.handle('token', async question => {
      const { token, scope, gpu } = (question ?? {}) as { token?: unknown; scope?: TokenScope; gpu?: string }
      const grant = await this.grant(link, token)
      if (scope !== undefined) {
        expectOneOf('scope', scope, tokenScopes)
        grant.step(scope, gpu)
      }
      const { jti, scopes, expires } = grant.claims
      return { jti, scopes, expires }
    })
    void link.closed.then(({ error }) => {
      const kind = error instanceof SparkError ? wrongs[error.code] : undefined
      if (kind) refuse(kind, error!.message)
    })
  }
}
