// audit.ts: the audit log of a node: who did what, in files that cannot be changed unseen.
import { type FileHandle, rm, truncate } from 'node:fs/promises'
import path from 'node:path'
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { ioError } from '../../io/atomic-write.js'
import { type Lock, lockFolder } from '../../io/lock.js'
import {
  addNote,
  archive,
  cutTornNote,
  linesOf,
  notesOf,
  openSegment,
  segmentFile,
  segmentsIn,
  writeOwner,
} from './audit-files.js'
import { type AuditEvent, checkedEvent, firstPrev, hashOf, lineOf, recordOf } from './audit-record.js'
import { type Checkpoint, parseNote, signCheckpoint, witnessName } from './checkpoint.js'
import { clusterHome, makeSecretFolder } from './home.js'
import { MerkleTree } from './merkle.js'
import type { NodeIdentity } from './node-identity.js'

/** How an {@link AuditLog} is written. */
export interface AuditOptions {
  /** Default: `audit` in the home of the node. */
  readonly folder?: string
  /** A file of records is archived when it is this long. Default: 64 MiB. */
  readonly segmentBytes?: number
  /** A checkpoint is signed after so many records. Default: 256. */
  readonly checkpointRecords?: number
  /** And after so long, where there are new records. Default: 10,000 ms. */
  readonly checkpointMs?: number
  /** Gets each checkpoint when it is on the disk: for witnesses. */
  onCheckpoint?(note: string): void
}

interface Waiting {
  readonly event: AuditEvent
  resolve(seq: number): void
  reject(error: unknown): void
}

/** Records that wait for the disk at most. */
const maxWaiting = 65_536
/** Records that are written at once at most. */
const maxBatch = 4096

/** The folder of the audit log of this node. */
export const auditFolder = (home = clusterHome()): string => path.join(home, 'audit')

/**
 * The audit log of a node. Records are lines of JSON, each with the hash of the one before; a Merkle tree over all of them is
 * signed in checkpoints, which other nodes cosign. {@link verifyAudit} finds what was changed.
 * @example
 * const log = await AuditLog.open(identity)
 * await log.append({ actor: nodeId, op: 'allocate', device: 'GPU-1', bytes: 1 << 30, result: 'ok' })
 */
export class AuditLog {
  /** The folder of the log. */
  readonly folder: string
  readonly #identity: NodeIdentity
  readonly #options: Required<Omit<AuditOptions, 'folder' | 'onCheckpoint'>> & AuditOptions
  readonly #tree = new MerkleTree()
  readonly #lock: Lock
  #prev = firstPrev
  #segment = 1
  #handle: FileHandle | undefined
  #bytes = 0
  #note: string | undefined
  /** The last one with signatures of witnesses. */
  #cosigned: string | undefined
  #noted = 0
  #waiting: Waiting[] = []
  #writing: Promise<void> | undefined
  #isClosed = false
  readonly #timer: NodeJS.Timeout

  private constructor(folder: string, identity: NodeIdentity, lock: Lock, options: AuditOptions) {
    const defaults = { segmentBytes: 64 << 20, checkpointRecords: 256, checkpointMs: 10_000 }
    this.folder = folder
    this.#identity = identity
    this.#lock = lock
    this.#options = { ...defaults, ...options }
    this.#timer = setInterval(() => this.#start(), this.#options.checkpointMs).unref()
  }

  /**
   * Opens a log, and goes on where it ended. A line that was torn when its process was killed is cut off, which is recorded.
   * @throws SparkError ERR_BUSY when another process writes it; ERR_FORMAT when a line is no record or the chain does not hold:
   * {@link verifyAudit} says more; ERR_IO
   */
  static async open(identity: NodeIdentity, options: AuditOptions = {}): Promise<AuditLog> {
    const { folder = auditFolder(identity.folder), segmentBytes, checkpointRecords, checkpointMs } = options
    for (const [name, value] of Object.entries({ segmentBytes, checkpointRecords, checkpointMs }))
      if (value !== undefined) expectInteger(name, value, 1)
    await makeSecretFolder(folder)
    const lock = await lockFolder(folder)
    const log = new AuditLog(folder, identity, lock, options)
    try {
      await writeOwner(folder, identity)
      const repair = await log.#read()
      log.#handle = await openSegment(folder, log.#segment)
      if (repair !== '') await log.append({ actor: identity.nodeId, op: 'repair', result: repair })
      return log
    } catch (error) {
      await log.close().catch(() => {})
      throw ioError('write', folder, error)
    }
  }

  /** Records that are on the disk. */
  get size(): number {
    return this.#tree.size
  }

  /** The last checkpoint, a C2SP signed note; undefined before the first one. */
  get checkpoint(): string | undefined {
    return this.#note
  }

  /** Proof that the log of `size` records continues the one of `oldSize`. @throws SparkError ERR_RANGE */
  consistencyProof(oldSize: number, size: number): Buffer[] {
    return this.#tree.consistencyProof(oldSize, size)
  }

