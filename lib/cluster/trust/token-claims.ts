// token-claims.ts: what a token allows, and for whom.
import { createHash, X509Certificate } from 'node:crypto'
import { argumentError, expectInteger, expectOneOf, expectText } from '../../core/checks.js'

/** What a token may allow. */
export const tokenScopes = ['gpu:allocate', 'gpu:compute', 'model:load', 'admin'] as const

/** What a token may allow. */
export type TokenScope = (typeof tokenScopes)[number]

/** Tokens live no longer than this. */
export const maxTokenMinutes = 15

/** What a token allows. */
export interface TokenClaims {
  /** Its id, a uuid. */
  readonly jti: string
  /** Who it is for: uuid of a node, or a name. */
  readonly subject: string
  /** What its holder may do. */
  readonly scopes: readonly TokenScope[]
  /** Ids of GPUs; null: all of them. */
  readonly gpus: readonly string[] | null
  /** Bytes that may be allocated at a time; null: no limit. */
  readonly memoryBytes: number | null
  /** Seconds since 1970. */
  readonly expires: number
  /** SHA-256 of the client's certificate in base64url: on other connections the token is refused. */
  readonly certificate: string
}

/** What a token is made from. */
export interface TokenRequest {
  /** Who it is for: uuid of a node, or a name. */
  readonly subject: string
  /** What its holder may do. */
  readonly scopes: readonly TokenScope[]
  /** Default: all GPUs. */
  readonly gpus?: readonly string[]
  /** Default: no limit. */
  readonly memoryBytes?: number
  /** 1 to 15. Default: 15. */
  readonly minutes?: number
  /** SHA-256 of the client's certificate in base64url, as {@link thumbprintOf} makes it. */
  readonly certificate: string
}

/** SHA-256 of a certificate (PEM or DER) in base64url: `x5t#S256`. */
export const thumbprintOf = (certificate: string | Uint8Array): string =>
  createHash('sha256').update(new X509Certificate(certificate).raw).digest('base64url')

const maxGpus = 256

/** Checks a request for a token. @throws SparkError ERR_ARGUMENT */
export function expectTokenRequest(request: TokenRequest): void {
  const { subject, scopes, gpus, memoryBytes, minutes, certificate } = request
  expectText('subject', subject)
  if (subject.length > 200) throw argumentError('subject', 'a string of at most 200 characters', subject)
  if (!Array.isArray(scopes) || scopes.length === 0)
    throw argumentError('scopes', `a list of ${tokenScopes.join(', ')}`, scopes)
  for (const scope of scopes) expectOneOf('scopes', scope, tokenScopes)
  const areNames = gpus === undefined || (Array.isArray(gpus) && gpus.length > 0 && gpus.length <= maxGpus)
  if (!areNames) throw argumentError('gpus', `a list of 1 to ${maxGpus} ids`, gpus)
  for (const gpu of gpus ?? []) {
    expectText('gpus', gpu)
    if (gpu.length > 200) throw argumentError('gpus', 'ids of at most 200 characters', gpu)
  }
  if (memoryBytes !== undefined) expectInteger('memoryBytes', memoryBytes, 0)
  if (minutes !== undefined) expectInteger('minutes', minutes, 1, maxTokenMinutes)
  if (typeof certificate !== 'string' || !/^[\w-]{43}$/.test(certificate))
    throw argumentError('certificate', 'the SHA-256 of a certificate in base64url', certificate)
}
