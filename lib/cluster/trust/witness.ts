// witness.ts: nodes cosign the checkpoints of each other's audit logs, so that no node can rewrite its own unseen.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { AuditLog } from './audit.js'
import { cosign, cosignedAt, isSignedByLog, parseNote, type SignedNote } from './checkpoint.js'
import { makeSecretFolder, readSecret, writeSecret } from './home.js'
import { isConsistent } from './merkle.js'
import { isUuid, type NodeIdentity } from './node-identity.js'

/** What a node asks its witnesses. */
export interface CosignRequest {
  /** The checkpoint, a signed note. */
  readonly note: string
  /** The size that the witness has seen, as far as the node knows. */
  readonly oldSize: number
  /** Consistency proof from that size, base64. */
  readonly proof: readonly string[]
}

/** What a witness answers: its signature line, or the size that it has seen, for a proof from there. */
export type CosignAnswer = { readonly cosignature: string } | { readonly size: number }

/** A node of the cluster, and the Ed25519 key that it signs with: 32 bytes in base64url. */
export interface SigningNode {
  /** A uuid. */
  readonly nodeId: string
  /** Its Ed25519 key: 32 bytes in base64url. */
  readonly publicKey: string
}

/** What a witness keeps of a log. */
interface Kept {
  /** The last checkpoint that it cosigned. */
  readonly note: string
  /** One that it does not go with. */
  readonly fork?: string
}

/** Hashes in a proof at most: two for each bit of a size. */
const maxProof = 128

/** Remembers the last checkpoint of each log that this node has cosigned. */
export class Witness {
  readonly #folder: string
  readonly #identity: NodeIdentity
  readonly #turns = new Map<string, Promise<unknown>>()

  /** @param folder - default: `witness` in the home of the node */
  constructor(identity: NodeIdentity, folder = path.join(identity.folder, 'witness')) {
    this.#identity = identity
    this.#folder = folder
  }

  /** The last checkpoint of a node that was cosigned; undefined when there is none. @throws SparkError ERR_FORMAT, ERR_IO */
  async noteOf(nodeId: string): Promise<string | undefined> {
    return (await this.#kept(nodeId))?.note
  }

  /**
   * Cosigns a checkpoint, if it continues the last one.
   * @param owner - the node that asks, as its certificate and the list of members say
   * @throws SparkError ERR_DENIED when the log was rewritten or cut, or has forked, or the note is not signed; ERR_FORMAT
   */
  cosign(owner: SigningNode, request: unknown): Promise<CosignAnswer> {
    return this.#inTurn(owner, () => this.#cosign(owner, request))
  }

  /**
   * Compares a checkpoint that another witness holds with the one that is held here. A fork is kept, and its log is never
   * cosigned again.
   * @param prove - brings `oldSize` and `size` to the owner, who answers with a consistency proof
   * @throws SparkError ERR_DENIED when the log has forked, ERR_FORMAT, and what `prove` throws
   */
  compare(
    owner: SigningNode,
    note: string,
    prove: (oldSize: number, size: number) => Promise<unknown>,
  ): Promise<void> {
    return this.#inTurn(owner, async () => {
      const { nodeId } = owner
      const other = signedNote(owner, note)
      const kept = await this.#kept(nodeId)
      if (!kept || kept.fork !== undefined) return
      const [old, next] = [parseNote(kept.note), other].sort((a, b) => a.size - b.size) as [
        SignedNote,
        SignedNote,
      ]
      const proof = old.size === next.size ? [] : hashesOf(await prove(old.size, next.size))
      if (isConsistent(old.size, next.size, old.root, next.root, proof)) return
      await writeSecret(this.#file(nodeId), { note: kept.note, fork: ownNote(owner, other) })
      throw forked(nodeId, old.size)
    })
  }

