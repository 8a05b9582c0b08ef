// audit-record.ts: the records of an audit log, one line of JSON each, chained by hashes.
import { argumentError, expectOneOf } from '../../core/checks.js'
import { leafHash } from './merkle.js'

/** What was done. `repair`: the log cut off a line that was torn when its process was killed. */
export const auditOps = [
  'allocate',
  'free',
  'load',
  'compute',
  'transfer',
  'token-use',
  'refusal',
  'repair',
] as const

/** What was done. */
export type AuditOp = (typeof auditOps)[number]

/** Something that is recorded. */
export interface AuditEvent {
  /** Who did it: uuid of a node, subject of a token, or an address. */
  readonly actor: string
  /** What was done. */
  readonly op: AuditOp
  /** Id of the token. */
  readonly jti?: string
  /** Id of the device. */
  readonly device?: string
  /** Of memory or of a transfer. */
  readonly bytes?: number
  /** `ok`, or what went wrong. */
  readonly result: string
}

/** A record of the log. */
export interface AuditRecord extends AuditEvent {
  /** From 0. */
  readonly seq: number
  /** ISO 8601. */
  readonly time: string
  /** {@link leafHash} of the line before, hex; 64 zeros in the first one. */
  readonly prev: string
}

/** What the first record has as the hash of the one before. */
export const firstPrev = '0'.repeat(64)

const maxText = 500

/** Checks an event. Long results are cut. @throws SparkError ERR_ARGUMENT */
export function checkedEvent(event: AuditEvent): AuditEvent {
  const { actor, op, jti, device, bytes, result } = event
  expectOneOf('op', op, auditOps)
  for (const [name, value] of Object.entries({ actor, jti, device, result })) {
    if (value === undefined && (name === 'jti' || name === 'device')) continue
    if (typeof value !== 'string' || (value.length > maxText && name !== 'result'))
      throw argumentError(name, `a string of at most ${maxText} characters`, value)
  }
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes >= 0))
    throw argumentError('bytes', 'an integer >= 0', bytes)
  return {
    actor,
    op,
    ...(jti !== undefined && { jti }),
    ...(device !== undefined && { device }),
    ...(bytes !== undefined && { bytes }),
    result: result.slice(0, maxText),
  }
}

/** The line of a record, without its line feed. */
export const lineOf = (seq: number, prev: string, event: AuditEvent): Buffer =>
  Buffer.from(JSON.stringify({ seq, time: new Date().toISOString(), ...event, prev }))

/** The record of a line, or null when it is none. */
export function recordOf(line: Uint8Array): AuditRecord | null {
  try {
    const record = JSON.parse(Buffer.from(line).toString('utf8')) as AuditRecord
    const isRecord = Number.isSafeInteger(record.seq) && typeof record.prev === 'string'
    return isRecord ? record : null
  } catch {
    return null
  }
}

/** The hash of a line: its leaf in the Merkle tree, and `prev` of the next one. */
export const hashOf = (line: Uint8Array): Buffer => leafHash(line)