  /**
   * Records an event. Those that come while others are written are written together.
   * @returns its number, when it is on the disk
   * @throws SparkError ERR_ARGUMENT, ERR_DISPOSED, ERR_BUSY when 65,536 wait, ERR_IO when the disk is full
   */
  async append(event: AuditEvent): Promise<number> {
    const checked = checkedEvent(event)
    if (this.#isClosed) throw new SparkError('ERR_DISPOSED', 'the audit log is closed')
    if (this.#waiting.length >= maxWaiting)
      throw new SparkError('ERR_BUSY', `${maxWaiting} records wait for the disk: try again later`)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ event: checked, resolve, reject })
      this.#start()
    })
  }

  /** Appends a signature of a witness to the last checkpoint, if it still is the one that was signed and has none of that witness. */
  async addCosignature(note: string, line: string): Promise<void> {
    if (this.#note === undefined) return
    const { body, signatures } = parseNote(this.#note)
    const signed = parseNote(note + line)
    const own = signed.signatures.at(-1)!
    const isKnown = signatures.some(({ name, keyId }) => name === own.name && keyId === own.keyId)
    if (signed.body === body && !isKnown) await this.#keepNote(this.#note + line)
  }

  /** Writes what waits, signs a checkpoint and ends. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#timer)
    try {
      this.#start()
      await this.#writing
      if (this.#handle && this.#noted < this.size) await this.#sign()
    } finally {
      await this.#handle?.close()
      this.#lock.release()
    }
  }

  /** Reads what there is. @returns what was cut off, or '' */
  async #read(): Promise<string> {
    const segments = await segmentsIn(this.folder)
    let repair = ''
    for (const [i, segment] of segments.entries()) {
      const isLast = i === segments.length - 1
      for await (const { bytes, isWhole, offset } of linesOf(segment)) {
        if (!isWhole && isLast && !segment.isArchive) {
          repair = `${bytes.byteLength} bytes of a torn line at the end of ${path.basename(segment.file)} were cut off`
          await truncate(segment.file, offset)
          break
        }
        this.#take(segment.file, bytes, isWhole)
        this.#bytes = offset + bytes.byteLength + 1
      }
      if (segment.isArchive) await rm(segmentFile(this.folder, segment.number), { force: true })
      else if (!isLast) await archive(this.folder, segment.number)
      this.#segment = segment.number + (segment.isArchive ? 1 : 0)
      if (!isLast || segment.isArchive) this.#bytes = 0
    }
    await cutTornNote(this.folder)
    for await (const note of notesOf(this.folder)) this.#remember(note)
    if (this.#note !== undefined) this.#expectContinued(parseNote(this.#note))
    return repair
  }

  /** A log that was changed is not signed again. */
  #expectContinued({ size, root }: Checkpoint): void {
    this.#noted = size
    if (size <= this.size && this.#tree.rootAt(size).equals(root)) return
    const found = `${this.folder} is not the log of its last checkpoint, of ${size} records`
    throw new SparkError('ERR_FORMAT', `${found}: see dgx-spark audit verify`)
  }

  #take(file: string, bytes: Buffer, isWhole: boolean): void {
    const record = isWhole ? recordOf(bytes) : null
    if (record?.seq !== this.size || record.prev !== this.#prev)
      throw new SparkError(
        'ERR_FORMAT',
        `${file}: record ${this.size} is damaged; see dgx-spark audit verify`,
      )
    this.#append(hashOf(bytes))
  }

  #append(hash: Buffer): void {
    this.#tree.append(hash)
    this.#prev = hash.toString('hex')
  }

  #start(): void {
    if (this.#writing || !this.#handle) return
    this.#writing = this.#writeAll()
      .catch(error => debug(`audit log: ${(error as Error).message}`))
      .finally(() => {
        this.#writing = undefined
        if (this.#waiting.length > 0) this.#start()
      })
  }

  /** Writes batches until nothing waits, then a checkpoint where one is due. */
  async #writeAll(): Promise<void> {
    let isDue = this.#waiting.length === 0
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, maxBatch)
      try {
        await this.#write(batch)
      } catch (error) {
        const refused = ioError('write', this.folder, error)
        for (const { reject } of batch) reject(refused)
        return
      }
      if (this.#bytes >= this.#options.segmentBytes) await this.#rotate()
      isDue ||= this.size - this.#noted >= this.#options.checkpointRecords
      if (isDue && this.size > this.#noted) await this.#sign()
    }
    if (isDue && this.size > this.#noted) await this.#sign()
  }

  async #write(batch: readonly Waiting[]): Promise<void> {
    const lines: Buffer[] = []
    const hashes: Buffer[] = []
    let prev = this.#prev
    for (const [i, { event }] of batch.entries()) {
      const line = lineOf(this.size + i, prev, event)
      const hash = hashOf(line)
      prev = hash.toString('hex')
      lines.push(line, Buffer.from('\n'))
      hashes.push(hash)
    }
    const bytes = Buffer.concat(lines)
    const handle = this.#handle!
    try {
      await handle.appendFile(bytes)
      await handle.datasync()
    } catch (error) {
      // What has arrived of them is not in the log.
      await handle.truncate(this.#bytes).catch(() => {})
      throw error
    }
    this.#bytes += bytes.byteLength
    const first = this.size
    for (const hash of hashes) this.#append(hash)
    for (const [i, { resolve }] of batch.entries()) resolve(first + i)
  }

  /** Begins the next file, and archives the full one. */
  async #rotate(): Promise<void> {
    await this.#sign()
    const [full, fullHandle] = [this.#segment, this.#handle!]
    // Where the disk is full the log goes on in the file that is open.
    this.#handle = await openSegment(this.folder, full + 1)
    this.#segment++
    this.#bytes = 0
    await fullHandle.close()
    await archive(this.folder, full)
  }

  async #sign(): Promise<void> {
    const note = signCheckpoint(this.#identity, this.size, this.#tree.root)
    await this.#keepNote(note)
    this.#noted = this.size
    this.#options.onCheckpoint?.(note)
  }

  async #keepNote(note: string): Promise<void> {
    await addNote(this.folder, note, this.#cosigned)
    this.#remember(note)
  }

  #remember(note: string): void {
    this.#note = note
    if (note.includes(witnessName(''))) this.#cosigned = note
  }
}
