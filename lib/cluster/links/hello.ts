// hello.ts: what both ends of a new connection say first: versions, limits, and which link it belongs to. Where the
// transport has no certificates of ours (QUIC, TCP), also a certificate and a signature that only its owner can make.
import { createPrivateKey, randomBytes, randomUUID, sign, verify, X509Certificate } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { SparkError } from '../../core/errors.js'
import { type NodeCredentials, type Peer, peerOf, validityOf } from '../trust/credentials.js'
import type { Window } from './frame-sender.js'
import type { LinkLimits } from './options.js'
import { type Pipe, readExactly } from './pipe.js'
import { controlBytes, decodeHeader, encodeControl, headerBytes, recordKinds } from './record.js'

const version = 1

/** The first words of a node. */
export interface Hello {
  readonly version: number
  /** Names the link; a connection that continues it says the same. */
  readonly session: string
  readonly resumes: boolean
  readonly window: Window
  readonly proof?: { readonly certificate: string; readonly nonce: string; readonly signature?: string }
}

/** What is known when both ends have said theirs. */
export interface Greeting {
  readonly session: string
  readonly resumes: boolean
  readonly peer: Peer
  readonly peerWindow: Window
}

/** What is said on a new connection, and by whom. */
export interface HelloParts {
  readonly pipe: Pipe
  readonly credentials: NodeCredentials
  readonly limits: LinkLimits
  readonly signal: AbortSignal
  /** Throws where this peer is not welcome. */
  readonly admit: (peer: Peer) => void
}

/** The name of a new link. */
export const newSession = (): string => randomUUID()

/** The connecting node's part. */
export async function greetListener(parts: HelloParts, session: string, resumes: boolean): Promise<Greeting> {
  const { pipe, credentials, signal, admit } = parts
  const own = ownHello(parts, session, resumes)
  say(pipe.duplex, own)
  const theirs = await hear(pipe.duplex, signal)
  if (theirs.session !== session) throw new SparkError('ERR_FORMAT', 'the listener answers for another link')
  const peer = pipe.peer ?? provenPeer('listener', theirs, own, parts)
  admit(peer)
  if (own.proof) say(pipe.duplex, { ...own, proof: signed('connector', credentials, own, theirs, pipe) })
  return { session, resumes, peer, peerWindow: theirs.window }
}

/** The listening node's part. */
export async function greetConnector(parts: HelloParts): Promise<Greeting> {
  const { pipe, credentials, signal, admit } = parts
  const first = await hear(pipe.duplex, signal)
  if (pipe.peer) admit(pipe.peer)
  const own = ownHello(parts, first.session, first.resumes)
  if (!own.proof) {
    say(pipe.duplex, own)
    return { session: first.session, resumes: first.resumes, peer: pipe.peer!, peerWindow: first.window }
  }
  say(pipe.duplex, { ...own, proof: signed('listener', credentials, own, first, pipe) })
  const { proof } = await hear(pipe.duplex, signal)
  const peer = provenPeer('connector', { ...first, ...(proof && { proof }) }, own, parts, first.proof?.nonce)
  admit(peer)
  return { session: first.session, resumes: first.resumes, peer, peerWindow: first.window }
}

function ownHello({ pipe, credentials, limits }: HelloParts, session: string, resumes: boolean): Hello {
  const { windowBytes, windowFrames, maxFrameBytes } = limits
  const nonce = randomBytes(32).toString('base64')
  return {
    version,
    session,
    resumes,
    window: { bytes: windowBytes, frames: windowFrames, maxFrameBytes },
    ...(!pipe.peer && { proof: { certificate: credentials.certificate, nonce } }),
  }
}

function say(duplex: Duplex, hello: Hello): void {
  duplex.write(encodeControl(recordKinds.hello, 0, 0, Buffer.from(JSON.stringify(hello))))
}

async function hear(duplex: Duplex, signal: AbortSignal): Promise<Hello> {
  const { kind, length } = decodeHeader(await readExactly(duplex, headerBytes, signal))
  if (kind !== recordKinds.hello && kind !== recordKinds.close)
    throw new SparkError('ERR_FORMAT', `a connection begins with a record of kind ${kind}`)
  const body = await readExactly(duplex, Math.min(length, controlBytes), signal)
  if (kind === recordKinds.close)
    throw new SparkError('ERR_DENIED', `the peer refused this node: ${body.toString('utf8', 0, 500)}`)
  return parseHello(body)
}

