// verify-audit.ts: finds what was changed in an audit log: edits, cuts, reorders, forks.
import { SparkError } from '../../core/errors.js'
import { type LogOwner, linesOf, notesOf, readOwner, segmentsIn } from './audit-files.js'
import { type AuditRecord, firstPrev, hashOf, recordOf } from './audit-record.js'
import { cosignedAt, isSignedByLog, parseNote, type SignedNote, witnessesIn } from './checkpoint.js'
import { MerkleTree } from './merkle.js'
import type { SigningNode } from './witness.js'

/** What was found. `torn`: the last line is incomplete, as a killed process leaves it. */
export type AuditProblemKind = 'edit' | 'cut' | 'reorder' | 'fork' | 'signature' | 'torn' | 'damage'

/** Something wrong with a log. */
export interface AuditProblem {
  /** What it is, for programs. */
  readonly kind: AuditProblemKind
  /** File and record, and what is wrong. */
  readonly message: string
}

/** What {@link verifyAudit} compares a log with. */
export interface VerifyAuditOptions {
  /** Who owns the log. Default: what the folder says; whoever can write the folder can change that. */
  readonly owner?: LogOwner
  /** Checkpoints of the log that others have kept: they show forks and cuts that the folder itself cannot show. */
  readonly notes?: readonly string[]
  /** Nodes whose cosignatures count. */
  readonly peers?: readonly SigningNode[]
}

/** What {@link verifyAudit} found. */
export interface AuditReport {
  /** Whether nothing was found. */
  readonly isIntact: boolean
  /** The owner of the log. */
  readonly nodeId: string
  /** Records that were read. */
  readonly records: number
  /** Checkpoints that were compared. */
  readonly checkpoints: number
  /** Records that the last good checkpoint covers: of later ones a cut is not seen. */
  readonly covered: number
  /** Records that a checkpoint with the cosignature of a peer covers. */
  readonly cosigned: number
  /** The first 100. */
  readonly problems: readonly AuditProblem[]
}

const maxProblems = 100

/**
 * Verifies an audit log: each line against the hash in the next one, all of them against the signed checkpoints in the folder
 * and those that peers have kept.
 * @throws SparkError ERR_IO when the folder holds no log
 */
export async function verifyAudit(folder: string, options: VerifyAuditOptions = {}): Promise<AuditReport> {
  const { peers = [] } = options
  const problems: AuditProblem[] = []
  const found = (kind: AuditProblemKind, message: string): void => {
    if (problems.length < maxProblems) problems.push({ kind, message })
  }
  const owner = options.owner ?? (await readOwner(folder))
  // Before the records: a node that runs signs a checkpoint when its records are on the disk.
  const own = await readNotes(folder, found)
  const tree = await readTree(folder, found)
  const notes = [
    ...own.map(text => ({ text, source: 'a checkpoint in the folder' })),
    ...(options.notes ?? []).map(text => ({ text, source: 'a checkpoint that a peer has kept' })),
  ]
  let [covered, cosigned] = [0, 0]
  for (const { text, source } of notes) {
    const note = checkedNote(text, source, owner, found)
    if (!note || !agrees(note, source, tree, found)) continue
    covered = Math.max(covered, note.size)
    if (isCosigned(note, peers, found)) cosigned = Math.max(cosigned, note.size)
  }
  const isIntact = problems.length === 0
  const { nodeId } = owner
  return { isIntact, nodeId, records: tree.size, checkpoints: notes.length, covered, cosigned, problems }
}

type Found = (kind: AuditProblemKind, message: string) => void

async function readNotes(folder: string, found: Found): Promise<string[]> {
  const notes: string[] = []
  try {
    for await (const note of notesOf(folder)) notes.push(note)
  } catch (error) {
    found('damage', (error as SparkError).message)
  }
  return notes
}

/** The tree over all lines, whatever is in them. */
async function readTree(folder: string, found: Found): Promise<MerkleTree> {
  const tree = new MerkleTree()
  let prev = firstPrev
  let expected = 0
  for (const segment of await segmentsIn(folder)) {
    try {
      for await (const { bytes, isWhole } of linesOf(segment)) {
        if (!isWhole) {
          found('torn', `${segment.file}: the last line, behind record ${expected - 1}, is incomplete`)
          continue
        }
        const record = recordOf(bytes)
        if (!record) found('edit', `${segment.file}: record ${expected} is no record`)
        else compare(record, expected, prev, segment.file, found)
        expected = (record?.seq ?? expected) + 1
        const hash = hashOf(bytes)
        prev = hash.toString('hex')
        tree.append(hash)
      }
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      found('damage', error.message)
    }
  }
  return tree
}

function compare(record: AuditRecord, expected: number, prev: string, file: string, found: Found): void {
  const { seq } = record
  if (seq > expected) {
    found('cut', `${file}: record ${seq} follows ${expected - 1}; what was between them is not there`)
  } else if (seq < expected) {
    found('reorder', `${file}: record ${seq} follows ${expected - 1}`)
  } else if (record.prev !== prev) {
    const before =
      seq === 0 ? 'the first record has a predecessor' : `record ${seq - 1} was edited, or ${seq} was`
    found('edit', `${file}: ${before}: the hash does not match`)
  }
}

function checkedNote(text: string, source: string, owner: LogOwner, found: Found): SignedNote | null {
  try {
    const note = parseNote(text)
    if (isSignedByLog(note, owner.nodeId, owner.publicKey)) return note
    found('signature', `${source} of ${note.size} records is not signed by node ${owner.nodeId}`)
  } catch (error) {
    found('signature', `${source}: ${(error as Error).message}`)
  }
  return null
}

/** Whether the log is, or continues, what a signed checkpoint says. */
function agrees({ size, root }: SignedNote, source: string, tree: MerkleTree, found: Found): boolean {
  if (size > tree.size) {
    found('cut', `${source} has ${size} records, the log ${tree.size}: its end was cut off`)
    return false
  }
  if (tree.rootAt(size).equals(root)) return true
  found('fork', `${source} of ${size} records has another root: the log was rewritten before record ${size}`)
  return false
}

function isCosigned(note: SignedNote, peers: readonly SigningNode[], found: Found): boolean {
  const known = peers.filter(({ nodeId }) => witnessesIn(note).includes(nodeId))
  const wrong = known.filter(({ nodeId, publicKey }) => cosignedAt(note, nodeId, publicKey) === null)
  for (const { nodeId } of wrong)
    found('signature', `the cosignature of node ${nodeId} on the checkpoint of ${note.size} records is wrong`)
  return known.length > wrong.length
}
