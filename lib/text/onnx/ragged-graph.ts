// ragged-graph.ts: an exported decoder as a graph of the form of `decoderGraph`: rows are tokens of several sequences. All
// that is not attention computes each row alone, so that a sequence of all rows in a batch of 1 does for it.
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { describeNode, int } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { freshNames, readsOf, renameReads } from '../../graph/edit.js'
import { onnxNumbers } from '../../graph/element-types.js'
import { type Graph, makeNode, sparkDomain, tensorType, type ValueInfo } from '../../graph/graph.js'
import { canonicalise } from '../../graph/rewrites/canonicalise.js'
import { inlineBranches } from '../../graph/rewrites/inline-branches.js'
import { readCodesPaced } from '../../graph/rewrites/read-codes.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { uniqueNames } from '../../graph/rewrites/unique-names.js'
import { inferFacts } from '../../graph/shape-inference.js'
import { type CacheSizes, cacheName } from '../architectures/decoder.js'
import {
  type DecoderPorts,
  decoderPorts,
  fixSwitches,
  type HeadSizes,
  type PortNames,
} from './decoder-ports.js'
import { exactActivations } from './exact-activations.js'
import { foldSizes } from './fold-sizes.js'
import { pageGroupedQueries } from './grouped-queries.js'
import { wantedRows } from './logits.js'
import { type AttentionOptions, pageAttention } from './page-attention.js'
import { raggedInputs } from './paged-attention.js'
import { replacePositions } from './positions.js'
import { reachOf } from './reach.js'
import { widenDecoder } from './widen-weights.js'

/** What the configuration of a model says that its graph may leave open. */
export interface RaggedOptions extends HeadSizes, AttentionOptions {
  readonly names: PortNames
  /** Tokens of the longest sequence. */
  readonly contextLength: number
  readonly vocabularySize: number | undefined
}

/** A decoder in ragged form. */
export interface RaggedDecoder {
  /** Heads of keys and values of each layer, and elements of a head. */
  readonly layers: readonly { readonly kvHeads: number; readonly headSize: number }[]
  readonly vocabularySize: number
  /** Tokens up to which the first of two tables of rotary embeddings holds; Infinity where there is one. */
  readonly shortLength: number
  /** Elements of the state of a token, which the output `hidden` has; 0 where the graph has no such output. */
  readonly hiddenSize: number
  /** The graph, with inputs and outputs as those of `decoderGraph`. */
  graph(cache: CacheSizes): Graph
}

/**
 * Brings an exported decoder of any opset to ragged form.
 * @throws SparkError ERR_UNSUPPORTED naming an input or node that cannot be brought to it; ERR_FORMAT
 */
export async function raggedDecoder(
  exported: Graph,
  options: RaggedOptions,
  pacer = new Pacer(),
): Promise<RaggedDecoder> {
  const { logits } = options.names
  if (!exported.outputs.some(({ name }) => name === logits))
    throw new SparkError('ERR_UNSUPPORTED', `it has no output '${logits}'`)
  const freed = withFreeNames(fixSwitches(exported), options.names)
  const chosen = inlineBranches(uniqueNames(freed.graph))
  const ports = decoderPorts(chosen, freed.names, options)
  const { graph, shortLength } = await pageGroupedQueries(chosen, ports, options.contextLength)
  const canonical = exactActivations(canonicalise(withRaggedInputs(graph, ports)))
  const wide = await widenDecoder(canonical)
  const paged = await pageAttention(foldSizes(wide, ports), ports, options)
  const placed = withTokenInputs(await withPositions(paged, ports), ports)
  const { graph: open, ...sizes } = finished(placed, ports, options)
  const kept = await pacer.do(readCodesPaced(removeDead(open)))
  return { ...sizes, shortLength, graph: cache => withCaches(kept, sizes.layers, cache) }
}

/** Names that the values of ragged graphs have. */
const ownNames =
  /^(?:tokens|positions|long|starts|past|blocks|rows|hidden|logits|(?:next_)?(?:keys|values)\.\d+(?:\.scales)?)$/

/** The graph with other names for values that have those of ragged graphs. */
function withFreeNames(graph: Graph, names: PortNames): { graph: Graph; names: PortNames } {
  const fresh = freshNames(graph)
  const renamed = new Map<string, string>()
  const rename = (name: string): string => renamed.get(name) ?? name
  const made = [
    ...graph.inputs.map(({ name }) => name),
    ...graph.initializers.keys(),
    ...graph.nodes.flatMap(({ outputs }) => outputs),
  ]
  for (const name of made) if (ownNames.test(name)) renamed.set(name, fresh(`exported/${name}`))
  if (renamed.size === 0) return { graph, names }
  const info = (value: ValueInfo): ValueInfo => ({ ...value, name: rename(value.name) })
  const read = renameReads(graph, renamed)
  return {
    graph: {
      ...read,
      nodes: read.nodes.map(node => ({ ...node, outputs: node.outputs.map(rename) })),
      inputs: graph.inputs.map(info),
      outputs: graph.outputs.map(info),
      initializers: new Map([...graph.initializers].map(([name, value]) => [rename(name), value])),
      values: new Map([...graph.values].map(([name, type]) => [rename(name), type])),
    },
    names: { ...names, logits: rename(names.logits) },
  }
}

