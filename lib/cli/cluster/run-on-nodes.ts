// run-on-nodes.ts: `dgx-spark run --cluster`: this machine as a node for as long as the model runs.
import { readFile } from 'node:fs/promises'
import { Option } from 'commander'
import type { Strategy } from '../../cluster/cluster.js'
import type { ClusterNode } from '../../cluster/node/cluster-node.js'
import type { OwnModelOptions } from '../../cluster/own-link.js'
import type { OwnModel } from '../../cluster/own-models.js'
import type { PipelineEvent } from '../../cluster/stages/pipeline.js'
import { type SumsChoice, sumChoices } from '../../cluster/stages/sum-choices.js'
import { SparkError } from '../../core/errors.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { formatBytes, printError } from '../output.js'

/** Options of commands that run models on several nodes. */
export interface NodeFlags {
  readonly cluster?: boolean
  readonly nodes?: number
  readonly pin: string[]
  readonly strategy?: Strategy
  readonly sums?: SumsChoice
  readonly fabric: string[]
  readonly clusterHome?: string
  readonly clusterPort?: number
  readonly mdns: boolean
  readonly token?: string
}

/** Options of {@link NodeFlags}. */
export const nodeOptions = (): Option[] => [
  new Option('--cluster', 'run on the machines of the cluster, whose member this machine is'),
  new Option('--nodes <count>', 'machines that must be there (default: those that are)').argParser(
    integerFrom(1, 10_000),
  ),
  new Option('--pin <layers=node>', 'keep layers on a node, such as 0-10=spark-1; may be repeated')
    .argParser((value: string, list: string[]) => [...list, value])
    .default([]),
  new Option('--strategy <kind>', 'how layers are spread over machines (default: pipeline)').choices([
    ...['auto', 'pipeline', 'tensor', 'hybrid'],
  ]),
  new Option('--sums <kind>', 'what machines that share layers sum over (default: auto)').choices(sumChoices),
  new Option('--fabric <network>', 'an interface or network that nobody else is on; may be repeated')
    .argParser((value: string, list: string[]) => [...list, value])
    .default([]),
  new Option('--cluster-home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)').argParser(
    pathFrom,
  ),
  new Option('--cluster-port <n>', 'port for links (default: 7433)').argParser(integerFrom(1, 65532)),
  new Option('--token <file>', 'what the other nodes may do: a token of dgx-spark token create').argParser(
    pathFrom,
  ),
  new Option('--no-mdns', 'do not look for nodes by multicast DNS'),
]

/**
 * The node of this machine, of this process alone, and its folder; no node where another process is that node.
 * @throws SparkError ERR_ARGUMENT where this machine is no member of a cluster; as `ClusterNode.start`
 */
export async function startNode({
  clusterHome: home,
  clusterPort: port,
  mdns,
  fabric,
}: NodeFlags): Promise<{ folder: string; node: ClusterNode | undefined }> {
  const [{ ClusterNode }, { loadCredentials }, homes] = await Promise.all([
    import('../../cluster/node/cluster-node.js'),
    import('../../cluster/trust/credentials.js'),
    import('../../cluster/trust/home.js'),
  ])
  const folder = home ?? homes.clusterHome()
  if (!(await loadCredentials(folder)))
    throw new SparkError('ERR_ARGUMENT', 'this machine is of no cluster: begin or join one with dgx-spark up')
  const node = await ClusterNode.start({
    ...{ home: folder, mdns, fabric, statePort: null, ...(port !== undefined && { port }) },
  }).catch((error: SparkError) => {
    if (error.code !== 'ERR_BUSY') throw error
    return undefined
  })
  return { folder, node }
}

/**
 * Puts the model on the cluster: through the node that runs on this machine, or as this machine's node for as long as the model runs.
 * @throws SparkError ERR_ARGUMENT where it is no member of a cluster, and as `Cluster.load`
 */
export async function openOnNodes(
  file: string,
  flags: NodeFlags,
  engine: { backend?: string; precision?: string },
): Promise<OwnModel> {
  const [{ Cluster }, { loadThroughOwnNode, namedStages }] = await Promise.all([
    import('../../cluster/cluster.js'),
    import('../../cluster/own-models.js'),
  ])
  const options: OwnModelOptions = { ...(await placementOptions(flags)), ...(engine as object) }
  const { folder, node } = await startNode(flags)
  if (!node) return loadThroughOwnNode(folder, file, options, report)
  try {
    const model = await new Cluster(node).load(file, { ...options, onEvent: report })
    return {
      run: feeds => model.run(feeds),
      stages: namedStages(model, node),
      async close() {
        await model.dispose()
        await node.close()
      },
    }
  } catch (error) {
    await node.close()
    throw error
  }
}

async function readToken(file: string): Promise<string> {
  try {
    return (await readFile(file, 'utf8')).trim()
  } catch (error) {
    throw new SparkError('ERR_IO', `--token ${file}: ${(error as Error).message}`, { cause: error })
  }
}

/** Where layers are to be, and what the other nodes may do. @throws SparkError ERR_IO where the token cannot be read */
export const placementOptions = async ({
  nodes,
  pin,
  strategy = 'pipeline',
  sums,
  token,
}: NodeFlags): Promise<OwnModelOptions> => ({
  ...{ strategy, pins: pin, ...(nodes !== undefined && { nodes }), ...(sums && { sums }) },
  ...(token !== undefined && { token: await readToken(token) }),
})

/** Says on stderr what happens to a model. */
export function report({ type, nodes, progress, bytes = 0, fetched = 0, why = '' }: PipelineEvent): void {
  const what = progress
    ? `${progress.file}, ${formatBytes(progress.bytes)} of ${formatBytes(progress.total)} for ${progress.device}`
    : type === 'loaded'
      ? `${formatBytes(bytes)}, ${formatBytes(fetched)} fetched`
      : why
  printError(`${type}: ${nodes.join(', ')} ${what}`.trimEnd())
}
