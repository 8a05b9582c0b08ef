// nats-config.ts: the configuration of a nats-server of a cluster: mutual TLS for clients and routes, a user for each node.
import { nodeUri } from '../trust/credentials.js'
import { controlBuckets } from './control-plane.js'

/** What is known of a nats-server's version. */
export interface NatsVersion {
  /** As it says: 2.9.10. */
  readonly text: string
  /** Whether it knows `sync_interval: always`: without it, what was acknowledged may be lost when the power fails. */
  readonly syncs: boolean
  /** Whether it can refuse TLS 1.2 itself; our clients always do. */
  readonly hasMinVersion: boolean
}

/** The version in what `nats-server -v` prints; undefined where there is none. */
export function parseNatsVersion(output: string): NatsVersion | undefined {
  const match = /v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})\S*\s*$/.exec(output.trim())
  if (!match) return undefined
  const [, major, minor] = match.map(Number) as [number, number, number]
  const isAtLeast = (wanted: number): boolean => major > 2 || (major === 2 && minor >= wanted)
  return {
    text: match.slice(1, 4).join('.'),
    syncs: isAtLeast(10),
    hasMinVersion: isAtLeast(11),
  }
}

/** What a configuration is written from. */
export interface NatsConfig {
  readonly version: NatsVersion
  readonly clusterId: string
  readonly serverId: string
  /** Ids of the nodes that may connect. */
  readonly nodes: readonly string[]
  readonly listen: { readonly host: string; readonly port: number }
  /** Where other servers connect, and where they are; absent for a single server. */
  readonly cluster?: { readonly host: string; readonly port: number; readonly routes: readonly string[] }
  readonly files: {
    readonly ca: string
    readonly certificate: string
    readonly key: string
    readonly store: string
  }
  /** Of 127.0.0.1; by default there is no monitoring. It does not ask for certificates. */
  readonly monitorPort?: number
  /** Most bytes of the store. */
  readonly maxStoreBytes: number
}

/** JSON strings are strings of the configuration, too. */
const quoted = (text: string): string => JSON.stringify(text)
const joined = (texts: readonly string[]): string => `[${texts.map(quoted).join(', ')}]`

/** Buckets in which a node may only write under its own id. */
const ownBuckets: readonly string[] = ['nodes', 'telemetry'] satisfies (keyof typeof controlBuckets)[]

/** What a node may publish: everything of the control plane, but neither others' heartbeats and telemetry nor deletions of streams. */
function permissionsOf(nodeId: string, buckets: readonly string[]): string {
  const own = ownBuckets.flatMap(bucket => [`$KV.${bucket}.${nodeId}`, `$KV.${bucket}.${nodeId}.>`])
  const shared = buckets.filter(bucket => !ownBuckets.includes(bucket)).map(bucket => `$KV.${bucket}.>`)
  const allowed = ['$JS.API.>', '$JS.ACK.>', 'EV.>', 'WQ.>', 'BUS.>', ...own, ...shared]
  const denied = ['DELETE', 'PURGE', 'RESTORE', 'SNAPSHOT', 'MSG.DELETE'].map(
    operation => `$JS.API.STREAM.${operation}.>`,
  )
  const heard = joined(['BUS.>', `${inboxOf(nodeId)}.>`])
  return `publish: { allow: ${joined(allowed)}, deny: ${joined(denied)} }, subscribe: { allow: ${heard} }`
}

/** Where answers to a node arrive: nobody else may listen there. */
export const inboxOf = (nodeId: string): string => `_INBOX.${nodeId}`

/** The text of a configuration file. @param more - buckets that nodes may write to beside those of the cluster */
export function natsConfigText(config: NatsConfig, more: readonly string[]): string {
  const buckets = [...Object.keys(controlBuckets), failedBucket, ...more]
  const { version, clusterId, serverId, nodes, listen, cluster, files, monitorPort, maxStoreBytes } = config
  const tls = [
    `cert_file: ${quoted(files.certificate)}`,
    `key_file: ${quoted(files.key)}`,
    `ca_file: ${quoted(files.ca)}`,
    'timeout: 5',
    ...(version.hasMinVersion ? ['min_version: "1.3"'] : []),
  ]
  const users = nodes.map(
    id => `    { user: ${quoted(nodeUri(clusterId, id))}, permissions: { ${permissionsOf(id, buckets)} } }`,
  )
  const lines = [
    `server_name: ${quoted(serverId)}`,
    `listen: ${quoted(`${bracketed(listen.host)}:${listen.port}`)}`,
    'max_payload: 1MB',
    'max_connections: 1024',
    ...(monitorPort === undefined ? [] : [`http: "127.0.0.1:${monitorPort}"`]),
    `tls { ${[...tls, 'verify_and_map: true'].join('; ')} }`,
    'authorization {',
    '  users: [',
    ...users,
    '  ]',
    '}',
    'jetstream {',
    `  store_dir: ${quoted(files.store)}`,
    '  max_memory_store: 268435456',
    `  max_file_store: ${maxStoreBytes}`,
    ...(version.syncs ? ['  sync_interval: always'] : []),
    '}',
  ]
  if (cluster) {
    lines.push(
      'cluster {',
      `  name: ${quoted(clusterId)}`,
      `  listen: ${quoted(`${bracketed(cluster.host)}:${cluster.port}`)}`,
      `  routes: ${joined(cluster.routes.map(route => `nats-route://${route}`))}`,
      `  tls { ${tls.join('; ')} }`,
      '}',
    )
  }
  return `${lines.join('\n')}\n`
}

const bracketed = (host: string): string => (host.includes(':') ? `[${host}]` : host)

/** The bucket of jobs that were handed out too often, of all queues. */
export const failedBucket = 'failed-jobs'
