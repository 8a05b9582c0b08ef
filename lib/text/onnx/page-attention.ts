// page-attention.ts: attention of a canonical graph, as an operator or as products, as PagedAttention.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { type Graph, type Node, sparkDomain } from '../../graph/graph.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { type Fact, inferFacts } from '../../graph/shape-inference.js'
import { cacheName } from '../architectures/decoder.js'
import type { AttentionSite } from './attention-site.js'
import type { DecoderPorts } from './decoder-ports.js'
import { type MaskForm, maskForms } from './masks.js'
import { type MeasuredSite, measureAttention, type UnmeasuredSite } from './measure-attention.js'
import { appendPagedAttention } from './paged-attention.js'
import { reachOf } from './reach.js'
import { softmaxAttention } from './softmax-attention.js'
import { standardAttention } from './standard-attention.js'

/** What a configuration says about attention. */
export interface AttentionOptions {
  readonly contextLength: number
  /** Heads of queries, where the graph leaves them open. */
  readonly heads: number | undefined
}

/**
 * Replaces the attention of all layers that is not PagedAttention yet.
 * @throws SparkError ERR_UNSUPPORTED naming a node whose attention has another form, and a layer without attention
 */
export async function pageAttention(
  graph: Graph,
  ports: DecoderPorts,
  { contextLength, heads }: AttentionOptions,
): Promise<Graph> {
  const facts = inferFacts(graph)
  const varying = reachOf(
    graph,
    graph.inputs.map(({ name }) => name),
    ({ op }) => op !== 'Shape',
  )
  const unmeasured = softmaxAttention(graph, ports, name => varying.has(name)).map(site => ({
    ...site,
    heads: headsOf(site.node, facts, heads),
  }))
  const measured = await measureAttention(graph, ports, unmeasured satisfies UnmeasuredSite[])
  const sites: (AttentionSite | MeasuredSite)[] = [...standardAttention(graph, ports, facts), ...measured]
  const names = new Set(sites.flatMap(({ masks }) => masks))
  const forms = await maskForms(graph, ports, [...names], contextLength)
  const bySite = new Map(sites.map(site => [site.node, site]))
  const build = new GraphBuilder(graph, 'paged')
  for (const node of graph.nodes) {
    const site = bySite.get(node)
    if (!site) build.append(node)
    else {
      const window = windowOf(site, forms)
      if ('expectAttention' in site) site.expectAttention(window)
      appendPagedAttention(build, { ...site, window })
    }
  }
  return expectAllPaged(removeDead(build.rebuild()), ports)
}

/** Heads of the queries of an attention: the second size of what it gives. */
function headsOf(node: Node, facts: ReadonlyMap<string, Fact>, given: number | undefined): number {
  const type = facts.get(node.outputs[0]!)?.type
  const own = type?.kind === 'tensor' && type.shape?.length === 4 ? type.shape[1] : undefined
  const heads = typeof own === 'number' ? own : given
  if (heads !== undefined) return heads
  throw new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: how many heads it has is not known`)
}

/** Keys that a query sees. */
function windowOf({ node, masks, isCausal }: AttentionSite, forms: ReadonlyMap<string, MaskForm>): number {
  const own = masks.map(name => forms.get(name)!)
  if (isCausal || own.some(form => form.isCausal))
    return Math.min(...own.map(({ window }) => window), Number.POSITIVE_INFINITY)
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${describeNode(node)}: it reads later tokens; decoders must be causal`,
  )
}

/** Operators that compute a row from others. */
const mixing = new Set([
  'Attention',
  'LinearAttention',
  'CausalConvWithState',
  'Conv',
  'DynamicQuantizeLinear',
  'GRU',
  'LSTM',
  'RNN',
  'TensorScatter',
])

function expectAllPaged(graph: Graph, { layers }: DecoderPorts): Graph {
  const mixed = graph.nodes.find(({ op }) => mixing.has(op))
  if (mixed)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(mixed)}: it reads rows of other tokens, but no past of the model`,
    )
  const used = graph.nodes
    .filter(({ op, domain }) => op === 'PagedAttention' && domain === sparkDomain)
    .map(({ inputs }) => inputs[3])
  const missing = layers.findIndex((_, layer) => !used.includes(cacheName('keys', layer)))
  if (missing < 0 && used.length === layers.length) return graph
  const which =
    missing < 0 ? 'some keys are read twice' : `'${layers[missing]!.keys}' is read by no attention`
  throw new SparkError('ERR_UNSUPPORTED', `its attention has no form that is known: ${which}`)
}
