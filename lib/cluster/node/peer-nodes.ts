// peer-nodes.ts: the other nodes of the cluster, as they were last seen.

import { type PressureLevel, pressureLevels } from '../devices/pressure.js'
import type { FrameStream } from '../links/frame-stream.js'
import { type Address, formatAddress } from '../links/pipe.js'
import type { NodeState } from './cluster-state.js'
import { defaultPort } from './node-options.js'

/** What a node says of itself. */
export interface SaidOfItself {
  readonly name?: unknown
  readonly version?: unknown
  /** Where it takes links. */
  readonly port?: unknown
  /** The Ed25519 key that it signs its audit log with: 32 bytes in base64url. */
  readonly publicKey?: unknown
}

/** Nodes that there are, or were, links to. */
export class PeerNodes {
  readonly #nodes = new Map<string, NodeState>()
  readonly #pressure = new Map<string, PressureLevel>()

  /** All of them. */
  get list(): readonly NodeState[] {
    return [...this.#nodes.values()].map(node => ({ ...node, pressure: this.#pressure.get(node.id) }))
  }

  /**
   * Notes a node that has come.
   * @param address - where it was reached, by the node that connected
   * @returns where it takes links
   */
  met(link: FrameStream, said: SaidOfItself | null, address: Address | undefined): Address {
    const { nodeId: id } = link.peer
    const { name, version, port: told } = said ?? {}
    const port = Number.isSafeInteger(told) ? (told as number) : defaultPort
    const at = address ?? { host: link.addresses.remote, port }
    this.#nodes.set(id, {
      ...{ id, name: plainName(name), version: plainName(version), address: formatAddress(at) },
      ...{ isSelf: false, isOnline: true, since: Date.now() },
    })
    return at
  }

  /** A node said what it does under pressure. */
  pressed(nodeId: string, level: unknown): void {
    const known = pressureLevels.find(each => each === level)
    if (known) this.#pressure.set(nodeId, known)
  }

  /** A node has gone. */
  lost(nodeId: string): void {
    this.#pressure.delete(nodeId)
    const node = this.#nodes.get(nodeId)
    if (node) this.#nodes.set(nodeId, { ...node, isOnline: false, since: Date.now() })
  }
}

/** A name that a peer tells, as it may be shown. */
const plainName = (value: unknown): string =>
  typeof value === 'string' ? value.replace(/[^\w .+-]/g, '?').slice(0, 64) : '?'
