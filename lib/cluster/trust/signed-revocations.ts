// signed-revocations.ts: lists of what is revoked, signed with the key of the CA: any node may hand them on, none may make one.
import { sign, verify, X509Certificate } from 'node:crypto'
import { SparkError } from '../../core/errors.js'
import type { Revocations, Revoked } from './revocations.js'

/** A list of what is revoked, with the signature of the CA. */
export interface SignedRevocations {
  /** A {@link Revoked} in JSON. */
  readonly text: string
  /** ECDSA with SHA-256 over the text, base64url. */
  readonly signature: string
}

/** What is signed begins with this, so that no other signature of the CA counts here. */
const context = 'dgx-spark revocations\n'

/** Signs a list with the key of the CA (PEM). */
export function signRevocations(list: Required<Revoked>, privateKey: string): SignedRevocations {
  const text = JSON.stringify(list)
  return { text, signature: sign('sha256', Buffer.from(context + text), privateKey).toString('base64url') }
}

/**
 * Reads a list that a peer hands on.
 * @param ca - certificate of the CA, PEM
 * @throws SparkError ERR_DENIED when the CA has not signed it
 */
export function openRevocations(ca: string, value: unknown): Revoked {
  const { text, signature } = (value ?? {}) as Partial<SignedRevocations>
  const isSigned =
    typeof text === 'string' &&
    typeof signature === 'string' &&
    verify(
      'sha256',
      Buffer.from(context + text),
      new X509Certificate(ca).publicKey,
      Buffer.from(signature, 'base64url'),
    )
  if (!isSigned) throw new SparkError('ERR_DENIED', 'the list of what is revoked is not signed by the CA')
  return JSON.parse(text) as Revoked
}

/** The latest list that a node knows, which it hands to every node that it meets. */
export class RevocationNotes {
  readonly #revocations: Revocations
  readonly #ca: string
  readonly #sign: ((list: Required<Revoked>) => SignedRevocations) | undefined
  #latest: SignedRevocations | null = null

  /** @param sign - on the node with the CA */
  constructor(
    revocations: Revocations,
    ca: string,
    sign: ((list: Required<Revoked>) => SignedRevocations) | undefined,
  ) {
    this.#revocations = revocations
    this.#ca = ca
    this.#sign = sign
  }

  /** The list to hand on; null where there is none yet. */
  get current(): SignedRevocations | null {
    return this.#sign ? this.#sign(this.#revocations.list()) : this.#latest
  }

  /**
   * Takes a list of another node; null is none.
   * @throws SparkError ERR_DENIED, ERR_FORMAT, ERR_IO
   */
  async take(value: unknown): Promise<void> {
    if (value === null) return
    const revoked = openRevocations(this.#ca, value)
    const list = value as SignedRevocations
    if (!this.#latest || hasAll(revoked, JSON.parse(this.#latest.text))) this.#latest = list
    await this.#revocations.add(revoked)
  }
}

/** Whether a list is as late as another: it has all of it but tokens that have ended. */
function hasAll(list: Revoked, { serials = [], nodes = [], tokens = {} }: Revoked): boolean {
  const known = new Set([...(list.serials ?? []), ...(list.nodes ?? []), ...Object.keys(list.tokens ?? {})])
  const now = Date.now() / 1000
  const living = Object.keys(tokens).filter(jti => tokens[jti]! > now)
  return [...serials, ...nodes, ...living].every(each => known.has(each))
}
