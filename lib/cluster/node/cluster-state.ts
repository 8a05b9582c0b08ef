// cluster-state.ts: what a node knows of its cluster, as one JSON document, and what changes in it.

import type { ControlPlane } from '../control/control-plane.js'
import type { DeviceRecord } from '../devices/device-record.js'
import type { PressureLevel } from '../devices/pressure.js'
import type { FoundNode } from '../discovery/discovery.js'
import type { LinkReport } from '../links/measure.js'
import type { RefusalKind } from '../trust/refusals.js'
import type { Route } from './routes.js'

/** What a node does under pressure, and why. */
export interface PressureState {
  /** What it does. */
  readonly level: PressureLevel
  /** In words with numbers; empty when nothing presses. */
  readonly reasons: readonly string[]
}

/** A node of the cluster. */
export interface NodeState {
  /** A uuid. */
  readonly id: string
  /** What it calls itself. */
  readonly name: string
  /** Of the library. */
  readonly version: string
  /** Whether it is this node. */
  readonly isSelf: boolean
  /** Whether there is a link to it. */
  readonly isOnline: boolean
  /** Where it takes links, `host:port`; undefined where it was never reached. */
  readonly address: string | undefined
  /** What it does under pressure; undefined where it did not say. */
  readonly pressure?: PressureLevel | undefined
  /** Milliseconds since 1970 since when it is as it is. */
  readonly since: number
}

/** All that a node knows of its cluster. */
export interface ClusterState {
  /** Rises with each change. */
  readonly version: number
  /** The cluster. */
  readonly cluster: {
    /** A uuid. */
    readonly id: string
    /** What it was begun as. */
    readonly name: string
    /** SHA-256 of the certificate of the CA, hex. */
    readonly fingerprint: string
    /** Whether the CA is on this node. */
    readonly hasAuthority: boolean
    /** Where nodes join now; null while nobody may. */
    readonly enrolmentPort: number | null
  }
  /** This node, and those that it ever had links to. */
  readonly nodes: readonly NodeState[]
  /** Without the sets of operators, which are long. */
  readonly devices: readonly DeviceRecord[]
  /** Those of this node. */
  readonly links: readonly LinkReport[]
  /** Those of all nodes, in short. */
  readonly routes: readonly Route[]
  /** What announces itself and is no node of this cluster. */
  readonly others: readonly FoundNode[]
  /** What this node does under pressure; null where it does not look. */
  readonly pressure: PressureState | null
  /** What was refused on this node since it started, by kind. */
  readonly refused: Readonly<Partial<Record<RefusalKind, number>>>
  /** The audit log of this node. */
  readonly audit: {
    /** Records on the disk. */
    readonly records: number
    /** Entries that could not be written since it started. */
    readonly lost: number
    /** Nodes that are there and have cosigned it. */
    readonly witnesses: number
  }
  /** Of the control plane on this node. */
  readonly control: Pick<ControlPlane, 'kind' | 'quorum'>
}

/** A device as the state has it. */
export const withoutOperators = ({ backends, ...device }: DeviceRecord): DeviceRecord => ({
  ...device,
  backends: backends.map(backend => ({ ...backend, operators: [] })),
})

/** A change of the state. */
export interface ClusterEvent {
  /** {@link ClusterState.version} after it. */
  readonly version: number
  /** What happened. */
  readonly type:
    | 'node-joined'
    | 'node-online'
    | 'node-offline'
    | 'device'
    | 'link'
    | 'refused'
    | 'revoked'
    | 'enrolment'
    | 'witness'
    | 'pressure'
  /** Milliseconds since 1970. */
  readonly time: number
  /** What it happened to: the id of a node or device, or an address. */
  readonly subject: string
  /** More, in words; empty where there is none. */
  readonly detail: string
}

/** Events that are kept for readers who come back. */
const keptEvents = 1024

/** Events with rising versions, the latest of them kept. */
export class ClusterEvents {
  readonly #kept: ClusterEvent[] = []
  readonly #listeners = new Set<(event: ClusterEvent) => void>()
  #version = 0

  /** Of the last event. */
  get version(): number {
    return this.#version
  }

  /** @internal */
  add(type: ClusterEvent['type'], subject: string, detail = ''): void {
    const event = { version: ++this.#version, type, time: Date.now(), subject, detail }
    this.#kept.push(event)
    if (this.#kept.length > keptEvents) this.#kept.shift()
    for (const listener of this.#listeners) listener(event)
  }

  /** Events behind a version, or undefined where some of them are no longer kept. */
  since(version: number): readonly ClusterEvent[] | undefined {
    const first = this.#kept[0]?.version ?? this.#version + 1
    if (version > this.#version || version < first - 1) return undefined
    return this.#kept.filter(event => event.version > version)
  }

  /** Calls `listener` with each event. @returns a function that ends it */
  listen(listener: (event: ClusterEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}
