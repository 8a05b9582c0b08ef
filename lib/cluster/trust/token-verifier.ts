// token-verifier.ts: checks tokens: signature, certificate of the signer, time, binding, revocation.
import { createHash, X509Certificate } from 'node:crypto'
import { SparkError } from '../../core/errors.js'
import { tokenSignerUri } from './authority.js'
import type { NodeCredentials } from './credentials.js'
import { isUuid } from './node-identity.js'
import type { Revocations } from './revocations.js'
import { maxTokenMinutes, type TokenClaims, type TokenScope, tokenScopes } from './token-claims.js'
import { clusterUri } from './token-issuer.js'

/** Characters of a token at most. */
const maxTokenLength = 16_384
/** Tokens that are remembered at most. */
const maxKnown = 4096
/** How much clocks of nodes may differ. */
const clockToleranceSeconds = 30

interface Known {
  /** SHA-256 of the token. */
  readonly hash: string
  readonly claims: TokenClaims
}

/** Checks tokens of a cluster. One that was good is remembered by its jti, so that it is checked quickly from then on. */
export class TokenVerifier {
  readonly #clusterId: string
  readonly #ca: X509Certificate
  readonly #revocations: Revocations
  readonly #known = new Map<string, Known>()

  constructor({ clusterId, ca }: Pick<NodeCredentials, 'clusterId' | 'ca'>, revocations: Revocations) {
    this.#clusterId = clusterId
    this.#ca = new X509Certificate(ca)
    this.#revocations = revocations
  }

  /**
   * Checks a token.
   * @param certificate - SHA-256 of the certificate of the connection that it came on, in base64url
   * @throws SparkError ERR_DENIED with the reason
   */
  async verify(token: unknown, certificate: string): Promise<TokenClaims> {
    if (typeof token !== 'string' || token.length > maxTokenLength) throw denied('it is no token')
    const hash = createHash('sha256').update(token).digest('base64url')
    const claims = this.#remembered(token, hash) ?? (await this.#check(token))
    const known = this.#known.get(claims.jti)
    if (known && known.hash !== hash) throw denied('its id is that of another token', claims.jti)
    const reason = this.#reasonAgainst(claims, certificate)
    if (reason !== null) throw denied(reason, claims.jti)
    this.#remember(hash, claims)
    return claims
  }

  #reasonAgainst(
    { jti, subject, expires, certificate: bound }: TokenClaims,
    certificate: string,
  ): string | null {
    if (expires * 1000 <= Date.now()) return 'it has expired'
    if (this.#revocations.isTokenRevoked(jti)) return 'it was revoked'
    if (this.#revocations.isNodeRevoked(subject)) return `node ${subject} was revoked`
    return bound === certificate ? null : 'it is bound to another certificate: it was replayed'
  }

  #remembered(token: string, hash: string): TokenClaims | undefined {
    const jti = jtiOf(token)
    const known = jti === undefined ? undefined : this.#known.get(jti)
    return known?.hash === hash ? known.claims : undefined
  }

  #remember(hash: string, claims: TokenClaims): void {
    this.#known.delete(claims.jti)
    this.#known.set(claims.jti, { hash, claims })
    const [oldest] = this.#known.keys()
    if (this.#known.size > maxKnown) this.#known.delete(oldest!)
  }

  async #check(token: string): Promise<TokenClaims> {
    const { jwtVerify, errors } = await import('jose')
    const uri = clusterUri(this.#clusterId)
    try {
      const { payload } = await jwtVerify(token, header => this.#signerOf(header.x5c).publicKey, {
        algorithms: ['EdDSA'],
        typ: 'at+jwt',
        issuer: uri,
        audience: uri,
        requiredClaims: ['jti', 'sub', 'exp', 'iat', 'scope', 'cnf'],
        clockTolerance: clockToleranceSeconds,
        maxTokenAge: `${maxTokenMinutes}m`,
      })
      return claimsOf(payload)
    } catch (error) {
      if (error instanceof SparkError) throw error
      const reason = error instanceof errors.JWTExpired ? 'it has expired' : (error as Error).message
      throw denied(reason)
    }
  }

  /** The certificate of the key that has signed, if the CA gave it for tokens. */
  #signerOf(x5c: unknown): X509Certificate {
    const [coded] = Array.isArray(x5c) ? x5c : []
    let signer: X509Certificate | undefined
    try {
      signer = new X509Certificate(Buffer.from(coded, 'base64'))
    } catch {}
    const now = Date.now()
    const isGood =
      signer?.subjectAltName === `URI:${tokenSignerUri(this.#clusterId)}` &&
      Date.parse(signer.validFrom) <= now &&
      now < Date.parse(signer.validTo) &&
      signer.verify(this.#ca.publicKey)
    if (!isGood) throw denied('it is not signed by this cluster')
    return signer!
  }
}

const denied = (reason: string, jti?: string): SparkError =>
  new SparkError('ERR_DENIED', `the token${jti === undefined ? '' : ` ${jti}`} was refused: ${reason}`)

/** The id in a token that was not checked. */
export function jtiOf(token: unknown): string | undefined {
  try {
    const [, payload = ''] = String(token).slice(0, maxTokenLength).split('.')
    const { jti } = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'))
    return isUuid(jti) ? jti : undefined
  } catch {
    return undefined
  }
}

function claimsOf(payload: Readonly<Record<string, unknown>>): TokenClaims {
  const { jti, sub, exp, iat, scope, gpu, mem, cnf } = payload
  const scopes = String(scope).split(' ') as TokenScope[]
  const certificate = (cnf as Record<string, unknown> | null)?.['x5t#S256']
  const isValid =
    isUuid(jti) &&
    typeof certificate === 'string' &&
    Number(exp) - Number(iat) <= maxTokenMinutes * 60 &&
    scopes.every(each => tokenScopes.includes(each)) &&
    (gpu === undefined || (Array.isArray(gpu) && gpu.every(each => typeof each === 'string'))) &&
    (mem === undefined || Number.isSafeInteger(mem))
  if (!isValid) throw denied('its claims are not those of a token of a cluster')
  return {
    jti,
    subject: String(sub),
    scopes,
    gpus: (gpu as string[] | undefined) ?? null,
    memoryBytes: (mem as number | undefined) ?? null,
    expires: exp as number,
    certificate,
  }
}
