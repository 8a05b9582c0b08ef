// certificates.ts: X.509 with @peculiar/x509, which is loaded when a certificate is made: CA, nodes, requests.
import { randomBytes, webcrypto } from 'node:crypto'
import { isIP } from 'node:net'
import { SparkError } from '../../core/errors.js'
import { nodeUri, serialText } from './credentials.js'

type X509 = typeof import('@peculiar/x509')

/** Keys of the CA and of connections. */
const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const

/** Certificates begin to be valid before they are made: clocks of machines differ. */
const clockSkewMs = 300_000

const dayMs = 86_400_000

/** How long a node's certificate is valid; it is renewed at half of that. */
export const nodeDays = 30

const caDays = 3650

/** Names by which a node is reached, beside its uuid. */
export interface NodeNames {
  /** Names in DNS. */
  readonly dns: readonly string[]
  /** IPv4 and IPv6 addresses. */
  readonly ips: readonly string[]
}

/** A certificate with its key, PEM. */
export interface Certified {
  readonly certificate: string
  readonly privateKey: string
}

async function x509(): Promise<X509> {
  // @peculiar/x509 throws at its import unless this is there.
  await import('reflect-metadata')
  const module = await import('@peculiar/x509')
  module.cryptoProvider.set(webcrypto as typeof globalThis.crypto)
  return module
}

const newKeys = (): Promise<webcrypto.CryptoKeyPair> =>
  webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])

async function pemOf({ PemConverter }: X509, key: webcrypto.CryptoKey): Promise<string> {
  return PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')
}

const keyFrom = ({ PemConverter }: X509, pem: string): Promise<webcrypto.CryptoKey> =>
  webcrypto.subtle.importKey('pkcs8', PemConverter.decodeFirst(pem), algorithm, false, ['sign'])

/** 128 random bits; the first one is 0 and the second one 1, so that all serials have the same length. */
function newSerial(): string {
  const bytes = randomBytes(16)
  bytes[0] = (bytes[0]! & 0x3f) | 0x40
  return bytes.toString('hex')
}

const validity = (days: number): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(Date.now() - clockSkewMs),
  notAfter: new Date(Date.now() + days * dayMs),
})

/** Makes a self-signed CA whose certificate names a cluster. */
export async function makeCa(clusterId: string, clusterName: string): Promise<Certified> {
  const x = await x509()
  const keys = await newKeys()
  const certificate = await x.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ O: [clusterName] }, { CN: [`dgx-spark cluster ${clusterId}`] }],
    ...validity(caDays),
    keys,
    signingAlgorithm: algorithm,
    extensions: [
      new x.BasicConstraintsExtension(true, 0, true),
      new x.KeyUsagesExtension(x.KeyUsageFlags.keyCertSign | x.KeyUsageFlags.cRLSign, true),
      await x.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return { certificate: certificate.toString('pem'), privateKey: await pemOf(x, keys.privateKey) }
}

/** Makes a key and a request (PKCS #10, PEM) for a certificate of it. */
export async function makeRequest(nodeId: string): Promise<{ request: string; privateKey: string }> {
  const x = await x509()
  const keys = await newKeys()
  const request = await x.Pkcs10CertificateRequestGenerator.create({
    name: [{ CN: [nodeId] }],
    keys,
    signingAlgorithm: algorithm,
  })
  return { request: request.toString('pem'), privateKey: await pemOf(x, keys.privateKey) }
}

/** What a certificate of a node is made from. */
export interface NodeCertificateRequest {
  readonly clusterId: string
  readonly clusterName: string
  readonly nodeId: string
  /** PKCS #10, PEM. */
  readonly request: string
  readonly names: NodeNames
  /** Default: {@link nodeDays}. */
  readonly days?: number
}

/**
 * Signs a node's certificate. Of the request only the key counts.
 * @throws SparkError ERR_FORMAT when the request is none or not signed with its key
 */
