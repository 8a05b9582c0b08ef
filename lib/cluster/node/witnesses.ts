// witnesses.ts: nodes cosign the checkpoints of each other's audit logs, and compare what they hold of third nodes.
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { AuditLog } from '../trust/audit.js'
import { logOwnerOf, parseNote } from '../trust/checkpoint.js'
import { Members } from '../trust/members.js'
import type { NodeIdentity } from '../trust/node-identity.js'
import { askWitness, proofText, signedNote, Witness } from '../trust/witness.js'

/** What {@link Witnesses} need. */
export interface WitnessesOptions {
  readonly identity: NodeIdentity
  readonly log: AuditLog
  readonly links: () => readonly FrameStream[]
  /** Told of a node whose log was cut, rewritten or forked, or that signs with another key. */
  onRefused(link: FrameStream, reason: string): void
  /** Told of a node that has cosigned for the first time since it came. */
  onCosigned(nodeId: string): void
}

/** A checkpoint of the log of this node, as another node keeps it. */
export interface WitnessedNote {
  /** Of the other node. */
  readonly nodeId: string
  /** A C2SP signed note. */
  readonly note: string
}

/** How often nodes tell each other what they hold. */
const gossipMs = 60_000
/** Notes in a message, and their bytes: less than the 64 KiB of a question. */
const [maxNotes, maxBytes] = [64, 48 << 10]

/** The witnesses of the audit log of this node, and this node as a witness of others. */
export class Witnesses {
  readonly #options: WitnessesOptions
  readonly #witness: Witness
  readonly #members: Members
  readonly #cosigned = new Set<FrameStream>()
  /** Nodes whose checkpoints this node holds. */
  readonly #watched = new Set<string>()
  #asking: Promise<void> | undefined
  #isDue = false

  constructor(options: WitnessesOptions, signal: AbortSignal) {
    this.#options = options
    this.#witness = new Witness(options.identity)
    this.#members = new Members(options.identity.folder)
    const timer = setInterval(() => {
      for (const link of options.links()) this.#tell(link)
    }, gossipMs).unref()
    signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  }

  /** How many nodes that are there have cosigned. */
  get count(): number {
    return this.#cosigned.size
  }

  /** Answers the questions of a node about checkpoints, while its link lasts. */
  answer(link: FrameStream): void {
    const { nodeId } = link.peer
    link.handle('cosign', request => this.#refusing(link, () => this.#cosign(nodeId, request)))
    link.handle('witnessed', notes => this.#refusing(link, () => this.#compare(notes)))
    link.handle('note', () => this.#witness.noteOf(nodeId))
    link.handle('consistency', question => {
      const { oldSize, size } = (question ?? {}) as { oldSize: number; size: number }
      return proofText(this.#options.log, oldSize, size)
    })
    void link.closed.then(() => this.#cosigned.delete(link))
  }

  /**
   * A node said which key it signs with: it becomes a witness.
   * @throws SparkError ERR_DENIED when it had another one, ERR_FORMAT
   */
  async met(link: FrameStream, publicKey: unknown): Promise<void> {
    await this.#refusing(link, () => this.#members.met(link.peer.nodeId, publicKey))
    this.#tell(link)
    this.ask()
  }

  /** Has the other nodes cosign the last checkpoint. */
  ask(): void {
    this.#isDue = true
    this.#asking ??= this.#askAll().finally(() => {
      this.#asking = undefined
    })
  }

  /** What the other nodes hold of the log of this node. */
  async held(): Promise<readonly WitnessedNote[]> {
    const answers = this.#options.links().map(async link => {
      const note = await link.call('note', null).catch(() => null)
      return typeof note === 'string' ? [{ nodeId: link.peer.nodeId, note }] : []
    })
    return (await Promise.all(answers)).flat()
  }

  async #askAll(): Promise<void> {
    const { log, links, onCosigned } = this.#options
    while (this.#isDue) {
      this.#isDue = false
      for (const link of links()) {
        const { nodeId } = link.peer
        try {
          const member = await this.#members.find(nodeId)
          if (!member || !(await askWitness(log, member, request => link.call('cosign', request)))) continue
          if (this.#cosigned.has(link) || !links().includes(link)) continue
          this.#cosigned.add(link)
          onCosigned(nodeId)
        } catch (error) {
          debug(`node ${nodeId} did not cosign: ${(error as Error).message}`)
        }
      }
    }
  }

  async #cosign(nodeId: string, request: unknown): Promise<unknown> {
    const member = await this.#members.find(nodeId)
    if (!member) throw new SparkError('ERR_BUSY', `node ${nodeId} has not said which key it signs with`)
    const answer = await this.#witness.cosign(member, request)
    this.#watched.add(nodeId)
    return answer
  }

  /** Tells a node what this one holds of others. */
  #tell(link: FrameStream): void {
    const tell = async (): Promise<void> => {
      const others = [...this.#watched].filter(nodeId => nodeId !== link.peer.nodeId)
      const notes = await Promise.all(others.map(nodeId => this.#witness.noteOf(nodeId)))
      for (const batch of batchesOf(notes.filter(note => note !== undefined)))
        await link.call('witnessed', batch)
    }
    tell().catch(error => debug(`witnessed: ${(error as Error).message}`))
  }

  /** Compares what another node holds with what is held here. */
  async #compare(notes: unknown): Promise<null> {
    for (const note of Array.isArray(notes) ? notes.slice(0, maxNotes) : []) {
      const owner = await this.#members.find(logOwnerOf(parseNote(note)))
      const link = this.#options.links().find(({ peer }) => peer.nodeId === owner?.nodeId)
      if (!owner || !link) continue
      // Of a note that the owner has not signed it knows nothing.
      signedNote(owner, note)
      const prove = (oldSize: number, size: number): Promise<unknown> =>
        link.call('consistency', { oldSize, size })
      await this.#refusing(link, () => this.#witness.compare(owner, note, prove))
    }
    return null
  }

  async #refusing<T>(link: FrameStream, act: () => Promise<T>): Promise<T> {
    try {
      return await act()
    } catch (error) {
      if (error instanceof SparkError && error.code === 'ERR_DENIED')
        this.#options.onRefused(link, error.message)
      throw error
    }
  }
}

/** Notes as they fit in messages. */
export function batchesOf(notes: readonly string[]): string[][] {
  const batches: string[][] = []
  let bytes = maxBytes
  for (const note of notes) {
    const length = Buffer.byteLength(JSON.stringify(note)) + 1
    if (bytes + length > maxBytes || batches.at(-1)!.length === maxNotes) {
      batches.push([])
      bytes = 0
    }
    batches.at(-1)!.push(note)
    bytes += length
  }
  return batches
}
