// decoder.ts: the graph of a decoder, one form for all architectures. Its rows are the tokens of several sequences, one
// after another; only attention knows which rows belong together.
import { argumentError } from '../../core/checks.js'
import { float, int } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import {
  type Graph,
  makeGraph,
  makeNode,
  sparkDomain,
  tensorType,
  type ValueInfo,
} from '../../graph/graph.js'
import type { CacheType } from './cache-types.js'
import type { DecoderConfig, LayerConfig, WeightSource } from './config.js'
import { DecoderWeights } from './decoder-weights.js'
import { denseNetwork, expertNetwork } from './feed-forward.js'
import { LayerNodes } from './layer-nodes.js'
import type { LinearWeights } from './named-weights.js'
import { RotaryNodes } from './rotary-nodes.js'

/** Sizes of the memory of keys and values. */
export interface CacheSizes {
  /** What keys and values are rounded to. Default: f32. */
  readonly cacheType?: CacheType
  /** Blocks that all sequences share. */
  readonly blocks: number
  /** Tokens of a block. */
  readonly blockSize: number
}

/** What is known of a decoder without its weights. */
export interface DecoderSizes
  extends Pick<DecoderConfig, 'type' | 'hiddenSize' | 'vocabularySize' | 'contextLength'> {
  /** Keys and values of each layer, first to last. */
  readonly layers: readonly Pick<LayerConfig, 'kvHeads' | 'headSize'>[]
  /** Tokens up to which rotary embeddings are those of short sequences; Infinity where all are alike. */
  readonly shortLength: number
}

/** A decoder, whatever its file is. */
export interface Decoder {
  readonly sizes: DecoderSizes
  /** Its graph, of the form of {@link decoderGraph}; `hidden` may be missing. */
  graph(cache: CacheSizes): Graph
}

/** What names of outputs begin with that become inputs of the next run. */
export const nextPrefix = 'next_'

/** Name of the keys or values of a layer as input of the graph, and, with `next`, as output. */
export const cacheName = (kind: 'keys' | 'values', layer: number, next = false): string =>
  `${next ? nextPrefix : ''}${kind}.${layer}`

/** The remark of a graph that says behind which nodes the embedding and each layer end. */
const layerEnds = 'layer ends'

/**
 * Where `cutGraph` cuts the graph of a decoder so that its first stages are the embedding and some of its layers.
 * @param layers - for each cut the number of layers in front of it, ascending: 0 cuts between the embedding and the first layer,
 * the number of all layers in front of the head
 * @throws SparkError ERR_ARGUMENT for other numbers, and for a graph that `decoderGraph` did not make
 */
export function decoderCuts({ metadata }: Graph, layers: readonly number[]): number[] {
  const ends = metadata.get(layerEnds)?.split(' ').map(Number)
  if (!ends)
    throw argumentError('graph', 'one of decoderGraph, which tells where its layers end', 'another one')
  if (
    !Array.isArray(layers) ||
    !layers.every((count, i) => ends[count] !== undefined && !(count <= layers[i - 1]!))
  )
    throw argumentError('layers', `ascending numbers of layers from 0 to ${ends.length - 1}`, layers)
  return layers.map(count => ends[count]!)
}

/** Inputs of the graph but for the caches, all i32. */
const inputShapes = {
  /** Tokens of all sequences. */
  tokens: ['tokens'],
  /** Position of each token in its sequence. */
  positions: ['tokens'],
  /** 1 for tokens of sequences that are longer than the short form of their rotary embeddings, else 0. */
  long: ['tokens'],
  /** First row of each sequence, and the number of rows. */
  starts: ['starts'],
  /** Tokens of each sequence that its cache has already. */
  past: ['sequences'],
  /** Blocks of each sequence. */
  blocks: ['sequences', 'table'],
  /** Rows that logits are wanted of. */
  rows: ['rows'],
} as const

/** Makes the layers of a decoder. */
class DecoderBuilder {
  readonly #config: DecoderConfig
  readonly #weights: DecoderWeights
  readonly #graph = new GraphBuilder(makeGraph({ name: 'decoder' }), 'decoder')
  readonly #nodes: LayerNodes
  readonly #rotary: RotaryNodes
  readonly #outputs: ValueInfo[] = []

