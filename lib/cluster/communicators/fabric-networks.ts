// fabric-networks.ts: which networks of this machine may carry what is not encrypted, and which links are fast enough for
// tensor parallelism.
import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import { argumentError, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Fabric } from '../links/fabric.js'

/** An address of an interface, and its network, `10.77.0.0/24`. */
export interface FabricNetwork {
  readonly address: string
  readonly network: string
}

/** The longest round trip in which tensor parallelism gains anything: each layer waits for two. */
export const maxTensorRttMs = 1

/**
 * The networks of an interface that are declared as fabric, IPv4 ones first. MPI and NCCL send plaintext, so everything else
 * is refused.
 * @param name - of an interface of this machine
 * @throws SparkError ERR_ARGUMENT for an interface that is not there, ERR_DENIED where none of its networks is fabric
 */
export function fabricNetworks(kind: string, name: string, fabric: Fabric): readonly FabricNetwork[] {
  expectText('interface', name)
  const all = networkInterfaces()
  const addresses = all[name]
  if (!addresses) throw argumentError('interface', `one of ${Object.keys(all).join(', ')}`, name)
  const found = addresses
    .filter(({ address }) => fabric.includes(address))
    .sort((a, b) => isIP(a.address) - isIP(b.address))
    .map(({ address, cidr }) => ({ address, network: cidr ?? address }))
  if (found.length > 0) return found
  throw new SparkError(
    'ERR_DENIED',
    `${kind} does not encrypt: interface ${name} (${addresses.map(({ address }) => address).join(', ')}) is not in the declared fabric. Declare it as fabric when nobody else is on it, or use kind 'stream'`,
  )
}

/** A link that two nodes of a group would send their sums over. */
export interface TensorLink {
  /** What people call the nodes. */
  readonly nodes: readonly [string, string]
  /** Whether both have declared its network as fabric. */
  readonly fabric: boolean
  /** The longer median of their round trips, ms; undefined where it was not measured. */
  readonly rttMs: number | undefined
}

/**
 * Checks that a link can carry tensor parallelism: within the fabric, and fast.
 * @param maxRttMs - the longest round trip
 * @throws SparkError ERR_DENIED for a link outside of the fabric; ERR_UNSUPPORTED for one that is too slow or was not
 * measured, with the number
 */
export function checkTensorLink({ nodes, fabric, rttMs }: TensorLink, maxRttMs = maxTensorRttMs): void {
  const [a, b] = nodes
  if (rttMs === undefined || rttMs > maxRttMs) {
    const number = rttMs === undefined ? 'was not measured' : `takes ${rttMs.toFixed(2)} ms there and back`
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `the link between ${a} and ${b} ${number}; tensor parallelism needs ${maxRttMs} ms or less, since each layer waits for two all-reduces. Use a faster link, or strategy 'pipeline'`,
    )
  }
  if (fabric) return
  throw new SparkError(
    'ERR_DENIED',
    `the link between ${a} and ${b} takes ${rttMs.toFixed(2)} ms there and back, but is not in the fabric that both have declared, and whoever else is on its network can hold up each layer. Declare the network on both nodes, such as dgx-spark up --fabric 10.77.0.0/24, or use strategy 'pipeline'`,
  )
}
