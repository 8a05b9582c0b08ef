// node-parts.ts: what a node opens in its folder before it takes links.
import path from 'node:path'
import { DeviceRegistry } from '../devices/device-registry.js'
import { StageService } from '../stages/stage-service.js'
import { AuditLog, auditFolder } from '../trust/audit.js'
import type { ClusterAuthority } from '../trust/authority.js'
import type { NodeCredentials } from '../trust/credentials.js'
import { clusterHome } from '../trust/home.js'
import { NodeIdentity } from '../trust/node-identity.js'
import { Revocations } from '../trust/revocations.js'
import type { Look } from './look.js'
import { becomeMember } from './membership.js'
import { NodeAudit } from './node-audit.js'
import { NodeControl } from './node-control.js'
import { NodeJobs } from './node-jobs.js'
import { type ClusterNodeOptions, fabricOf } from './node-options.js'
import { PressureWatch } from './pressure-watch.js'

/** What a node is made of, once it is a member. */
export interface NodeParts {
  readonly identity: NodeIdentity
  readonly credentials: NodeCredentials
  readonly authority: ClusterAuthority | undefined
  readonly revocations: Revocations
  readonly registry: DeviceRegistry
  readonly control: NodeControl
  readonly log: AuditLog
  readonly audit: NodeAudit
  readonly pressure: PressureWatch | null
  readonly stages: StageService
  readonly jobs: NodeJobs
}

/**
 * Becomes a member and opens what the folder holds.
 * @param onCheckpoint - told of each checkpoint of the audit log
 */
export async function openParts(
  options: ClusterNodeOptions,
  look: Look,
  onCheckpoint: () => void,
): Promise<NodeParts> {
  const home = options.home ?? clusterHome()
  const pressure = options.pressure === null ? null : new PressureWatch(options.pressure ?? {})
  const identity = await NodeIdentity.open(home)
  const { credentials, authority } = await becomeMember(identity, options, look)
  const revocations = authority?.revocations ?? (await Revocations.open(home))
  const opened: { close(): Promise<unknown> }[] = []
  const open = async <T extends { close(): Promise<unknown> }>(opening: Promise<T>): Promise<T> => {
    const part = await opening
    opened.unshift(part)
    return part
  }
  try {
    const { nodeId } = identity
    // Locks the folder: of two processes the second ends here.
    const log = await open(AuditLog.open(identity, { folder: auditFolder(home), onCheckpoint }))
    const registry = await DeviceRegistry.open({ nodeId, file: path.join(home, 'devices.json') })
    const stages = await open(StageService.open(nodeId, home, fabricOf(options)))
    const { control: kind, nats, host, port } = options
    const control = await open(
      NodeControl.open({
        ...{ folder: home, credentials, authority, revocations },
        ...(kind && { control: kind }),
        ...(nats && { nats }),
        ...(host !== undefined && { host }),
        ...(port !== undefined && { port }),
      }),
    )
    const audit = new NodeAudit(log)
    stages.onUse = use => void audit.record(use)
    const gate = pressure?.gate ?? null
    const jobs = await NodeJobs.open(
      { nodeId, home, stages, audit, control: control.plane, gate },
      options.jobs,
    )
    const trust = { identity, credentials, authority, revocations }
    return { ...trust, registry, control, log, audit, pressure, stages, jobs }
  } catch (error) {
    for (const part of opened) await part.close()
    throw error
  }
}
