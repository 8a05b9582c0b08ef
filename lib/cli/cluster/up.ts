// up.ts: `dgx-spark up`: runs this machine as a node of a cluster, which it begins or joins the first time.
import { hostname } from 'node:os'
import { emitKeypressEvents } from 'node:readline'
import type { Command } from 'commander'
import { parseAddress } from '../../cluster/discovery/addresses.js'
import { ClusterNode } from '../../cluster/node/cluster-node.js'
import type { ClusterEvent } from '../../cluster/node/cluster-state.js'
import { findClusters } from '../../cluster/node/membership.js'
import { type ClusterNodeOptions, defaultPort, defaultStatePort } from '../../cluster/node/node-options.js'
import { serveOwnPrograms } from '../../cluster/own-programs.js'
import { loadCredentials } from '../../cluster/trust/credentials.js'
import { clusterHome } from '../../cluster/trust/home.js'
import { SparkError } from '../../core/errors.js'
import { choice, interruptible, UsageError, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { jsonText, print, printError, printPairs, styled } from '../output.js'

interface Flags {
  cluster?: string
  join?: string
  trustLan?: boolean
  at?: string
  name?: string
  host?: string
  port: number
  statePort: number
  peer: string[]
  mdns: boolean
  interface: string[]
  control?: 'embedded' | 'nats'
  nats: string[]
  jobs: boolean
  jobThreads?: number
  fabric: string[]
  home?: string
  json?: boolean
}

/** A server without `nats://` or `tls://`. */
const plainServer = (url: string): string => url.replace(/^(nats|tls):\/\//, '')

const collect = (value: string, list: string[]): string[] => [...list, value]

/** `dgx-spark up`. */
export function addUp(command: Command): void {
  command
    .option('--cluster <name>', 'begin a cluster of this name, also where the network has another one')
    .option('--join <code>', 'join the cluster where dgx-spark invite printed the code')
    .option('--trust-lan', 'join a cluster that takes nodes of its network at the moment, without a code')
    .option('--at <host:port>', 'where the cluster to join is (default: found on the network)')
    .option('--name <name>', 'what other nodes call this one (default: the name of the machine)')
    .option('--host <address>', 'address of this machine where links are taken (default: all)')
    .option(
      '--port <n>',
      'port for links; nodes join at the one behind it',
      integerFrom(1, 65532),
      defaultPort,
    )
    .option(
      '--state-port <n>',
      'port of 127.0.0.1 for /api/state and /events',
      integerFrom(0, 65535),
      defaultStatePort,
    )
    .option('--peer <host:port>', 'a node that multicast does not find; may be repeated', collect, [])
    .option('--no-mdns', 'do not look for nodes, nor be found, by multicast DNS')
    .option('--interface <name>', 'look on this interface only; may be repeated', collect, [])
    .addOption(
      choice(
        '--control <kind>',
        'where decisions are kept: in this process, or in a nats-server that it starts',
        ['embedded', 'nats'],
      ),
    )
    .option('--nats <host:port>', 'a NATS server that keeps decisions; may be repeated', collect, [])
    .option('--no-jobs', 'do no jobs that programs on other nodes hand out')
    .option('--job-threads <n>', 'threads of a job (default: one for each core)', integerFrom(1, 1024))
    .option(
      '--fabric <network>',
      'an interface or network that nobody else is on; may be repeated',
      collect,
      [],
    )
    .option('--home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)', pathFrom)
    .option('--json', 'print one JSON document a line: the state, then each change')
    .action(run)
  withExamples(
    command,
    'dgx-spark up',
    'dgx-spark up --join 4K7M-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000',
    'dgx-spark up --cluster lab --peer 10.0.0.7:7433',
  )
}

async function run(flags: Flags): Promise<void> {
  if (flags.cluster !== undefined && (flags.join !== undefined || flags.trustLan))
    throw new UsageError('give --cluster to begin a cluster, or --join or --trust-lan to join one')
  if (flags.control !== undefined && flags.nats.length > 0)
    throw new UsageError('give --control nats to start a server of NATS, or --nats to use those that run')
  const options = await optionsOf(flags)
  await interruptible(async signal => {
    const node = await ClusterNode.start(options)
    serveOwnPrograms(node)
    try {
      if (flags.json) print(jsonText(node.state))
      else report(node)
      const unlisten = node.events.listen(event => show(event, node, flags.json === true))
      const release = flags.json ? () => {} : listenToKeys(node)
      await untilAborted(signal)
      unlisten()
      release()
    } finally {
      await node.close()
    }
  })
}

/** Resolves when the signal is aborted; at once where it was while the node started. */
const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise(resolve => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

/** Options of the node. A node without a cluster begins one, unless there is one on its network. */
async function optionsOf(flags: Flags): Promise<ClusterNodeOptions> {
  const { cluster, join, trustLan, at, name, host, port, statePort, peer, mdns, home, control, nats } = flags
  const { jobs, jobThreads } = flags
  const common: ClusterNodeOptions = {
    ...{ port, statePort, mdns, peers: peer },
    ...(flags.interface.length > 0 && { interfaces: flags.interface }),
    ...(name !== undefined && { name }),
    ...(control !== undefined && { control }),
    ...(nats.length > 0 && { nats: nats.map(plainServer) }),
    ...(!jobs && { jobs }),
    ...(jobs && jobThreads !== undefined && { jobs: { threads: jobThreads } }),
    ...(flags.fabric.length > 0 && { fabric: flags.fabric }),
    ...(host !== undefined && { host }),
    ...(home !== undefined && { home }),
    ...(at !== undefined && { at: parseAddress(at) }),
  }
  if (join !== undefined) return { ...common, code: join }
  if (trustLan) return { ...common, trustLan }
  const credentials = await loadCredentials(home ?? clusterHome())
  if (credentials && cluster !== undefined && cluster !== credentials.clusterName)
    throw new SparkError(
      'ERR_ARGUMENT',
      `--cluster ${cluster}: this machine is of cluster ${credentials.clusterName}; give the node of another one a folder of its own with --home <folder>`,
    )
  if (credentials) return common
  if (cluster !== undefined) return { ...common, create: cluster }
  const others = mdns ? (await findClusters({ mdns })).filter(node => node.sources.includes('mdns')) : []
  if (others.length > 0) {
    const names = others.map(node => node.name ?? node.key).join(', ')
    throw new SparkError(
      'ERR_BUSY',
      `there is a cluster on this network already (${names}): run dgx-spark invite there and dgx-spark up --join <code> here, or begin another one with --cluster <name>`,
    )
  }
  return { ...common, create: `cluster of ${hostname().split('.')[0]}`.slice(0, 64) }
}

function report(node: ClusterNode): void {
  const { cluster, control } = node.state
  print(styled('bold', `node ${node.state.nodes[0]!.name} of ${cluster.name}`))
  printPairs([
    ['id', node.identity.nodeId],
    ['links at', node.state.nodes[0]!.address ?? ''],
    ['state at', `http://127.0.0.1:${node.statePort}/api/state`],
    ['decisions', control.quorum.note],
  ])
  if (cluster.hasAuthority) {
    const keys = process.stdin.isTTY ? ', or press i; t lets nodes of this network join for a minute' : ''
    print(`other machines join with a code: dgx-spark invite${keys}`)
  }
}

function show(event: ClusterEvent, node: ClusterNode, isJson: boolean): void {
  const { time, type, subject, detail } = event
  if (isJson) print(jsonText(event))
  else if (type !== 'link') {
    const name = node.state.nodes.find(({ id }) => id === subject)?.name
    const said = [type.replace('-', ' '), name ?? subject, detail].filter(text => text !== '')
    print(`${new Date(time).toTimeString().slice(0, 8)}  ${said.join('  ')}`)
  }
}

/** Keys of a terminal: i makes a code, t trusts the network for a minute, Ctrl-C and q end. @returns a function that ends it */
function listenToKeys(node: ClusterNode): () => void {
  const { stdin } = process
  if (!stdin.isTTY || !node.state.cluster.hasAuthority) return () => {}
  const press = async (_text: string, key: { name?: string; ctrl?: boolean }): Promise<void> => {
    try {
      if ((key.ctrl && key.name === 'c') || key.name === 'q') process.kill(process.pid, 'SIGINT')
      else if (key.name === 'i') print(`dgx-spark up --join ${(await node.invite()).code}`)
      else if (key.name === 't') {
        await node.trustLan()
        print('for a minute, machines of this network join with: dgx-spark up --trust-lan')
      }
    } catch (error) {
      printError((error as Error).message)
    }
  }
  emitKeypressEvents(stdin)
  stdin.setRawMode(true).on('keypress', press).resume()
  return () => {
    stdin.setRawMode(false).off('keypress', press).pause()
  }
}
