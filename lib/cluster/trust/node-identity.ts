// node-identity.ts: who a node is: a uuid and an Ed25519 key, made once and kept.
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomUUID,
  sign,
  verify,
} from 'node:crypto'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { clusterHome, makeSecretFolder, readSecret, withLock, writeSecret } from './home.js'

const fileName = 'identity.json'
const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Whether a value is a uuid in lower case. */
export const isUuid = (value: unknown): value is string =>
  typeof value === 'string' && uuidPattern.test(value)

/** DER of an Ed25519 public key before its 32 bytes (RFC 8410). */
const spkiHead = Buffer.from('302a300506032b6570032100', 'hex')

/** The 32 bytes of an Ed25519 public key in base64url. */
export const publicKeyText = (key: KeyObject): string =>
  createPublicKey(key as never)
    .export({ format: 'der', type: 'spki' })
    .subarray(spkiHead.length)
    .toString('base64url')

/**
 * The Ed25519 public key of a text of {@link publicKeyText}.
 * @throws SparkError ERR_FORMAT
 */
export function publicKeyFrom(text: unknown): KeyObject {
  const bytes = typeof text === 'string' && text.length <= 64 ? Buffer.from(text, 'base64url') : undefined
  if (bytes?.length !== 32)
    throw new SparkError('ERR_FORMAT', 'an Ed25519 public key must have 32 bytes in base64url')
  return createPublicKey({ key: Buffer.concat([spkiHead, bytes]), format: 'der', type: 'spki' })
}

/** Whether the owner of an Ed25519 key has signed `bytes`. */
export const isSignedBy = (key: KeyObject, bytes: Uint8Array, signature: Uint8Array): boolean =>
  signature.byteLength === 64 && verify(null, bytes, key, signature)

/**
 * A node's uuid and Ed25519 key. The key signs requests for certificates and checkpoints of the audit log; TLS has keys of
 * its own, which change with each certificate.
 * @example
 * const identity = await NodeIdentity.open()
 * console.log(identity.nodeId)
 */
export class NodeIdentity {
  /** The folder that it is kept in, mode 0700. */
  readonly folder: string
  /** A uuid. */
  readonly nodeId: string
  /** The 32 bytes of the public key in base64url. */
  readonly publicKey: string
  readonly #key: KeyObject

  private constructor(folder: string, nodeId: string, key: KeyObject) {
    this.folder = folder
    this.nodeId = nodeId
    this.publicKey = publicKeyText(key)
    this.#key = key
  }

  /**
   * Opens the identity in a folder, and makes one where there is none. Processes that do so together get the same one.
   * @param folder - default: {@link clusterHome}
   * @throws SparkError ERR_FORMAT when its file is torn, ERR_DENIED when others may read it, ERR_IO
   */
  static async open(folder = clusterHome()): Promise<NodeIdentity> {
    const file = path.join(folder, fileName)
    const kept = await readSecret(file)
    if (kept !== undefined) return NodeIdentity.#parse(folder, file, kept)
    await makeSecretFolder(folder)
    return withLock(folder, async () => {
      const meanwhile = await readSecret(file)
      if (meanwhile !== undefined) return NodeIdentity.#parse(folder, file, meanwhile)
      const { privateKey } = generateKeyPairSync('ed25519')
      const nodeId = randomUUID()
      await writeSecret(file, { nodeId, privateKey: privateKey.export({ format: 'pem', type: 'pkcs8' }) })
      return new NodeIdentity(folder, nodeId, privateKey)
    })
  }

  static #parse(folder: string, file: string, value: unknown): NodeIdentity {
    const { nodeId, privateKey } = (value ?? {}) as Record<string, unknown>
    try {
      const key = createPrivateKey(privateKey as string)
      if (isUuid(nodeId) && key.asymmetricKeyType === 'ed25519') return new NodeIdentity(folder, nodeId, key)
    } catch {}
    const remedy = 'restore it from a backup, or remove it and join again as a new node'
    throw new SparkError('ERR_FORMAT', `${file} holds no identity (a uuid and an Ed25519 key): ${remedy}`)
  }

  /** The Ed25519 signature (64 bytes) of some bytes. */
  sign(bytes: Uint8Array): Uint8Array {
    return sign(null, bytes, this.#key)
  }
}
