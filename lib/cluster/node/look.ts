// look.ts: a node announces itself, and connects to the nodes of its cluster that are found.
import { createHash } from 'node:crypto'
import { totalmem } from 'node:os'
import path from 'node:path'
import { debug } from '../../core/log.js'
import { Discovery, type DiscoveryOptions } from '../discovery/discovery.js'
import { formatAddress } from '../links/pipe.js'
import { fingerprintOf } from '../trust/authority.js'
import type { NodeCredentials } from '../trust/credentials.js'
import type { ClusterNodeOptions } from './node-options.js'
import type { PeerLinks } from './peer-links.js'

/** Where nodes are looked for. */
export type Look = Pick<DiscoveryOptions, 'mdns' | 'interfaces' | 'peers'>

/** Where a node looks. Where it joined it also connects, without multicast, too. */
export function lookOf({ mdns, interfaces, at, peers = [] }: ClusterNodeOptions): Look {
  return {
    ...(mdns !== undefined && { mdns }),
    ...(interfaces && { interfaces }),
    peers: [...peers, ...(at ? [formatAddress(at)] : [])],
  }
}

/** What is announced. */
export interface DiscoverOptions {
  readonly look: Look
  /** Where peers that were reached are kept. */
  readonly folder: string
  readonly credentials: NodeCredentials
  readonly name: string
  /** Where links are taken. */
  readonly port: number
  /** How many this node has. */
  readonly devices: number
}

/** What looks for other nodes once it is started. */
export function discoveryOf(options: DiscoverOptions): Discovery {
  const { look, folder, credentials, name, port, devices } = options
  const { nodeId, ca, clusterName } = credentials
  return new Discovery({
    ...look,
    knownPeersFile: path.join(folder, 'peers.json'),
    announce: {
      ...{ nodeId, name: name.replaceAll('.', '-'), port, fingerprint: fingerprintOf(ca), devices },
      namespace: createHash('sha256').update(clusterName).digest('hex').slice(0, 16),
      memoryGiB: Math.round(totalmem() / 2 ** 30),
    },
  })
}

/** Connects to nodes that are found, until the signal aborts. */
export async function connectFound(
  discovery: Discovery,
  links: PeerLinks,
  signal: AbortSignal,
): Promise<void> {
  for await (const { type, node } of discovery.events(signal)) {
    if (type === 'lost' || node.cluster === 'other') continue
    const find = () => discovery.nodes.find(({ key }) => key === node.key)
    links.connect(node.key, find).catch(error => debug(`links: ${(error as Error).message}`))
  }
}
