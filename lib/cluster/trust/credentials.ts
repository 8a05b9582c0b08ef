// credentials.ts: what a node of a cluster shows its peers, and what it asks about theirs.
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { clusterHome, makeSecretFolder, readSecret, writeSecret } from './home.js'
import { isUuid } from './node-identity.js'

/** A node's certificate with its key, and the CA that peers have theirs from. */
export interface NodeCredentials {
  /** A uuid. */
  readonly clusterId: string
  /** What the cluster was begun as. */
  readonly clusterName: string
  /** A uuid. */
  readonly nodeId: string
  /** The certificate of the cluster's CA, PEM. */
  readonly ca: string
  /** PEM; its SAN has URI:spiffe://<clusterId>/node/<nodeId>. */
  readonly certificate: string
  /** PEM, PKCS #8. */
  readonly privateKey: string
  /** Serial of the certificate, lower-case hex. */
  readonly serial: string
}

/** Who is at the other end of a connection, by its certificate. */
export interface Peer {
  /** A uuid. */
  readonly nodeId: string
  /** Serial of its certificate, lower-case hex. */
  readonly serial: string
  /** A uuid. */
  readonly clusterId: string
  /** SHA-256 of its certificate in base64url: what tokens are bound to. */
  readonly thumbprint: string
}

/** What a TLS listener or client asks about its peer after the chain of certificates was checked. */
export interface PeerPolicy {
  /** @returns null, or why not */
  accepts(peer: Peer): string | null
}

/** The URI that names a node in its certificate. */
export const nodeUri = (clusterId: string, nodeId: string): string => `spiffe://${clusterId}/node/${nodeId}`

/** A serial in lower-case hex without leading zeros, as it is compared. */
export const serialText = (hex: string): string => hex.toLowerCase().replace(/^0+(?=.)/, '')

/** A certificate as Node.js's TLS and crypto describe it. */
interface DescribedCertificate {
  /** `URI:…, DNS:…` */
  readonly subjectaltname?: string | undefined
  readonly serialNumber?: string | undefined
  /** DER. */
  readonly raw?: Uint8Array | undefined
}

/** Who a certificate names, or null when it names no node or several. */
export function peerOf({ subjectaltname = '', serialNumber = '', raw }: DescribedCertificate): Peer | null {
  const uris = [...subjectaltname.matchAll(/(?:^|, )URI:([^,"]*)/g)]
  const match = uris.length === 1 ? /^spiffe:\/\/([^/]+)\/node\/([^/]+)$/.exec(uris[0]![1]!) : null
  const [, clusterId, nodeId] = match ?? []
  if (!raw || !isUuid(clusterId) || !isUuid(nodeId) || serialNumber === '') return null
  const thumbprint = createHash('sha256').update(raw).digest('base64url')
  return { clusterId, nodeId, serial: serialText(serialNumber), thumbprint }
}

/** When a certificate begins and ends to be valid. */
export function validityOf(certificate: string): { from: Date; to: Date } {
  const { validFrom, validTo } = new X509Certificate(certificate)
  return { from: new Date(validFrom), to: new Date(validTo) }
}

/** Whether a certificate is past half of its life, when a node asks for the next one. */
export function needsRenewal(credentials: NodeCredentials, now = Date.now()): boolean {
  const { from, to } = validityOf(credentials.certificate)
  return now >= (from.getTime() + to.getTime()) / 2
}

/**
 * Checks that credentials fit together: the certificate names the node, has this key and is signed by the CA.
 * @throws SparkError ERR_FORMAT
 */
export function expectCredentials(source: string, value: unknown): asserts value is NodeCredentials {
  const found = (value ?? {}) as NodeCredentials
  const texts = [found.clusterName, found.ca, found.certificate, found.privateKey, found.serial]
  let problem = texts.every(text => typeof text === 'string') ? '' : 'a part is missing'
  try {
    if (problem === '') problem = mismatch(found)
  } catch (error) {
    problem = (error as Error).message
  }
  if (problem !== '')
    throw new SparkError('ERR_FORMAT', `${source} holds no credentials of a node: ${problem}`)
}

function mismatch({ ca, certificate, clusterId, nodeId, privateKey, serial }: NodeCredentials): string {
  const own = new X509Certificate(certificate)
  const peer = peerOf({ subjectaltname: own.subjectAltName, serialNumber: own.serialNumber, raw: own.raw })
  if (peer?.nodeId !== nodeId || peer.clusterId !== clusterId || peer.serial !== serial)
    return 'the certificate is of another node'
  if (!own.checkPrivateKey(createPrivateKey(privateKey))) return 'the certificate is of another key'
  return own.verify(new X509Certificate(ca).publicKey) ? '' : 'the certificate is not of its CA'
}

const fileName = 'credentials.json'

/** Keeps the credentials of this node in its folder, readable by its owner only. */
export async function saveCredentials(credentials: NodeCredentials, folder = clusterHome()): Promise<void> {
  await makeSecretFolder(folder)
  await writeSecret(path.join(folder, fileName), credentials)
}

/**
 * The credentials that {@link saveCredentials} kept; undefined when this node has joined no cluster.
 * @throws SparkError ERR_FORMAT when the file is torn, ERR_DENIED when others may read it, ERR_IO
 */
export async function loadCredentials(folder = clusterHome()): Promise<NodeCredentials | undefined> {
  const file = path.join(folder, fileName)
  const value = await readSecret(file)
  if (value === undefined) return undefined
  expectCredentials(file, value)
  return value
}
