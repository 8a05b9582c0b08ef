// node-options.ts: how a node is started.
import { hostname, networkInterfaces } from 'node:os'
import { argumentError, expectInteger, expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { Fabric } from '../links/fabric.js'
import type { MembershipOptions } from './membership.js'
import { expectJobsOptions, type NodeJobsOptions } from './node-jobs.js'
import type { PressureWatchOptions } from './pressure-watch.js'

/** Where nodes take links. */
export const defaultPort = 7433
/** Where a node tells its state, on 127.0.0.1. */
export const defaultStatePort = 7435

/** How long a node may take to say who it is, ms. */
export const handshakeMs = 5000

/** Options of {@link ClusterNode.start}. */
export interface ClusterNodeOptions extends MembershipOptions {
  /** Folder of the node. Default: DGX_SPARK_CLUSTER_HOME, or `dgx-spark/cluster` in the user's data folder. */
  readonly home?: string
  /** What other nodes call it. Default: the name of the machine. */
  readonly name?: string
  /** An address of this machine. Default: all of them. */
  readonly host?: string
  /** Where links are taken; nodes join at the port behind it. Default: 7433. */
  readonly port?: number
  /** Port of 127.0.0.1 for `/api/state` and `/events`; 0 for any, null for none. Default: 7435. */
  readonly statePort?: number | null
  /** Nodes that are known, `host:port`. */
  readonly peers?: readonly string[]
  /** Whether nodes are looked for by multicast DNS. Default: true. */
  readonly mdns?: boolean
  /** Names of interfaces for that. Default: all. */
  readonly interfaces?: readonly string[]
  /**
   * Where decisions are kept: `embedded`, in this process; `nats`, on the node with the CA: a nats-server that it starts at the
   * port of the links + 3, or in the servers of `nats` where they are given. Default: embedded.
   */
  readonly control?: 'embedded' | 'nats'
  /** Servers of NATS that keep decisions, `host:port`: one, or three and more for a quorum. */
  readonly nats?: readonly string[]
  /**
   * Networks that nobody else is on, such as a direct cable: names of interfaces, or `10.77.0.0/24`. Only over these do nodes share
   * layers. Default: this machine alone.
   */
  readonly fabric?: readonly string[]
  /** What the node does under heat, low battery and short memory; null: nothing. Default: the limits of {@link NodePressure}. */
  readonly pressure?: PressureWatchOptions | null
  /** How it takes part in the jobs of the cluster; false: not at all. Default: one job at a time, with all cores. */
  readonly jobs?: NodeJobsOptions | false
}

/** Their names. */
const optionNames = [
  ...['home', 'name', 'host', 'port', 'statePort', 'peers', 'mdns', 'interfaces', 'pressure'],
  ...['control', 'nats', 'jobs', 'fabric'],
  ...['create', 'code', 'trustLan', 'at'],
]

/** Checks options. @throws SparkError ERR_ARGUMENT */
export function expectNodeOptions(options: ClusterNodeOptions): void {
  expectKnownOptions('options', options, optionNames)
  fabricOf(options)
  const { port, control, nats, jobs } = options
  if (port !== undefined) expectInteger('options.port', port, 1, 65532)
  if (control !== undefined) expectOneOf('options.control', control, ['embedded', 'nats'])
  if (nats && control === 'embedded')
    throw argumentError('options.control', "'nats' where options.nats is given", control)
  if (jobs) expectJobsOptions(jobs)
}

/** Networks that nobody else is on. @throws SparkError ERR_ARGUMENT */
export const fabricOf = ({ fabric }: ClusterNodeOptions): Fabric => new Fabric(fabric)

/** What other nodes call this one. */
export const nameOf = ({ name }: ClusterNodeOptions): string =>
  (name ?? hostname().split('.')[0]!).slice(0, 55) || 'node'

/** All addresses: both families where this machine has IPv6. */
export const anyHost = (): string =>
  Object.values(networkInterfaces()).some(list => list?.some(({ family }) => family === 'IPv6'))
    ? '::'
    : '0.0.0.0'
