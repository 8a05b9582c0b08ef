// invitations.ts: one-time codes with which a node joins a cluster.
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import path from 'node:path'
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { readSecret, withLock, writeSecret } from './home.js'

/** Crockford's base 32: no I, L, O, U. */
const digits = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

/** Bytes of the secret, and of the fingerprint, in a code. */
const partBytes = 16
const codeDigits = 52

/** What a code says. */
export interface InvitationCode {
  /** 128 random bits. */
  readonly secret: Buffer
  /** The first 128 bits of the SHA-256 of the CA's certificate, hex. */
  readonly fingerprint: string
}

/** Four bits that show most errors of typing. */
const checkDigit = (bytes: Buffer): number => createHash('sha256').update(bytes).digest()[0]! >> 4

/** A code as people read it: 13 groups of 4 characters. */
export function codeText({ secret, fingerprint }: InvitationCode): string {
  const bytes = Buffer.concat([secret, Buffer.from(fingerprint.slice(0, 2 * partBytes), 'hex')])
  let value = (BigInt(`0x${bytes.toString('hex')}`) << 4n) | BigInt(checkDigit(bytes))
  let text = ''
  for (let i = 0; i < codeDigits; i++, value >>= 5n) text = digits[Number(value & 31n)] + text
  return text.replace(/.{4}(?=.)/g, '$&-')
}

/**
 * What a code says. Case, hyphens and spaces do not count, and O, I and L are read as 0 and 1.
 * @throws SparkError ERR_FORMAT when it is incomplete or mistyped
 */
export function parseCode(text: string): InvitationCode {
  const clean = String(text)
    .slice(0, 200)
    .toUpperCase()
    .replace(/[\s-]/g, '')
    .replaceAll('O', '0')
    .replace(/[IL]/g, '1')
  const wrong = new SparkError(
    'ERR_FORMAT',
    `the code must have ${codeDigits} characters as dgx-spark invite prints them`,
  )
  if (clean.length !== codeDigits) throw wrong
  let value = 0n
  for (const digit of clean) {
    const at = digits.indexOf(digit)
    if (at < 0) throw wrong
    value = (value << 5n) | BigInt(at)
  }
  const bytes = Buffer.from((value >> 4n).toString(16).padStart(4 * partBytes, '0'), 'hex')
  if (bytes.byteLength !== 2 * partBytes || checkDigit(bytes) !== Number(value & 15n))
    throw new SparkError('ERR_FORMAT', 'the code is mistyped: compare it with what dgx-spark invite printed')
  return { secret: bytes.subarray(0, partBytes), fingerprint: bytes.toString('hex', partBytes) }
}

/** Names an invitation without telling its secret. */
export const invitationId = (secret: Uint8Array): string =>
  createHash('sha256').update('dgx-spark invitation').update(secret).digest('hex').slice(0, 16)

/** Binds a request to an invitation and to the TLS connection that it is sent on. */
export const bindRequest = (secret: Uint8Array, binding: Uint8Array, request: string): Buffer =>
  createHmac('sha256', secret).update('dgx-spark join').update(binding).update(request).digest()

/** What one node may join with. */
export interface JoinCode {
  /** 13 groups of 4 characters. */
  readonly code: string
  /** When it expires. */
  readonly until: Date
}

interface Invitation {
  readonly id: string
  /** Hex. */
  readonly secret: string
  /** ms since 1970. */
  readonly until: number
}

const fileName = 'invitations.json'

/** The invitations of a node that have neither been used nor expired. They are in a file, for other processes make some. */
export class Invitations {
  readonly #folder: string

  /** @param folder - that of the CA */
  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * Makes an invitation.
   * @param fingerprint - of the CA
   * @param minutes - how long it may be used
   * @returns the code
   */
  async create(fingerprint: string, minutes = 15): Promise<JoinCode> {
    expectInteger('minutes', minutes, 1, 1440)
    const secret = randomBytes(partBytes)
    const until = Date.now() + minutes * 60_000
    const made = { id: invitationId(secret), secret: secret.toString('hex'), until }
    await withLock(this.#folder, async () => writeSecret(this.#file, [...(await this.#list()), made]))
    return { code: codeText({ secret, fingerprint }), until: new Date(until) }
  }

  /** When the last one expires: ms since 1970; 0 when none is out. */
  async openUntil(): Promise<number> {
    return Math.max(0, ...(await this.#list()).map(({ until }) => until))
  }

  /**
   * Uses an invitation up, if a request is bound to it.
   * @throws SparkError ERR_DENIED when it is unknown, used, expired, or the binding is wrong
   */
  async use(id: string, binding: Uint8Array, request: string, mac: Uint8Array): Promise<void> {
    await withLock(this.#folder, async () => {
      const list = await this.#list()
      const found = list.find(each => each.id === id)
      if (!found) throw new SparkError('ERR_DENIED', 'the code is unknown, was used or has expired')
      const expected = bindRequest(Buffer.from(found.secret, 'hex'), binding, request)
      if (mac.byteLength !== expected.byteLength || !timingSafeEqual(mac, expected))
        throw new SparkError('ERR_DENIED', 'the request is not bound to the code and the connection')
      await writeSecret(
        this.#file,
        list.filter(each => each !== found),
      )
    })
  }

  get #file(): string {
    return path.join(this.#folder, fileName)
  }

  async #list(): Promise<Invitation[]> {
    const list = ((await readSecret(this.#file)) ?? []) as Invitation[]
    return list.filter(({ until }) => until > Date.now())
  }
}