  #inTurn<T>({ nodeId }: SigningNode, act: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(nodeId) ?? Promise.resolve()).catch(() => {}).then(act)
    this.#turns.set(nodeId, turn)
    return turn
  }

  async #kept(nodeId: string): Promise<Kept | undefined> {
    const value = (await readSecret(this.#file(nodeId))) as Kept | undefined
    if (value !== undefined) parseNote(value.note)
    return value
  }

  async #cosign(owner: SigningNode, request: unknown): Promise<CosignAnswer> {
    const { nodeId } = owner
    const { note, oldSize, proof } = (request ?? {}) as Partial<CosignRequest>
    const next = signedNote(owner, note)
    const kept = await this.#kept(nodeId)
    if (kept !== undefined) {
      const last = parseNote(kept.note)
      if (kept.fork !== undefined) throw forked(nodeId, Math.min(last.size, parseNote(kept.fork).size))
      if (next.size < last.size)
        throw new SparkError(
          'ERR_DENIED',
          `the log of ${nodeId} was cut: ${last.size} records, now ${next.size}`,
        )
      if (oldSize !== last.size && next.size !== last.size) return { size: last.size }
      const hashes = next.size === last.size ? [] : hashesOf(proof)
      if (!isConsistent(last.size, next.size, last.root, next.root, hashes))
        throw new SparkError('ERR_DENIED', `the log of ${nodeId} was rewritten before record ${last.size}`)
    }
    const cosignature = cosign(this.#identity, next)
    await makeSecretFolder(this.#folder)
    await writeSecret(this.#file(nodeId), { note: `${ownNote(owner, next)}${cosignature}` })
    return { cosignature }
  }

  #file(nodeId: string): string {
    if (!isUuid(nodeId)) throw new SparkError('ERR_FORMAT', 'nodeId must be a uuid in lower case')
    return path.join(this.#folder, `${nodeId}.json`)
  }
}

/** A note of the log of a node. @throws SparkError ERR_FORMAT, ERR_DENIED when the node has not signed it */
export function signedNote({ nodeId, publicKey }: SigningNode, text: unknown): SignedNote {
  const note = parseNote(text)
  if (isSignedByLog(note, nodeId, publicKey)) return note
  throw new SparkError('ERR_DENIED', `the checkpoint is not signed by node ${nodeId}`)
}

/** A note with the signature of its owner and nothing else: others may have any number of lines. */
function ownNote({ nodeId, publicKey }: SigningNode, note: SignedNote): string {
  const { name, keyId, signature } = note.signatures.find(line =>
    isSignedByLog({ ...note, signatures: [line] }, nodeId, publicKey),
  )!
  const coded = Buffer.concat([Buffer.from(keyId, 'hex'), signature]).toString('base64')
  return `${note.body}\n— ${name} ${coded}\n`
}

const forked = (nodeId: string, size: number): SparkError =>
  new SparkError(
    'ERR_DENIED',
    `the log of ${nodeId} has forked before record ${size}: nodes were shown different ones`,
  )

/** A consistency proof of a log in base64. @throws SparkError ERR_RANGE */
export const proofText = (log: AuditLog, oldSize: number, size: number): string[] =>
  log.consistencyProof(oldSize, size).map(hash => hash.toString('base64'))

function hashesOf(proof: unknown): Buffer[] {
  const isList =
    Array.isArray(proof) && proof.length <= maxProof && proof.every(each => typeof each === 'string')
  if (!isList)
    throw new SparkError('ERR_FORMAT', `a proof must be a list of at most ${maxProof} hashes in base64`)
  return proof.map(each => Buffer.from(each, 'base64'))
}

/**
 * Has a witness cosign the last checkpoint of a log, and keeps its signature with it.
 * @param ask - brings the request to {@link Witness.cosign} of another node
 * @returns whether it was cosigned; false where the log has no checkpoint yet
 * @throws SparkError ERR_DENIED when the answer is not the signature of that node, and what `ask` throws
 */
export async function askWitness(
  log: AuditLog,
  { nodeId, publicKey }: SigningNode,
  ask: (request: CosignRequest) => Promise<unknown>,
): Promise<boolean> {
  const note = log.checkpoint
  if (note === undefined) return false
  const { size } = parseNote(note)
  let answer: Partial<{ cosignature: string; size: number }> = { size: 0 }
  for (let tries = 0; tries < 2 && answer.cosignature === undefined; tries++) {
    const oldSize = answer.size ?? 0
    const proof = oldSize > size ? [] : proofText(log, oldSize, size)
    answer = ((await ask({ note, oldSize, proof })) ?? {}) as typeof answer
  }
  const signed = safeNote(`${note}${String(answer.cosignature)}`)
  if (!signed || !cosignedAt(signed, nodeId, publicKey))
    throw new SparkError('ERR_DENIED', `node ${nodeId} did not cosign the checkpoint of ${size} records`)
  await log.addCosignature(note, answer.cosignature!)
  return true
}

function safeNote(text: string): SignedNote | null {
  try {
    return parseNote(text)
  } catch {
    return null
  }
}
