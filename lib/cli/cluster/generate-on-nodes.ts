// generate-on-nodes.ts: `dgx-spark generate --cluster`: through the node that runs on this machine, or as this machine's node for
// as long as a text is generated.
import type { OwnText, OwnTextOptions } from '../../cluster/own-text.js'
import type { TextModelOptions } from '../../text/text-options.js'
import { printError } from '../output.js'
import { type NodeFlags, placementOptions, report, startNode } from './run-on-nodes.js'

/**
 * Puts a language model on the cluster, and says which layers each node has.
 * @throws SparkError ERR_ARGUMENT where this machine is no member of a cluster, and as `Cluster.loadText`
 */
export async function openTextOnNodes(
  source: string,
  flags: NodeFlags,
  options: TextModelOptions,
): Promise<OwnText> {
  const text = await openText(source, flags, options)
  for (const { node, layers, sums } of text.stages)
    printError(`${node}: ${layers}${sums ? `, sums over ${sums}` : ''}`)
  return text
}

async function openText(source: string, flags: NodeFlags, options: TextModelOptions): Promise<OwnText> {
  const [{ Cluster }, { loadTextThroughOwnNode, namedLayers }] = await Promise.all([
    import('../../cluster/cluster.js'),
    import('../../cluster/own-text.js'),
  ])
  const given: OwnTextOptions = { ...(await placementOptions(flags)), ...(options as object) }
  const { folder, node } = await startNode(flags)
  if (!node) return loadTextThroughOwnNode(folder, source, given, report)
  try {
    const text = await new Cluster(node).loadText(source, { ...given, onEvent: report })
    const { model } = text
    return {
      ...{ architecture: model.architecture, backend: model.backend, stages: namedLayers(text, node) },
      generate: (prompt, options) => model.generate(prompt, options),
      tokenOf: id => model.tokenizer.tokenOf(id),
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
