// join.ts: how a node gets its first certificate, and the next ones.
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { SparkError } from '../../core/errors.js'
import { type CertificateRequest, fingerprintOf, requestFor } from './authority.js'
import type { NodeNames } from './certificates.js'
import { expectCredentials, type NodeCredentials, peerOf } from './credentials.js'
import { receiveFrame, sendFrame } from './frames.js'
import { bindRequest, invitationId, parseCode } from './invitations.js'
import type { NodeIdentity } from './node-identity.js'

/** What a TLS connection and nothing else has in common at both ends: a proof made with it holds on no other connection. */
export const bindingOf = (socket: TLSSocket): Buffer =>
  socket.exportKeyingMaterial(32, 'EXPORTER-dgx-spark-join', Buffer.alloc(0))

/** How a node joins. */
export interface JoinOptions {
  /** An address of a node of the cluster. */
  readonly host: string
  /** Of the enrolment of a node of the cluster. */
  readonly port: number
  /** Of this node. */
  readonly identity: NodeIdentity
  /** What `dgx-spark invite` printed; without it the cluster must trust its network at the moment, and so do you. */
  readonly code?: string
  /** Names and addresses of this node. Default: those of the machine. */
  readonly names?: NodeNames
  /** For the connection and the answer together, ms. Default: 10,000. */
  readonly timeoutMs?: number
}

/**
 * Joins a cluster.
 * @throws SparkError ERR_FORMAT for a mistyped code; ERR_DENIED when the other end is not the cluster of the code, or refuses;
 * ERR_IO when it is not reached; ERR_BUSY when it does not answer
 */
export async function joinCluster(options: JoinOptions): Promise<NodeCredentials> {
  const { host, port, identity, names, timeoutMs = 10_000 } = options
  const code = options.code === undefined ? undefined : parseCode(options.code)
  const { privateKey, ...request } = await requestFor(identity, names)
  const socket = connect({ host, port, rejectUnauthorized: false, minVersion: 'TLSv1.3' })
  // Errors are seen by whoever waits; a late one must not end the process.
  socket.on('error', () => {})
  const timer = setTimeout(
    () => socket.destroy(new SparkError('ERR_BUSY', `${host}:${port} did not answer within ${timeoutMs} ms`)),
    timeoutMs,
  )
  try {
    await once(socket, 'secureConnect')
    const ca = caOf(socket, `${host}:${port}`, code?.fingerprint)
    const text = JSON.stringify(request)
    sendFrame(socket, {
      request: text,
      ...(code && {
        invitation: invitationId(code.secret),
        mac: bindRequest(code.secret, bindingOf(socket), text).toString('hex'),
      }),
    })
    const answer = ((await receiveFrame(socket, timeoutMs)) ?? {}) as { issued?: object; refused?: unknown }
    if (!answer.issued)
      throw new SparkError('ERR_DENIED', `${host}:${port} refused: ${String(answer.refused).slice(0, 300)}`)
    return received(request, { ...answer.issued, privateKey }, ca)
  } catch (error) {
    if (error instanceof SparkError) throw error
    const { message, code: system } = error as NodeJS.ErrnoException
    const closed =
      'nobody may join there at the moment: run dgx-spark invite there, or press t for its network'
    const reason = system === 'ECONNREFUSED' ? closed : message
    throw new SparkError('ERR_IO', `could not join at ${host}:${port}: ${reason}`, { cause: error })
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}

/** The CA (PEM) of the node at the other end, if it is the one that the code names. */
function caOf(socket: TLSSocket, at: string, fingerprint: string | undefined): string {
  const { raw, issuerCertificate, ...named } = socket.getPeerCertificate(true)
  if (!raw || !issuerCertificate?.raw)
    throw new SparkError('ERR_DENIED', `${at} is no node that others join at`)
  const [own, ca] = [new X509Certificate(raw), new X509Certificate(issuerCertificate.raw)]
  const found = fingerprintOf(ca.toString())
  if (fingerprint !== undefined && !found.startsWith(fingerprint))
    throw new SparkError('ERR_DENIED', `${at} is not of the cluster that made the code: its CA is ${found}`)
  const isNode = peerOf({ ...named, raw }) !== null
  const isValid = Date.parse(own.validTo) > Date.now()
  if (!isNode || !isValid || !own.verify(ca.publicKey))
    throw new SparkError('ERR_DENIED', `${at} shows no valid certificate of its CA`)
  return ca.toString()
}

/** Checks that an answer has what was asked for: this node, this key, this CA. */
function received(request: CertificateRequest, answer: object, ca: string): NodeCredentials {
  const source = 'the answer of the CA'
  const {
    clusterId,
    clusterName,
    nodeId,
    certificate,
    privateKey,
    serial,
    ca: told,
  } = answer as NodeCredentials
  const credentials = { clusterId, clusterName, nodeId, ca: told, certificate, privateKey, serial }
  expectCredentials(source, credentials)
  if (nodeId !== request.nodeId || fingerprintOf(told) !== fingerprintOf(ca))
    throw new SparkError('ERR_DENIED', `${source} is for another node or cluster`)
  return { ...credentials, ca }
}

/**
 * Gets the next certificate, with a new key, when {@link needsRenewal} says so.
 * @param ask - brings the request to the node that the CA is on, over a connection with the present certificate, where
 * {@link answerRenewal} answers it
 * @throws SparkError ERR_FORMAT, ERR_DENIED for an answer that does not fit, and what `ask` throws
 */
export async function renewCertificate(
  identity: NodeIdentity,
  credentials: NodeCredentials,
  ask: (request: CertificateRequest) => Promise<unknown>,
  names?: NodeNames,
): Promise<NodeCredentials> {
  const { privateKey, ...request } = await requestFor(identity, names)
  const answer = ((await ask(request)) ?? {}) as object
  const next = received(request, { ...answer, privateKey }, credentials.ca)
  if (next.clusterId !== credentials.clusterId)
    throw new SparkError('ERR_DENIED', 'the answer of the CA is of another cluster')
  return next
}
