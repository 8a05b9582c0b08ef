// checkpoint.ts: checkpoints of an audit log as C2SP signed notes (c2sp.org/tlog-checkpoint, signed-note, tlog-cosignature).
import { createHash, type KeyObject } from 'node:crypto'
import { SparkError } from '../../core/errors.js'
import { isSignedBy, type NodeIdentity, publicKeyFrom } from './node-identity.js'

/** A log at some size. */
export interface Checkpoint {
  /** Names the log: `dgx-spark/audit/<node uuid>`. */
  readonly origin: string
  /** Records. */
  readonly size: number
  /** Merkle root, 32 bytes. */
  readonly root: Buffer
}

/** A line of a note that signs it. */
interface SignatureLine {
  readonly name: string
  /** Four bytes that tell keys of one name apart, hex. */
  readonly keyId: string
  readonly signature: Buffer
}

/** A note: its text and who has signed it. */
export interface SignedNote extends Checkpoint {
  /** What is signed: three lines. */
  readonly body: string
  readonly signatures: readonly SignatureLine[]
}

/** A node's name as the owner of a log. */
export const logName = (nodeId: string): string => `dgx-spark/audit/${nodeId}`

/** Uuid of the node whose log a checkpoint is of; another text where it is of none. */
export const logOwnerOf = ({ origin }: Checkpoint): string => origin.slice(logName('').length)

/** A node's name as a witness of the logs of others. */
export const witnessName = (nodeId: string): string => `dgx-spark/witness/${nodeId}`

/** Kinds of signatures: of an Ed25519 key over a note; of a witness over time and note. */
const [noteSignature, cosignature] = [1, 4]

/** Bytes of a note at most. */
const maxNoteBytes = 65_536

const keyIdOf = (name: string, kind: number, publicKey: string): Buffer =>
  createHash('sha256')
    .update(name)
    .update(Buffer.of(0x0a, kind))
    .update(Buffer.from(publicKey, 'base64url'))
    .digest()
    .subarray(0, 4)

const lineOf = (name: string, ...parts: readonly Uint8Array[]): string =>
  `— ${name} ${Buffer.concat(parts).toString('base64')}\n`

/** Signs a checkpoint of a node's own log: the note. */
export function signCheckpoint(identity: NodeIdentity, size: number, root: Uint8Array): string {
  const name = logName(identity.nodeId)
  const body = `${name}\n${size}\n${Buffer.from(root).toString('base64')}\n`
  const signature = identity.sign(Buffer.from(body))
  return `${body}\n${lineOf(name, keyIdOf(name, noteSignature, identity.publicKey), signature)}`
}

/** The line with which a witness signs a note. Whether it is consistent is for the caller to know. */
export function cosign(identity: NodeIdentity, { body }: SignedNote, now = Date.now()): string {
  const name = witnessName(identity.nodeId)
  const time = Buffer.alloc(8)
  time.writeBigUInt64BE(BigInt(Math.floor(now / 1000)))
  const signature = identity.sign(cosigned(body, time))
  return lineOf(name, keyIdOf(name, cosignature, identity.publicKey), time, signature)
}

const cosigned = (body: string, time: Buffer): Buffer =>
  Buffer.from(`cosignature/v1\ntime ${time.readBigUInt64BE()}\n${body}`)

/**
 * Reads a note; its signatures are not checked.
 * @throws SparkError ERR_FORMAT
 */
export function parseNote(text: unknown): SignedNote {
  const wrong = new SparkError(
    'ERR_FORMAT',
    'a checkpoint must be a C2SP signed note of origin, size and root',
  )
  if (typeof text !== 'string' || text.length > maxNoteBytes) throw wrong
  const split = text.lastIndexOf('\n\n')
  const [body, lines] = [text.slice(0, split + 1), text.slice(split + 2)]
  const match = /^([^\n+]{1,200})\n(0|[1-9]\d{0,15})\n([A-Za-z0-9+/]{43}=)\n$/.exec(body)
  if (split < 0 || !match || !lines.endsWith('\n')) throw wrong
  const signatures = lines
    .slice(0, -1)
    .split('\n')
    .map(line => {
      const [, name, coded] = /^— (\S+) ([A-Za-z0-9+/=]+)$/.exec(line) ?? []
      const bytes = Buffer.from(coded ?? '', 'base64')
      if (name === undefined || bytes.byteLength < 5) throw wrong
      return { name, keyId: bytes.toString('hex', 0, 4), signature: bytes.subarray(4) }
    })
  const [, origin, size, root] = match
  return { body, origin: origin!, size: Number(size), root: Buffer.from(root!, 'base64'), signatures }
}

function linesOf(note: SignedNote, name: string, kind: number, publicKey: string): Buffer[] {
  const keyId = keyIdOf(name, kind, publicKey).toString('hex')
  const own = note.signatures.filter(line => line.name === name && line.keyId === keyId)
  return own.map(({ signature }) => signature)
}

/** Whether the owner of the log has signed a note. @param publicKey - of the node, 32 bytes in base64url */
export function isSignedByLog(note: SignedNote, nodeId: string, publicKey: string): boolean {
  const name = logName(nodeId)
  const key: KeyObject = publicKeyFrom(publicKey)
  const lines = linesOf(note, name, noteSignature, publicKey)
  return note.origin === name && lines.some(signature => isSignedBy(key, Buffer.from(note.body), signature))
}

/** When a witness has signed a note, or null when it has not. @param publicKey - of the witness, 32 bytes in base64url */
export function cosignedAt(note: SignedNote, nodeId: string, publicKey: string): Date | null {
  const key = publicKeyFrom(publicKey)
  for (const bytes of linesOf(note, witnessName(nodeId), cosignature, publicKey)) {
    if (bytes.byteLength !== 72) continue
    const time = bytes.subarray(0, 8)
    if (isSignedBy(key, cosigned(note.body, time), bytes.subarray(8)))
      return new Date(Number(time.readBigUInt64BE()) * 1000)
  }
  return null
}

/** Uuids of the nodes that a note has lines of as witnesses. */
export const witnessesIn = ({ signatures }: SignedNote): string[] => [
  ...new Set(
    signatures
      .filter(({ name }) => name.startsWith(witnessName('')))
      .map(({ name }) => name.slice(witnessName('').length)),
  ),
]