/**
 * Reads a hello.
 * @throws SparkError ERR_FORMAT
 */
export function parseHello(body: Buffer): Hello {
  let value: Partial<Hello> | null = null
  try {
    value = JSON.parse(body.toString())
  } catch {}
  const wrong = (what: string): SparkError =>
    new SparkError('ERR_FORMAT', `the peer's first words have ${what}`)
  if (typeof value !== 'object' || value === null) throw wrong('no JSON object')
  if (value.version !== version)
    throw wrong(`version ${value.version}; this node speaks ${version}: update the older one`)
  if (typeof value.session !== 'string' || !/^[0-9a-f-]{36}$/.test(value.session)) throw wrong('no session')
  const { bytes, frames, maxFrameBytes } = (value.window ?? {}) as Partial<Window>
  const counts = [bytes, frames, maxFrameBytes]
  if (!counts.every(count => Number.isSafeInteger(count) && count! >= 1 && count! <= 2 ** 30))
    throw wrong('no window')
  const { proof } = value
  if (proof !== undefined) {
    const texts = [proof?.certificate, proof?.nonce, proof?.signature ?? '']
    if (!texts.every(text => typeof text === 'string' && text.length <= 16_384)) throw wrong('no proof')
  }
  return {
    version,
    session: value.session,
    resumes: value.resumes === true,
    window: { bytes: bytes!, frames: frames!, maxFrameBytes: maxFrameBytes! },
    ...(proof && { proof }),
  }
}

type Role = 'listener' | 'connector'

/** What the owner of a certificate signs: this connection, both nonces, and its part in it. */
function statement(role: Role, nonces: { listener: string; connector: string }, channel: Uint8Array): Buffer {
  const head = `dgx-spark link ${version} ${role}\0${nonces.listener}\0${nonces.connector}\0`
  return Buffer.concat([Buffer.from(head), channel])
}

const noncesOf = (role: Role, own: Hello, theirs: Hello): { listener: string; connector: string } => {
  const [mine, other] = [own.proof?.nonce ?? '', theirs.proof?.nonce ?? '']
  return role === 'listener' ? { listener: mine, connector: other } : { listener: other, connector: mine }
}

function signed(
  role: Role,
  credentials: NodeCredentials,
  own: Hello,
  theirs: Hello,
  { channel }: Pipe,
): Hello['proof'] & {} {
  const key = createPrivateKey(credentials.privateKey)
  const digest = key.asymmetricKeyType === 'ed25519' ? null : 'sha256'
  const bytes = statement(role, noncesOf(role, own, theirs), channel)
  return { ...own.proof!, signature: sign(digest, bytes, key).toString('base64') }
}

/** Who the peer is, when its certificate is of the cluster's CA, valid today, and it signed this connection. */
function provenPeer(
  role: Role,
  theirs: Hello,
  own: Hello,
  parts: HelloParts,
  nonce = theirs.proof?.nonce,
): Peer {
  const denied = (why: string): SparkError => new SparkError('ERR_DENIED', `the peer was refused: ${why}`)
  const { proof } = theirs
  if (!proof?.signature || proof.nonce !== nonce) throw denied('it proves nothing')
  const { credentials, pipe } = parts
  try {
    const certificate = new X509Certificate(proof.certificate)
    const ca = new X509Certificate(credentials.ca)
    if (certificate.ca || !certificate.checkIssued(ca) || !certificate.verify(ca.publicKey))
      throw denied('its certificate is not of this cluster')
    const { from, to } = validityOf(proof.certificate)
    const now = Date.now()
    if (now < from.getTime() || now > to.getTime()) throw denied('its certificate is not valid today')
    const nonces = noncesOf(role, theirs, own)
    const digest = certificate.publicKey.asymmetricKeyType === 'ed25519' ? null : 'sha256'
    const signature = Buffer.from(proof.signature, 'base64')
    if (!verify(digest, statement(role, nonces, pipe.channel), certificate.publicKey, signature))
      throw denied('its signature is not of this connection')
    const { subjectAltName: subjectaltname, serialNumber } = certificate
    const peer = peerOf({ subjectaltname, serialNumber, raw: certificate.raw })
    if (!peer) throw denied('its certificate names no node')
    return peer
  } catch (error) {
    throw error instanceof SparkError ? error : denied('its certificate cannot be read')
  }
}