export async function certifyNode(
  ca: Certified,
  { clusterId, clusterName, nodeId, request, names, days = nodeDays }: NodeCertificateRequest,
): Promise<{ certificate: string; serial: string; notAfter: Date }> {
  const x = await x509()
  const publicKey = await keyOfRequest(x, request)
  const { ips, dns } = names
  const serial = newSerial()
  const dates = validity(days)
  const issuer = new x.X509Certificate(ca.certificate)
  const certificate = await x.X509CertificateGenerator.create({
    serialNumber: serial,
    subject: [{ O: [clusterName] }, { CN: [nodeId] }],
    issuer: issuer.subjectName.toJSON(),
    ...dates,
    publicKey,
    signingKey: await keyFrom(x, ca.privateKey),
    signingAlgorithm: algorithm,
    extensions: [
      new x.BasicConstraintsExtension(false, undefined, true),
      new x.KeyUsagesExtension(x.KeyUsageFlags.digitalSignature, true),
      new x.ExtendedKeyUsageExtension([x.ExtendedKeyUsage.serverAuth, x.ExtendedKeyUsage.clientAuth]),
      new x.SubjectAlternativeNameExtension([
        { type: 'url', value: nodeUri(clusterId, nodeId) },
        ...dns.map(value => ({ type: 'dns' as const, value })),
        ...ips.map(value => ({ type: 'ip' as const, value })),
      ]),
      await x.AuthorityKeyIdentifierExtension.create(issuer),
      await x.SubjectKeyIdentifierExtension.create(publicKey),
    ],
  })
  return { certificate: certificate.toString('pem'), serial: serialText(serial), notAfter: dates.notAfter }
}

async function keyOfRequest(x: X509, pem: string): Promise<InstanceType<X509['PublicKey']>> {
  try {
    const request = new x.Pkcs10CertificateRequest(pem)
    const { name, namedCurve } = request.publicKey.algorithm as Partial<typeof algorithm>
    const isOurs = name === algorithm.name && namedCurve === algorithm.namedCurve
    if (isOurs && (await request.verify())) return request.publicKey
  } catch {}
  const message = 'the request for a certificate must be PKCS #10 in PEM, signed with its own P-256 key'
  throw new SparkError('ERR_FORMAT', message)
}

/**
 * Makes a certificate for the Ed25519 key that signs tokens.
 * @param publicKey - SPKI, DER
 * @param uri - names the purpose of the key
 */
export async function certifySigner(ca: Certified, publicKey: Uint8Array, uri: string): Promise<string> {
  const x = await x509()
  const issuer = new x.X509Certificate(ca.certificate)
  const certificate = await x.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    subject: [{ CN: ['signer of tokens'] }],
    issuer: issuer.subjectName.toJSON(),
    ...validity(nodeDays),
    publicKey: new x.PublicKey(Uint8Array.from(publicKey)),
    signingKey: await keyFrom(x, ca.privateKey),
    signingAlgorithm: algorithm,
    extensions: [
      new x.BasicConstraintsExtension(false, undefined, true),
      new x.KeyUsagesExtension(x.KeyUsageFlags.digitalSignature, true),
      new x.SubjectAlternativeNameExtension([{ type: 'url', value: uri }]),
    ],
  })
  return certificate.toString('pem')
}

const maxNames = 32
const dnsPattern = /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/

/** The names of a request that a certificate may have: well-formed, in lower case, each once, and no more than 32 of a kind. */
export function acceptableNames(value: unknown): NodeNames {
  const { dns, ips } = (value ?? {}) as Record<string, unknown>
  const texts = (list: unknown): string[] =>
    Array.isArray(list)
      ? [
          ...new Set(
            list
              .slice(0, maxNames)
              .filter(text => typeof text === 'string')
              .map(text => text.toLowerCase()),
          ),
        ]
      : []
  return {
    dns: texts(dns).filter(name => dnsPattern.test(name) && isIP(name) === 0),
    ips: texts(ips).filter(address => isIP(address) !== 0 && !address.includes('%')),
  }
}
