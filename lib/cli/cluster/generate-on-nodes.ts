// generate-on-nodes.ts: `dgx-spark generate --cluster`: this machine as a node for as long as a text is generated.
import { SparkError } from '../../core/errors.js'
import type { TextModel } from '../../text/text-model.js'
import type { TextModelOptions } from '../../text/text-options.js'
import { printError } from '../output.js'
import { type NodeFlags, placementOptions, report, startNode } from './run-on-nodes.js'

/** A language model on several nodes. */
export interface TextOnNodes {
  readonly model: TextModel
  /** Frees it and ends the node of this machine. */
  close(): Promise<void>
}

/**
 * Puts a language model on the cluster, and says which layers each node has.
 * @throws SparkError ERR_ARGUMENT where this machine is no member of a cluster, ERR_BUSY where `dgx-spark up` runs on it, and as
 * `Cluster.loadText`
 */
export async function openTextOnNodes(
  source: string,
  flags: NodeFlags,
  options: TextModelOptions,
): Promise<TextOnNodes> {
  const { Cluster } = await import('../../cluster/cluster.js')
  const given = { ...(await placementOptions(flags)), ...(options as object) }
  const { folder, node } = await startNode(flags)
  if (!node)
    throw new SparkError(
      'ERR_BUSY',
      `dgx-spark up is the node of ${folder}: end it there, generate --cluster is the node meanwhile`,
    )
  const nameOf = (nodeId: string): string => node.state.nodes.find(({ id }) => id === nodeId)?.name ?? nodeId
  try {
    const text = await new Cluster(node).loadText(source, { ...given, onEvent: report })
    for (const { nodeId, layers } of text.stages) printError(`${nameOf(nodeId)}: ${layers}`)
    return {
      model: text.model,
      async close() {
        await text.dispose()
        await node.close()
      },
    }
  } catch (error) {
    await node.close()
    throw error
  }
}