function withRaggedInputs(graph: Graph, { layers, logits }: DecoderPorts): Graph {
  const caches = layers.flatMap(({ kvHeads, headSize }, layer) =>
    (['keys', 'values'] as const).map(kind => ({
      name: cacheName(kind, layer),
      type: tensorType('f32', ['cache_blocks', 'block_size', kvHeads, headSize]),
    })),
  )
  return {
    ...graph,
    inputs: [...graph.inputs, ...raggedInputs, ...caches],
    outputs: graph.outputs.filter(({ name }) => name === logits),
    opsets: new Map([...graph.opsets, [sparkDomain, 1]]),
  }
}

/** Inputs of the exported graph that only attention knows. */
const lengthInputs = ({ mask, layers }: DecoderPorts): string[] => [
  ...(mask ? [mask.name] : []),
  ...layers.flatMap(({ keys, values }) => [keys, values]),
]

/** Replaces positions that the graph computes from the lengths of mask and past. */
async function withPositions(graph: Graph, ports: DecoderPorts): Promise<Graph> {
  const lengths = lengthInputs(ports)
  const dependent = reachOf(graph, lengths)
  const reader = graph.nodes.find(node => readsOf(node).some(name => lengths.includes(name)))
  if (!reader) return graph
  const caches = graph.inputs
    .map(({ name }) => name)
    .filter(name => name !== ports.mask?.name && name !== ports.positions?.name)
  const data = reachOf(graph, caches, node => node.op !== 'Shape')
  const made = graph.nodes.flatMap(({ outputs }) => outputs)
  const replaced = await replacePositions(
    graph,
    ports,
    made.filter(name => dependent.has(name) && !data.has(name)),
  )
  if (replaced) return withPositions(removeDead(replaced), ports)
  const what = readsOf(reader).find(name => lengths.includes(name))
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${describeNode(reader)}: it reads '${what}', which is for attention and positions only`,
  )
}

/** Tokens and positions of the rows in the place of those of a batch. */
function withTokenInputs(graph: Graph, { ids, positions }: DecoderPorts): Graph {
  const build = new GraphBuilder(graph, 'ragged')
  const row = (info: ValueInfo, rows: string): void => {
    const dtype = info.type?.kind === 'tensor' ? info.type.dtype : 'i64'
    const shaped = build.add('Unsqueeze', [rows, build.constant(Constant.i64([0]))])
    const to = int(onnxNumbers[dtype])
    build.append(makeNode('Cast', [shaped], [info.name], { attributes: { to } }))
  }
  row(ids, 'tokens')
  if (positions) row(positions, 'positions')
  for (const node of graph.nodes) build.append(node)
  const own = new Set([...raggedInputs.map(({ name }) => name)])
  return {
    ...build.rebuild(),
    inputs: graph.inputs.filter(({ name }) => own.has(name) || ownNames.test(name)),
  }
}

/** The graph with the outputs of rows that are wanted, and the sizes of its decoder. */
function finished(
  placed: Graph,
  ports: DecoderPorts,
  options: RaggedOptions,
): Omit<RaggedDecoder, 'graph' | 'shortLength'> & { readonly graph: Graph } {
  const facts = inferFacts(placed)
  const widthOf = (name: string): number | undefined => {
    const type = facts.get(name)?.type
    const width = type?.kind === 'tensor' ? type.shape?.at(-1) : undefined
    return typeof width === 'number' ? width : undefined
  }
  const vocabularySize = widthOf(ports.logits) ?? options.vocabularySize
  if (vocabularySize === undefined)
    throw new SparkError(
      'ERR_FORMAT',
      'neither the graph nor the configuration says how many tokens there are',
    )
  const varying = reachOf(
    placed,
    placed.inputs.map(({ name }) => name),
  )
  const queries = { isVarying: (name: string) => varying.has(name), widthOf }
  const { graph, hiddenSize } = wantedRows({ ...placed, outputs: [] }, ports.logits, vocabularySize, queries)
  const layers = ports.layers.map(({ kvHeads, headSize }) => ({ kvHeads, headSize }))
  return { layers, vocabularySize, hiddenSize, graph }
}

/** The graph with caches of a size. */
function withCaches(graph: Graph, layers: RaggedDecoder['layers'], cache: CacheSizes): Graph {
  const { blocks, blockSize, cacheType = 'f32' } = cache
  const caches = (next: boolean): ValueInfo[] =>
    layers.flatMap(({ kvHeads, headSize }, layer) =>
      (['keys', 'values'] as const).map(kind => ({
        name: cacheName(kind, layer, next),
        type: tensorType(cacheType, [blocks, blockSize, kvHeads, headSize]),
      })),
    )
  const inputs = [...raggedInputs, ...caches(false)]
  return { ...graph, inputs, outputs: [...caches(true), ...graph.outputs], values: new Map() }
}
