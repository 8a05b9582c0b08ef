// authority.ts: the CA of a cluster: who gets a certificate, and which were given.
import { randomUUID, X509Certificate } from 'node:crypto'
import { hostname, networkInterfaces } from 'node:os'
import path from 'node:path'
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { isThere } from '../../io/read-file.js'
import {
  acceptableNames,
  type Certified,
  certifyNode,
  certifySigner,
  makeCa,
  makeRequest,
  type NodeNames,
} from './certificates.js'
import type { NodeCredentials } from './credentials.js'
import { clusterHome, makeSecretFolder, readSecret, withLock, writeSecret } from './home.js'
import { isSignedBy, isUuid, type NodeIdentity, publicKeyFrom } from './node-identity.js'
import { Revocations, type Revoked } from './revocations.js'
import { type SignedRevocations, signRevocations } from './signed-revocations.js'
import { thumbprintOf } from './token-claims.js'

/** A certificate that was given and has not expired. */
export interface IssuedCertificate {
  /** Lower-case hex. */
  readonly serial: string
  /** A uuid. */
  readonly nodeId: string
  /** The node's Ed25519 key: 32 bytes in base64url. */
  readonly identityKey: string
  /** SHA-256 of the certificate in base64url. */
  readonly thumbprint: string
  /** Names that it holds for. */
  readonly dns: readonly string[]
  /** ISO 8601. */
  readonly notAfter: string
}

/** A node's request for a certificate. */
export interface CertificateRequest {
  /** A uuid. */
  readonly nodeId: string
  /** The node's Ed25519 key: 32 bytes in base64url. */
  readonly identityKey: string
  /** PKCS #10, PEM. */
  readonly request: string
  /** Ed25519 signature of `request` in base64url. */
  readonly signature: string
  /** Where the node is reached. */
  readonly names: NodeNames
}

/** What a node gets for a request: its credentials without the key, which it has. */
export type Issued = Omit<NodeCredentials, 'privateKey'>

const [caFile, issuedFile] = ['authority.json', 'issued.json']

interface Stored extends Certified {
  readonly clusterId: string
  readonly clusterName: string
}

/** SHA-256 of a certificate in lower-case hex: by it a node that joins knows the CA. */
export const fingerprintOf = (certificate: string): string =>
  new X509Certificate(certificate).fingerprint256.replaceAll(':', '').toLowerCase()

/**
 * The CA of a cluster (P-256), on the node that began it. It gives nodes certificates of 30 days.
 * @example
 * const authority = await ClusterAuthority.create('lab')
 * const credentials = await authority.certify(await NodeIdentity.open())
 */
export class ClusterAuthority {
  /** The folder that it is kept in, mode 0700. */
  readonly folder: string
  /** A uuid. */
  readonly clusterId: string
  /** What the cluster was begun as. */
  readonly clusterName: string
  /** The certificate of the CA, PEM. */
  readonly certificate: string
  /** Certificates, nodes and tokens that count no more. */
  readonly revocations: Revocations
  readonly #ca: Certified

  private constructor(folder: string, stored: Stored, revocations: Revocations) {
    this.folder = folder
    this.clusterId = stored.clusterId
    this.clusterName = stored.clusterName
    this.certificate = stored.certificate
    this.revocations = revocations
    this.#ca = { certificate: stored.certificate, privateKey: stored.privateKey }
  }

  /** Whether a folder holds a CA. */
  static isIn(folder = clusterHome()): Promise<boolean> {
    return isThere(path.join(folder, caFile))
  }

  /**
   * Begins a cluster: makes its CA.
   * @param clusterName - 1 to 64 letters, digits, spaces and . _ -
   * @throws SparkError ERR_ARGUMENT, ERR_BUSY when the folder has a CA, ERR_IO
   */
  static async create(clusterName: string, folder = clusterHome()): Promise<ClusterAuthority> {
    if (typeof clusterName !== 'string' || !/^[\w.-][\w .-]{0,63}$/.test(clusterName))
      throw argumentError('clusterName', '1 to 64 letters, digits, spaces and . _ -', clusterName)
    await makeSecretFolder(folder)
    await withLock(folder, async () => {
      if (await ClusterAuthority.isIn(folder))
        throw new SparkError(
          'ERR_BUSY',
          `${folder} is the home of a cluster already: open it, or give another folder`,
        )
      const clusterId = randomUUID()
      const stored: Stored = { clusterId, clusterName, ...(await makeCa(clusterId, clusterName)) }
      await writeSecret(path.join(folder, caFile), stored)
    })
    return ClusterAuthority.open(folder)
  }

  /**
   * Opens the CA of a folder.
   * @throws SparkError ERR_IO when there is none, ERR_FORMAT when its file is torn, ERR_DENIED when others may read it
   */
  static async open(folder = clusterHome()): Promise<ClusterAuthority> {
    const file = path.join(folder, caFile)
    const value = (await readSecret(file)) as Partial<Stored> | undefined
    if (value === undefined) {
      throw new SparkError('ERR_IO', `${folder} holds no CA of a cluster: run this on the node that began it`)
    }
    const texts = [value?.clusterName, value?.certificate, value?.privateKey]
    if (!isUuid(value?.clusterId) || !texts.every(text => typeof text === 'string'))
      throw new SparkError('ERR_FORMAT', `${file} holds no CA of a cluster: restore it from a backup`)
    return new ClusterAuthority(folder, value as Stored, await Revocations.open(folder))
  }

