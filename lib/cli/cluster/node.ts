// node.ts: `dgx-spark node`: who this machine is in its cluster, and which devices it has seen.

import path from 'node:path'
import type { Command } from 'commander'
import type { DeviceRecord } from '../../cluster/devices/device-record.js'
import { DeviceRegistry } from '../../cluster/devices/device-registry.js'
import { ClusterAuthority, fingerprintOf } from '../../cluster/trust/authority.js'
import { loadCredentials, validityOf } from '../../cluster/trust/credentials.js'
import { clusterHome } from '../../cluster/trust/home.js'
import { isUuid, NodeIdentity } from '../../cluster/trust/node-identity.js'
import { SparkError } from '../../core/errors.js'
import { withExamples } from '../command.js'
import { pathFrom } from '../numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from '../output.js'
import { printTable } from '../table.js'

interface Flags {
  home?: string
  revoke?: string
  json?: boolean
}

/** `dgx-spark node`. */
export function addNode(command: Command): void {
  command
    .option('--home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)', pathFrom)
    .option(
      '--revoke <id>',
      'revoke a node, on the node that began the cluster: its links end, and it may not come back',
    )
    .option('--json', 'print one JSON document, with the operators of each backend')
    .action(run)
  withExamples(
    command,
    'dgx-spark node',
    'dgx-spark node --json',
    'dgx-spark node --revoke 2f1c5a0e-9d7b-4e59-8f43-0d8f0f9b7a11',
  )
}

async function run({ home = clusterHome(), revoke, json }: Flags): Promise<void> {
  if (revoke !== undefined) {
    await revokeNode(home, revoke)
    if (json) printJson({ revoked: revoke })
    else print(`${revoke} is revoked`)
    return
  }
  const { nodeId, publicKey } = await NodeIdentity.open(home)
  const credentials = await loadCredentials(home)
  const registry = await DeviceRegistry.open({ nodeId, file: path.join(home, 'devices.json') })
  await registry.poll()
  const cluster = credentials && {
    id: credentials.clusterId,
    name: credentials.clusterName,
    fingerprint: fingerprintOf(credentials.ca),
    certificateUntil: validityOf(credentials.certificate).to.toISOString(),
  }
  if (json) {
    printJson({ nodeId, publicKey, home, cluster: cluster ?? null, devices: registry.devices })
    return
  }
  print(styled('bold', 'Node'))
  printPairs([
    ['id', nodeId],
    ['key', publicKey],
    ['folder', home],
    ['cluster', cluster ? cluster.name : 'none: dgx-spark up begins or joins one'],
    ...(cluster ? ([['certificate', `until ${cluster.certificateUntil}`]] as const) : []),
  ])
  print()
  print(styled('bold', 'Devices seen'))
  printTable(['device', 'model', 'memory', 'driver', 'support', 'state'], registry.devices.map(deviceRow))
}

/** @throws SparkError ERR_ARGUMENT for what is no id of a node, or that of this one; ERR_DENIED for a node without a certificate */
async function revokeNode(home: string, nodeId: string): Promise<void> {
  const authority = await ClusterAuthority.open(home)
  if (!isUuid(nodeId))
    throw new SparkError('ERR_ARGUMENT', `--revoke ${nodeId}: an id of a node is a uuid in lower case`)
  if (nodeId === (await NodeIdentity.open(home)).nodeId)
    throw new SparkError(
      'ERR_ARGUMENT',
      `--revoke ${nodeId}: this is the node that began the cluster, which cannot be revoked`,
    )
  if (!(await authority.issued()).some(each => each.nodeId === nodeId))
    throw new SparkError('ERR_DENIED', `there is no node ${nodeId} with a certificate of this cluster`)
  await authority.revocations.add({ nodes: [nodeId] })
}

const deviceRow = ({ id, model, memoryBytes, driver, support, state }: DeviceRecord): string[] => [
  ...[id, model, memoryBytes === undefined ? 'unknown' : formatBytes(memoryBytes), driver ?? ''],
  ...[`${support.class}: ${support.reason}`, state ?? 'unknown'],
]