  constructor(config: DecoderConfig, source: WeightSource) {
    this.#config = config
    this.#weights = new DecoderWeights(source)
    this.#nodes = new LayerNodes(this.#graph, config)
    this.#rotary = new RotaryNodes(this.#graph, 'positions', 'long')
  }

  build(cache: CacheSizes): Graph {
    const { layers, type, hiddenSize, vocabularySize } = this.#config
    for (const [name, shape] of Object.entries(inputShapes))
      this.#graph.input({ name, type: tensorType('i32', shape) })
    for (const [index, layer] of layers.entries()) this.#addCache(index, layer, cache)
    const table = this.#graph.constant(this.#weights.embedding)
    let x = this.#embedded(table)
    const ends = [this.#graph.nodes.length]
    for (const [index, layer] of layers.entries()) {
      x = this.#layer(x, index, layer)
      ends.push(this.#graph.nodes.length)
    }
    const wanted = this.#graph.add('Gather', [x, 'rows'], { axis: int(0) })
    const hidden = this.#nodes.norm(wanted, this.#weights.norm)
    this.#give(hidden, 'hidden', ['rows', hiddenSize])
    this.#give(this.#logits(hidden, table), 'logits', ['rows', vocabularySize])
    this.#weights.expectAllUsed(type)
    const graph = this.#graph.build()
    return { ...graph, outputs: this.#outputs, metadata: new Map([[layerEnds, ends.join(' ')]]) }
  }

  #addCache(index: number, { kvHeads, headSize }: LayerConfig, cache: CacheSizes): void {
    const { blocks, blockSize, cacheType = 'f32' } = cache
    for (const kind of ['keys', 'values'] as const) {
      const type = tensorType(cacheType, [blocks, blockSize, kvHeads, headSize])
      this.#graph.input({ name: cacheName(kind, index), type })
      this.#outputs.push({ name: cacheName(kind, index, true), type })
    }
  }

  #give(value: string, name: string, shape: (number | string)[]): void {
    this.#graph.append(makeNode('Identity', [value], [name]))
    this.#outputs.push({ name, type: tensorType('f32', shape) })
  }

  #embedded(table: string): string {
    const tokens = this.#graph.add('Gather', [table, 'tokens'], { axis: int(0) })
    const scaled = this.#nodes.scaled(tokens, this.#config.embeddingScale)
    const { positions } = this.#weights
    if (!positions) return scaled
    const learned = this.#graph.add('Gather', [this.#graph.constant(positions), 'positions'], {
      axis: int(0),
    })
    return this.#graph.add('Add', [scaled, learned])
  }

  #logits(hidden: string, table: string): string {
    const { logitScale, logitSoftcap } = this.#config
    const head = this.#weights.head
    const logits = head
      ? this.#nodes.linear(hidden, head)
      : this.#graph.add('Gemm', [hidden, table], { transB: int(1) })
    return this.#nodes.softcapped(this.#nodes.scaled(logits, logitScale), logitSoftcap)
  }

  /** A layer, with normalizations where the file has them: in front, behind, or both. */
  #layer(x: string, index: number, layer: LayerConfig): string {
    const weights = this.#weights
    const before = weights.optional(index, 'attentionNorm')
    const middle = weights.optional(index, 'postAttentionNorm')
    const own = weights.optional(index, 'feedForwardNorm')
    // What is behind attention is in front of the feed-forward network where that has none of its own.
    const isPre = before !== undefined && own === undefined
    const attended = this.#attention(this.#normed(x, before), index, layer)
    const between = isPre ? attended : this.#normed(attended, middle)
    const after = weights.optional(index, 'postFeedForwardNorm')
    const second = isPre ? (middle ?? (this.#config.parallel ? before : undefined)) : own
    const sum = this.#added(x, between)
    const network = this.#feedForward(this.#normed(this.#config.parallel ? x : sum, second), index, layer)
    return this.#added(sum, this.#normed(network, after))
  }

  #normed(x: string, norm: LinearWeights | undefined): string {
    return norm ? this.#nodes.norm(x, norm) : x
  }

  #added(x: string, change: string): string {
    return this.#graph.add('Add', [x, this.#nodes.scaled(change, this.#config.residualScale)])
  }

  #feedForward(x: string, layer: number, { experts }: LayerConfig): string {
    const { activation } = this.#config
    const parts = { graph: this.#graph, nodes: this.#nodes, weights: this.#weights, layer, activation }
    return experts ? expertNetwork(x, experts, parts) : denseNetwork(x, parts)
  }

  #attention(x: string, index: number, layer: LayerConfig): string {
    const [q, k, v] = this.#projections(x, index, layer)
    const weights = this.#weights
    const norms = ['queryNorm', 'keyNorm'] as const
    const given = norms.map(part => weights.optional(index, part))
    const isWhole = this.#config.wholeQkNorm
    const [query, key] = isWhole ? [this.#normed(q, given[0]), this.#normed(k, given[1])] : [q, k]
    const headNorm = (norm: LinearWeights | undefined): string =>
      norm && !isWhole ? this.#graph.constant(this.#nodes.normWeight(norm.weight)) : ''
    const sinks = weights.vector(index, 'sinks')
    const [cosines, sines] = layer.rotary ? this.#rotary.angles(layer.rotary) : ['', '']
    const output = this.#graph.fresh('decoder/attention')
    const inputs = [
      query,
      key,
      v,
      cacheName('keys', index),
      cacheName('values', index),
      'starts',
      'past',
      'blocks',
      cosines,
      sines,
      '',
      sinks ? this.#graph.constant(sinks) : '',
      headNorm(given[0]),
      headNorm(given[1]),
    ]
    const outputs = [output, cacheName('keys', index, true), cacheName('values', index, true)]
    const attributes = {
      num_heads: int(layer.heads),
      kv_num_heads: int(layer.kvHeads),
      scale: float(layer.scale),
      softcap: float(layer.softcap),
      local_window_size: int(layer.window === Number.POSITIVE_INFINITY ? -1 : layer.window),
      rotary_interleaved: int(layer.rotary?.interleaved ? 1 : 0),
      norm_epsilon: float(this.#config.epsilon),
    }
    this.#graph.append(makeNode('PagedAttention', inputs, outputs, { domain: sparkDomain, attributes }))
    return this.#nodes.linear(output, weights.part(index, 'attentionOutput'))
  }

  /** Queries [tokens, heads · size], keys and values [tokens, kv heads · size]. */
  #projections(x: string, index: number, layer: LayerConfig): [string, string, string] {
    const fused = this.#weights.optional(index, 'queryKeyValue')
    if (!fused) {
      const parts = ['query', 'key', 'value'] as const
      return parts.map(part => this.#nodes.linear(x, this.#weights.part(index, part))) as [
        string,
        string,
        string,
      ]
    }
    const { heads, kvHeads, headSize } = layer
    const g = this.#graph
    const wide = this.#nodes.linear(x, fused)
    if (this.#weights.isSplitByHead) {
      const parts = g.add('Reshape', [wide, g.constant([0, heads, 3, headSize])])
      return [0, 1, 2].map(i => {
        const one = g.add('Slice', [parts, g.constant([i]), g.constant([i + 1]), g.constant([2])])
        return g.add('Reshape', [one, g.constant([0, heads * headSize])])
      }) as [string, string, string]
    }
    const sizes = g.constant([heads * headSize, kvHeads * headSize, kvHeads * headSize])
    return g.addMany('Split', [wide, sizes], [true, true, true], { axis: int(1) }) as [string, string, string]
  }
}

/**
 * The graph of a decoder: i32 inputs `tokens`, `positions`, `long`, `starts`, `past`, `blocks`, `rows`, and for each layer
 * `keys.i` and `values.i`, [blocks, block size, kv heads, head size] f32, which its outputs `next_keys.i` and `next_values.i`
 * become; outputs `logits` [rows, vocabulary] and `hidden` [rows, hidden size], which is behind the last normalization.
 * @throws SparkError ERR_FORMAT when weights are missing or do not fit, ERR_UNSUPPORTED when there are ones that are not known
 */
export function decoderGraph(config: DecoderConfig, source: WeightSource, cache: CacheSizes): Graph {
  return new DecoderBuilder(config, source).build(cache)
}

/** A decoder of a configuration and weights. */
export function configuredDecoder(config: DecoderConfig, source: WeightSource): Decoder {
  const lengths = config.layers.map(({ rotary }) => rotary?.shortLength ?? Number.POSITIVE_INFINITY)
  return {
    sizes: { ...config, shortLength: Math.min(...lengths) },
    graph: cache => decoderGraph(config, source, cache),
  }
}