  /** SHA-256 of the CA's certificate, lower-case hex. */
  get fingerprint(): string {
    return fingerprintOf(this.certificate)
  }

  /** Certificates that were given and have not expired, oldest first. */
  async issued(): Promise<readonly IssuedCertificate[]> {
    const list = ((await readSecret(path.join(this.folder, issuedFile))) ?? []) as IssuedCertificate[]
    const now = new Date().toISOString()
    return list.filter(({ notAfter }) => notAfter > now)
  }

  /**
   * Gives a node a certificate. Whether it may join is for the caller to know.
   * @param days - default: 30
   * @param most - valid certificates that the node may have, with this one; default: any number
   * @throws SparkError ERR_FORMAT for a request that is malformed or not signed; ERR_DENIED for a node that is revoked, or
   * whose uuid belongs to another key; ERR_BUSY for one that has as many
   */
  async sign(request: CertificateRequest, days?: number, most = Number.POSITIVE_INFINITY): Promise<Issued> {
    const { nodeId, identityKey } = request
    if (!isUuid(nodeId)) throw new SparkError('ERR_FORMAT', 'nodeId must be a uuid in lower case')
    const isSigned =
      typeof request.request === 'string' &&
      typeof request.signature === 'string' &&
      isSignedBy(
        publicKeyFrom(identityKey),
        Buffer.from(request.request),
        Buffer.from(request.signature, 'base64url'),
      )
    if (!isSigned) throw new SparkError('ERR_FORMAT', 'the request is not signed with the key of its node')
    if (this.revocations.isNodeRevoked(nodeId))
      throw new SparkError('ERR_DENIED', `node ${nodeId} was revoked`)
    return withLock(this.folder, async () => {
      const issued = await this.issued()
      if (issued.some(each => each.nodeId === nodeId && each.identityKey !== identityKey))
        throw new SparkError('ERR_DENIED', `the uuid ${nodeId} belongs to another node`)
      const valid = issued.filter(each => each.nodeId === nodeId)
      if (valid.length >= most)
        throw new SparkError(
          'ERR_BUSY',
          `node ${nodeId} has ${valid.length} valid certificates: ask again when one of them has expired`,
        )
      // A name leads to one node: what another one has is not given again.
      const taken = new Set(issued.flatMap(each => (each.nodeId === nodeId ? [] : each.dns)))
      const { dns, ips } = acceptableNames(request.names)
      const names: NodeNames = { dns: dns.filter(name => name === 'localhost' || !taken.has(name)), ips }
      const { clusterId, clusterName } = this
      const made = await certifyNode(this.#ca, {
        clusterId,
        clusterName,
        nodeId,
        request: request.request,
        names,
        ...(days !== undefined && { days }),
      })
      const { serial, certificate, notAfter } = made
      const record: IssuedCertificate = {
        serial,
        nodeId,
        identityKey,
        thumbprint: thumbprintOf(certificate),
        dns: names.dns,
        notAfter: notAfter.toISOString(),
      }
      await writeSecret(path.join(this.folder, issuedFile), [...issued, record])
      return { clusterId, clusterName, nodeId, ca: this.certificate, certificate, serial }
    })
  }

  /** Gives the node of an identity a certificate, as {@link ClusterAuthority.sign} does: for the node that the CA is on. */
  async certify(identity: NodeIdentity, names = localNames(), days?: number): Promise<NodeCredentials> {
    const { privateKey, ...request } = await requestFor(identity, names)
    return { ...(await this.sign(request, days)), privateKey }
  }

  /** What is revoked, for other nodes. */
  signRevocations(list: Required<Revoked>): SignedRevocations {
    return signRevocations(list, this.#ca.privateKey)
  }

  /** A certificate for a key (SPKI, DER) that signs tokens. */
  certifyTokenSigner(publicKey: Uint8Array): Promise<string> {
    return certifySigner(this.#ca, publicKey, tokenSignerUri(this.clusterId))
  }
}

/** The URI that certificates of keys for tokens have. */
export const tokenSignerUri = (clusterId: string): string => `spiffe://${clusterId}/token-signer`

/** A request of a node for a certificate, and the key that it is for. */
export async function requestFor(
  identity: NodeIdentity,
  names = localNames(),
): Promise<CertificateRequest & { privateKey: string }> {
  const { nodeId, publicKey: identityKey } = identity
  const { request, privateKey } = await makeRequest(nodeId)
  const signature = Buffer.from(identity.sign(Buffer.from(request))).toString('base64url')
  return { nodeId, identityKey, request, signature, names, privateKey }
}

/** Names and addresses of this machine. */
export function localNames(): NodeNames {
  const host = hostname().toLowerCase()
  const addresses = Object.values(networkInterfaces()).flatMap(list => list ?? [])
  return acceptableNames({
    dns: ['localhost', host, `${host.split('.')[0]}.local`],
    ips: ['127.0.0.1', '::1', ...addresses.map(({ address }) => address.split('%')[0])],
  })
}
