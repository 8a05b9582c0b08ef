// standard-attention.ts: the standard Attention with a past as PagedAttention. Contributed operators (MultiHeadAttention,
// Attention) are standard ones in a canonical graph.
import { SparkError } from '../../core/errors.js'
import { describeNode, givenFloat, givenInt, intOf } from '../../graph/attributes.js'
import type { Graph, Node } from '../../graph/graph.js'
import type { Fact } from '../../graph/shape-inference.js'
import type { AttentionSite } from './attention-site.js'
import type { DecoderPorts } from './decoder-ports.js'

const at = { query: 0, key: 1, value: 2, mask: 3, pastKeys: 4, pastValues: 5, lengths: 6 }

const input = (node: Node, index: number): string => node.inputs[index] ?? ''

/**
 * Finds nodes of Attention with a past in a canonical graph.
 * @throws SparkError ERR_UNSUPPORTED naming one that cannot be replaced
 */
export const standardAttention = (
  graph: Graph,
  ports: DecoderPorts,
  facts: ReadonlyMap<string, Fact>,
): AttentionSite[] =>
  graph.nodes
    .filter(node => node.op === 'Attention' && node.domain === '' && input(node, at.pastKeys) !== '')
    .map(node => siteOf(node, graph, ports, facts))

function siteOf(
  node: Node,
  graph: Graph,
  ports: DecoderPorts,
  facts: ReadonlyMap<string, Fact>,
): AttentionSite {
  const unsupported = (why: string): SparkError =>
    new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: ${why}`)
  if (input(node, at.lengths) !== '') throw unsupported('keys and values beside the model are not supported')
  const layer = ports.layers.findIndex(({ keys, values }) =>
    keys === values
      ? [at.pastKeys, at.pastValues].every(index => pairInput(graph, input(node, index)) === keys)
      : input(node, at.pastKeys) === keys && input(node, at.pastValues) === values,
  )
  if (layer < 0) throw unsupported(`its past '${input(node, at.pastKeys)}' is no input of the model`)
  if ((node.outputs[3] ?? '') !== '') throw unsupported('its scores are an output')
  const { kvHeads, headSize } = ports.layers[layer]!
  const type = facts.get(input(node, at.query))?.type
  const shape = type?.kind === 'tensor' ? type.shape : undefined
  if (!shape) throw unsupported('the form of its queries is not known')
  const layout = shape.length === 3 ? 'beside' : 'apart'
  const heads = layout === 'beside' ? intOf(node, 'q_num_heads') : Number(shape[1])
  if (!Number.isInteger(heads)) throw unsupported('how many heads it has is not known')
  const [query, key, value] = [at.query, at.key, at.value].map(
    index => ({ name: input(node, index), layout }) as const,
  )
  return {
    node,
    ...{ layer, heads, kvHeads, headSize, query: query!, key: key!, value: value! },
    output: { name: node.outputs[0]!, layout },
    scale: givenFloat(node, 'scale') ?? 1 / Math.sqrt(headSize),
    softcap: givenFloat(node, 'softcap') ?? 0,
    masks: input(node, at.mask) === '' ? [] : [input(node, at.mask)],
    isCausal: givenInt(node, 'is_causal') === 1,
  }
}

/** The input of a model of which a value is one half. */
function pairInput(graph: Graph, name: string): string | undefined {
  const producer = graph.nodes.find(({ outputs }) => outputs.includes(name))
  return producer?.op === 'Gather' || producer?.op === 'Split' ? producer.inputs[0] : undefined
}
