// node-audit.ts: what happens on a node, for its audit log: memory, models, work, transfers, tokens and refusals. Telemetry
// is no event.
import { debug } from '../../core/log.js'
import type { AuditLog } from '../trust/audit.js'
import { type AuditEvent, type AuditOp, checkedEvent } from '../trust/audit-record.js'
import type { ClusterState } from './cluster-state.js'

/** Something that a node did for somebody. */
export interface NodeAuditEntry {
  /** What was done. */
  readonly op: Exclude<AuditOp, 'repair'>
  /** For whom: uuid of a node, subject of a token, or an address. */
  readonly who: string
  /** Id of the token. */
  readonly jti?: string
  /** Id of the device. */
  readonly device?: string
  /** Of memory or of a transfer. */
  readonly bytes?: number
  /** What went wrong. Default: `ok`. */
  readonly result?: string
}

/**
 * Records what happens on a node. Work goes on when the disk is full; what could not be recorded is counted.
 * @example
 * node.audit.record({ op: 'load', who: link.peer.nodeId, device: 'GPU-1', bytes: 1 << 30 })
 */
export class NodeAudit {
  readonly #log: AuditLog
  #lost = 0

  /** @internal */
  constructor(log: AuditLog) {
    this.#log = log
  }

  /** Records on the disk, and entries that could not be written since the node started. */
  get counts(): Pick<ClusterState['audit'], 'records' | 'lost'> {
    return { records: this.#log.size, lost: this.#lost }
  }

  /**
   * Records an entry.
   * @returns whether it is on the disk, once that is known
   * @throws SparkError ERR_ARGUMENT, at once
   */
  record({ who, result = 'ok', ...entry }: NodeAuditEntry): Promise<boolean> {
    return this.add(checkedEvent({ actor: who, result, ...entry }))
  }

  /** @internal records an event. */
  async add(event: AuditEvent): Promise<boolean> {
    try {
      await this.#log.append(event)
      return true
    } catch (error) {
      this.#lost++
      debug(`audit: ${(error as Error).message}`)
      return false
    }
  }
}
