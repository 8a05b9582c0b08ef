// membership.ts: how a node comes to its credentials: those that it has, a cluster that it begins, or one that it joins.
import { SparkError } from '../../core/errors.js'
import { Discovery, type FoundNode } from '../discovery/discovery.js'
import { type Address, formatAddress } from '../links/pipe.js'
import { ClusterAuthority } from '../trust/authority.js'
import {
  loadCredentials,
  type NodeCredentials,
  needsRenewal,
  saveCredentials,
  validityOf,
} from '../trust/credentials.js'
import { parseCode } from '../trust/invitations.js'
import { joinCluster } from '../trust/join.js'
import type { NodeIdentity } from '../trust/node-identity.js'

/** The port behind that of the links is the one where nodes join. */
export const enrolmentPortOf = (port: number): number => port + 1

/** How a node becomes a member. */
export interface MembershipOptions {
  /** Name of a cluster to begin where this node has none. */
  readonly create?: string
  /** What `dgx-spark invite` printed on a node of the cluster to join. */
  readonly code?: string
  /** Joins a cluster that trusts its network at the moment, without a code. */
  readonly trustLan?: boolean
  /** Where the links of the node with the CA are taken. Default: nodes that are found. */
  readonly at?: Address
}

/** What a member has. */
export interface Membership {
  readonly credentials: NodeCredentials
  /** On the node that began the cluster. */
  readonly authority: ClusterAuthority | undefined
}

/** How nodes of a cluster are looked for before this one is a member. */
export interface LookOptions {
  readonly mdns?: boolean
  readonly interfaces?: readonly string[]
  readonly peers?: readonly string[]
}

/** How long nodes of other clusters are looked for, ms. */
const lookMs = 3000
/** How long a node that lets this one join is looked for, ms. */
const joinMs = 8000
/** After the first that fits, others may still answer for so long, ms. */
const settleMs = 300

/**
 * The credentials of this node.
 * @throws SparkError ERR_ARGUMENT where it has a cluster and another one is asked for; ERR_DENIED where it is refused, or its
 * certificate has expired and it is not to join again; ERR_IO where no cluster is found, or there is one on the network and it is not said whether to join it
 */
export async function becomeMember(
  identity: NodeIdentity,
  options: MembershipOptions,
  look: LookOptions,
): Promise<Membership> {
  const { folder } = identity
  const kept = await loadCredentials(folder)
  const authority = (await ClusterAuthority.isIn(folder)) ? await ClusterAuthority.open(folder) : undefined
  const wantsToJoin = options.code !== undefined || options.trustLan === true
  const isOver = kept !== undefined && !authority && validityOf(kept.certificate).to.getTime() <= Date.now()
  if (wantsToJoin && (kept || authority) && !isOver) {
    const name = kept?.clusterName ?? authority!.clusterName
    throw new SparkError(
      'ERR_ARGUMENT',
      `this node is of cluster '${name}' already: start it without a code, or give another DGX_SPARK_CLUSTER_HOME`,
    )
  }
  if (isOver && !wantsToJoin) throw expired(kept)
  if (kept && !isOver && !(authority && needsRenewal(kept))) return { credentials: kept, authority }
  if (authority) return { credentials: await certified(authority, identity), authority }
  if (wantsToJoin) return { credentials: await join(identity, options, look), authority: undefined }
  if (options.create === undefined)
    throw new SparkError('ERR_ARGUMENT', 'this node has no cluster: give create, code or trustLan')
  const begun = await ClusterAuthority.create(options.create, folder)
  return { credentials: await certified(begun, identity), authority: begun }
}

function expired({ certificate, clusterName }: NodeCredentials): SparkError {
  const when = validityOf(certificate).to.toISOString()
  const remedy =
    'join again: dgx-spark up --join with the code that dgx-spark invite prints on the node with the CA'
  return new SparkError(
    'ERR_DENIED',
    `the certificate of this node in cluster '${clusterName}' expired at ${when}: ${remedy}`,
  )
}

async function certified(authority: ClusterAuthority, identity: NodeIdentity): Promise<NodeCredentials> {
  const credentials = await authority.certify(identity)
  await saveCredentials(credentials, identity.folder)
  return credentials
}

async function join(
  identity: NodeIdentity,
  { code, at }: MembershipOptions,
  look: LookOptions,
): Promise<NodeCredentials> {
  if (at) return joinAt(at, identity, code)
  const fingerprint = code === undefined ? undefined : parseCode(code).fingerprint
  const problems = new Map<string, string>()
  // Nodes answer one after the other, and only the one with the CA lets others join.
  const until = performance.now() + joinMs
  do {
    for (const { addresses } of await findClusters(look, fingerprint))
      for (const address of addresses) {
        const problem = await joinAt(address, identity, code).catch((error: Error) => error)
        if (!(problem instanceof Error)) return problem
        problems.set(formatAddress(address), problem.message)
      }
  } while (performance.now() < until)
  if (problems.size > 0)
    throw new SparkError('ERR_DENIED', `no node lets this one join: ${[...problems.values()].join('; ')}`)
  const which = code === undefined ? 'no cluster' : 'the cluster of the code'
  const remedy = 'start dgx-spark up there, or say where it is with --at host:port'
  throw new SparkError('ERR_IO', `${which} was not found on this network: ${remedy}`)
}

async function joinAt(
  { host, port }: Address,
  identity: NodeIdentity,
  code: string | undefined,
): Promise<NodeCredentials> {
  const place = { host, port: enrolmentPortOf(port) }
  const credentials = await joinCluster({ ...place, identity, ...(code !== undefined && { code }) })
  await saveCredentials(credentials, identity.folder)
  return credentials
}

/**
 * Nodes on the network, of any cluster or of one.
 * @param fingerprint - the first digits of the one of its CA
 */
export async function findClusters(look: LookOptions, fingerprint?: string): Promise<FoundNode[]> {
  const discovery = new Discovery({ ...look, ...(fingerprint && { fingerprint }) })
  const fits = (node: FoundNode): boolean =>
    fingerprint === undefined || node.cluster === 'own' || node.sources.includes('static')
  const isEnough = new AbortController()
  const late = setTimeout(() => isEnough.abort(), lookMs)
  let settling: NodeJS.Timeout | undefined
  try {
    await discovery.start()
    for await (const { node } of discovery.events(isEnough.signal))
      if (fits(node)) settling ??= setTimeout(() => isEnough.abort(), settleMs)
    return discovery.nodes.filter(fits)
  } finally {
    clearTimeout(late)
    clearTimeout(settling)
    await discovery.close()
  }
}

/** Only the node with the CA can do it. */
export const noAuthority = (cluster: string): SparkError =>
  new SparkError(
    'ERR_IO',
    `the CA of cluster '${cluster}' is not here: do this on the node that began the cluster`,
  )
