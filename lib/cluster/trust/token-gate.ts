// token-gate.ts: what each step of a tenant asks before it begins, and what ends when its token does.
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { AuditEvent } from './audit-record.js'
import type { NodeCredentials } from './credentials.js'
import { RateLimits } from './rate-limits.js'
import { type Refusal, type RefusalKind, Refusals } from './refusals.js'
import type { Revocations } from './revocations.js'
import type { TokenClaims, TokenScope } from './token-claims.js'
import { jtiOf, TokenVerifier } from './token-verifier.js'

/** What a {@link TokenGate} needs. */
export interface TokenGateOptions {
  /** The cluster whose tokens count. */
  readonly credentials: Pick<NodeCredentials, 'clusterId' | 'ca'>
  /** What counts no more. */
  readonly revocations: Revocations
  /** How often an address, a peer and a token may ask. Default: {@link RateLimits} as they are. */
  readonly limits?: RateLimits
  /** Counts what is refused, and records it. Default: counts of its own. */
  readonly refusals?: Refusals
  /** Gets each use of a token, and memory that could not be zeroed, to record it. */
  onEvent?(event: AuditEvent): void
  /** Ends a tenant: its memory is to be zeroed and freed. It is called in the tick of the revocation, after the signal. */
  onRevoked?(claims: TokenClaims): void
}

/** What all uses of a token have in common. */
interface Tenant {
  readonly claims: TokenClaims
  readonly abort: AbortController
  readonly timer: NodeJS.Timeout
  readonly zeroers: Set<() => void>
  /** Bytes that are allocated now. */
  allocated: number
}

/** What the holder of a token may do. Every method throws ERR_DENIED once the token was revoked or has expired. */
export class Grant {
  /** What the token says. */
  readonly claims: TokenClaims
  readonly #tenant: Tenant
  readonly #refuse: (kind: RefusalKind, reason: string) => SparkError

  /** @internal */
  constructor(tenant: Tenant, refuse: (kind: RefusalKind, reason: string) => SparkError) {
    this.claims = tenant.claims
    this.#tenant = tenant
    this.#refuse = refuse
  }

  /** Aborts in the tick in which the token is revoked, and when it expires: work that runs has to end. */
  get signal(): AbortSignal {
    return this.#tenant.abort.signal
  }

  /** Bytes that all uses of this token have allocated now. */
  get allocatedBytes(): number {
    return this.#tenant.allocated
  }

  /**
   * Asks whether a step may begin.
   * @param gpu - id of the GPU that it runs on
   * @throws SparkError ERR_DENIED
   */
  step(scope: TokenScope, gpu?: string): void {
    const { scopes, gpus, jti } = this.claims
    if (this.signal.aborted) throw this.#refuse('token', `token ${jti} ended: ${this.signal.reason?.message}`)
    if (!scopes.includes(scope)) throw this.#refuse('scope', `token ${jti} does not allow ${scope}`)
    if (gpu !== undefined && gpus !== null && !gpus.includes(gpu))
      throw this.#refuse('scope', `token ${jti} does not allow GPU ${gpu}`)
  }

  /**
   * Asks whether memory may be allocated, and counts it.
   * @param zero - zeroes the memory; it is called when the token ends before {@link Grant.allocate}'s result was called
   * @returns a function for when the memory is freed
   * @throws SparkError ERR_DENIED, ERR_ARGUMENT
   */
  allocate(bytes: number, gpu: string | undefined, zero: () => void): () => void {
    expectInteger('bytes', bytes, 0)
    this.step('gpu:allocate', gpu)
    const tenant = this.#tenant
    const { memoryBytes, jti } = this.claims
    if (memoryBytes !== null && tenant.allocated + bytes > memoryBytes) {
      const has = `has ${tenant.allocated} of ${memoryBytes} bytes`
      throw this.#refuse('scope', `token ${jti} ${has} and may not allocate ${bytes} more`)
    }
    tenant.allocated += bytes
    // Two allocations may share a function.
    const once = (): void => zero()
    tenant.zeroers.add(once)
    return () => {
      if (tenant.zeroers.delete(once)) tenant.allocated -= bytes
    }
  }
}

/**
 * Lets tenants in by their tokens, and ends them.
 * @example
 * const gate = new TokenGate({ credentials, revocations, onRevoked: ({ jti }) => pool.zero(jti) })
 * const grant = await gate.open(token, thumbprint, address)
 * for (const layer of layers) { grant.step('gpu:compute', gpu); await layer.run({ signal: grant.signal }) }
 */
