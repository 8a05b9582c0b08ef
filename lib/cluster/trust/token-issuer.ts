// token-issuer.ts: makes, lists and revokes tokens, on the node that the CA is on.
import { createPrivateKey, generateKeyPairSync, randomUUID, X509Certificate } from 'node:crypto'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { ClusterAuthority } from './authority.js'
import { readSecret, withLock, writeSecret } from './home.js'
import { isUuid } from './node-identity.js'
import { expectTokenRequest, maxTokenMinutes, type TokenClaims, type TokenRequest } from './token-claims.js'

const [signerFile, listFile] = ['token-signer.json', 'tokens.json']

/** A token that was made. */
export interface ListedToken extends TokenClaims {
  /** Whether it counts no more. */
  readonly isRevoked: boolean
}

/** The key that signs tokens, with a certificate of the CA: any node can check it. */
interface Signer {
  /** PEM, PKCS #8, Ed25519. */
  readonly privateKey: string
  /** PEM. */
  readonly certificate: string
}

/** A token that was made. */
export interface MadeToken extends TokenClaims {
  /** The token: a JWT. It is shown once; only its claims are kept. */
  readonly token: string
}

/** The token's issuer and audience: the cluster. */
export const clusterUri = (clusterId: string): string => `spiffe://${clusterId}`

/**
 * Makes tokens: JWTs (RFC 9068) signed with EdDSA, bound to a client's certificate (RFC 8705), which end after 15 minutes at most.
 * @example
 * const issuer = new TokenIssuer(authority)
 * const { token, jti } = await issuer.create({ subject: 'ada', scopes: ['gpu:compute'], certificate: thumbprintOf(pem) })
 * await issuer.revoke(jti)
 */
export class TokenIssuer {
  readonly #authority: ClusterAuthority

  /** @param authority - the CA of the cluster */
  constructor(authority: ClusterAuthority) {
    this.#authority = authority
  }

  /** Makes a token. @throws SparkError ERR_ARGUMENT, ERR_IO */
  async create(request: TokenRequest): Promise<MadeToken> {
    expectTokenRequest(request)
    const { subject, scopes, gpus, memoryBytes, minutes = maxTokenMinutes, certificate } = request
    const { SignJWT } = await import('jose')
    const signer = await this.#signer()
    const [jti, now] = [randomUUID(), Math.floor(Date.now() / 1000)]
    const expires = now + minutes * 60
    const uri = clusterUri(this.#authority.clusterId)
    const der = new X509Certificate(signer.certificate).raw.toString('base64')
    const payload = {
      client_id: subject,
      scope: [...new Set(scopes)].join(' '),
      cnf: { 'x5t#S256': certificate },
      ...(gpus && { gpu: gpus }),
      ...(memoryBytes !== undefined && { mem: memoryBytes }),
    }
    const token = await new SignJWT(payload)
      .setProtectedHeader({ alg: 'EdDSA', typ: 'at+jwt', x5c: [der] })
      .setIssuer(uri)
      .setAudience(uri)
      .setSubject(subject)
      .setJti(jti)
      .setIssuedAt(now)
      .setExpirationTime(expires)
      .sign(createPrivateKey(signer.privateKey))
    const claims: TokenClaims = {
      jti,
      subject,
      scopes,
      gpus: gpus ?? null,
      memoryBytes: memoryBytes ?? null,
      expires,
      certificate,
    }
    const { folder } = this.#authority
    await withLock(folder, async () => {
      await writeSecret(path.join(folder, listFile), [...(await this.#kept()), claims])
    })
    return { ...claims, token }
  }

  /** Tokens that were made and have not ended, oldest first, and whether each was revoked. */
  async list(): Promise<ListedToken[]> {
    const { revocations } = this.#authority
    return (await this.#kept()).map(claims => ({
      ...claims,
      isRevoked: revocations.isTokenRevoked(claims.jti),
    }))
  }

  /**
   * Revokes a token: no step of it begins from now on.
   * @throws SparkError ERR_ARGUMENT for what is no id of a token; ERR_DENIED when no token that was made here has it, or it
   * has ended
   */
  async revoke(jti: string): Promise<void> {
    if (!isUuid(jti))
      throw new SparkError('ERR_ARGUMENT', `'${jti}' is no id of a token: dgx-spark token list shows them`)
    const found = (await this.#kept()).find(claims => claims.jti === jti)
    if (!found) throw new SparkError('ERR_DENIED', `there is no token ${jti}, or it has ended`)
    await this.#authority.revocations.add({ tokens: { [jti]: found.expires } })
  }

  async #kept(): Promise<TokenClaims[]> {
    const file = path.join(this.#authority.folder, listFile)
    const list = ((await readSecret(file)) ?? []) as TokenClaims[]
    return list.filter(({ expires }) => expires * 1000 > Date.now())
  }

  /** The key for tokens; a new one is made at half of the life of its certificate. */
  async #signer(): Promise<Signer> {
    const { folder } = this.#authority
    const file = path.join(folder, signerFile)
    const isFresh = (signer: Signer | undefined): boolean => {
      if (!signer) return false
      const { validFrom, validTo } = new X509Certificate(signer.certificate)
      return Date.now() < (Date.parse(validFrom) + Date.parse(validTo)) / 2
    }
    const kept = (await readSecret(file)) as Signer | undefined
    if (isFresh(kept)) return kept!
    return withLock(folder, async () => {
      const meanwhile = (await readSecret(file)) as Signer | undefined
      if (isFresh(meanwhile)) return meanwhile!
      const { privateKey, publicKey } = generateKeyPairSync('ed25519')
      const made: Signer = {
        privateKey: privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
        certificate: await this.#authority.certifyTokenSigner(
          publicKey.export({ format: 'der', type: 'spki' }),
        ),
      }
      await writeSecret(file, made)
      return made
    })
  }
}