export class TokenGate implements Disposable {
  /** Counts of what was refused. */
  readonly refusals: Refusals
  readonly #options: TokenGateOptions
  readonly #verifier: TokenVerifier
  readonly #limits: RateLimits
  readonly #tenants = new Map<string, Tenant>()
  readonly #unsubscribe: () => void

  constructor(options: TokenGateOptions) {
    this.#options = options
    this.#verifier = new TokenVerifier(options.credentials, options.revocations)
    this.#limits = options.limits ?? new RateLimits()
    this.refusals = options.refusals ?? new Refusals()
    this.#unsubscribe = options.revocations.onAdded(({ tokens, nodes }) => {
      for (const [jti, tenant] of this.#tenants) {
        if (jti in tokens) this.#end(tenant, 'it was revoked')
        else if (nodes.includes(tenant.claims.subject)) this.#end(tenant, 'its node was revoked')
      }
    })
  }

  /** Tokens that are in use. */
  get tenants(): readonly TokenClaims[] {
    return [...this.#tenants.values()].map(({ claims }) => claims)
  }

  /**
   * Checks a token and lets its holder in.
   * @param certificate - SHA-256 of the certificate of the connection in base64url: {@link thumbprintOf}
   * @param address - of the connection, for the records
   * @throws SparkError ERR_DENIED with the reason, ERR_BUSY when the token is used too often
   */
  async open(token: unknown, certificate: string, address = ''): Promise<Grant> {
    let claims: TokenClaims
    try {
      claims = await this.#verifier.verify(token, certificate)
    } catch (error) {
      const jti = jtiOf(token)
      await this.#refuse(
        { kind: 'token', reason: (error as Error).message, ...(jti !== undefined && { jti }) },
        address,
      )
      throw error
    }
    const { jti } = claims
    const taken = await this.#limits.take('token', jti)
    if (!taken.isAllowed) {
      const reason = `token ${jti} is used too often: try again in ${taken.retryMs} ms`
      this.refusals.add({ kind: 'too many', reason, address, jti }, taken.isFirstRefusal)
      throw new SparkError('ERR_BUSY', reason)
    }
    // It may have been revoked while it was counted.
    if (this.#options.revocations.isTokenRevoked(jti)) return this.open(token, certificate, address)
    const tenant = this.#tenants.get(jti) ?? this.#begin(claims)
    this.#options.onEvent?.({ actor: claims.subject, op: 'token-use', jti, result: 'ok' })
    return new Grant(tenant, (kind, reason) => {
      this.refusals.add({ kind, reason, address, jti })
      return new SparkError('ERR_DENIED', reason)
    })
  }

  /** Ends all tenants. */
  [Symbol.dispose](): void {
    this.#unsubscribe()
    for (const tenant of [...this.#tenants.values()]) this.#end(tenant, 'the node stops')
  }

  /** Counts a refusal. Of an address that has many in a short time only the first that is too many is recorded. */
  async #refuse(refusal: Omit<Refusal, 'address'>, address: string): Promise<void> {
    const { isAllowed, isFirstRefusal } = await this.#limits.take('address', address)
    this.refusals.add({ ...refusal, address }, isAllowed || isFirstRefusal)
  }

  #begin(claims: TokenClaims): Tenant {
    const left = Math.max(0, claims.expires * 1000 - Date.now())
    const tenant: Tenant = {
      claims,
      abort: new AbortController(),
      timer: setTimeout(() => this.#end(tenant, 'it has expired'), left).unref(),
      zeroers: new Set(),
      allocated: 0,
    }
    this.#tenants.set(claims.jti, tenant)
    return tenant
  }

  /** Stops what runs first, then zeroes what it had. */
  #end(tenant: Tenant, reason: string): void {
    const { claims, abort, timer, zeroers } = tenant
    this.#tenants.delete(claims.jti)
    clearTimeout(timer)
    abort.abort(new SparkError('ERR_DENIED', `token ${claims.jti} ended: ${reason}`))
    for (const zero of zeroers) this.#zero(claims, zero)
    zeroers.clear()
    tenant.allocated = 0
    this.#zero(claims, () => this.#options.onRevoked?.(claims))
  }

  /** A failure must not keep other memory from being zeroed, nor other tenants from ending. */
  #zero({ subject, jti }: TokenClaims, zero: () => void): void {
    try {
      zero()
    } catch (error) {
      const result = `memory was not zeroed: ${(error as Error).message}`
      this.#options.onEvent?.({ actor: subject, op: 'free', jti, result })
    }
  }
}
