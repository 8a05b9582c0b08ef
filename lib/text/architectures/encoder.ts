// encoder.ts: the graph of an encoder, one form for all architectures: texts of one batch padded to the longest of them.
import { float, int } from '../../graph/attributes.js'
import { GraphBuilder } from '../../graph/builder.js'
import { type Graph, makeGraph, makeNode, tensorType, type ValueInfo } from '../../graph/graph.js'
import type { WeightSource } from './config.js'
import type { EncoderConfig, EncoderLayer } from './encoder-config.js'
import { EncoderSequences } from './encoder-sequences.js'
import { EncoderWeights } from './encoder-weights.js'
import { denseNetwork } from './feed-forward.js'
import { LayerNodes } from './layer-nodes.js'
import type { LinearWeights } from './named-weights.js'
import { RotaryNodes } from './rotary-nodes.js'

/** How the states of the tokens of a text become one vector. */
export type Pooling = 'mean' | 'cls' | 'last'

/** All ways of pooling; each is an output of the graph. */
export const poolings: readonly Pooling[] = ['mean', 'cls', 'last']

/** Makes the layers of an encoder. */
class EncoderBuilder {
  readonly #config: EncoderConfig
  readonly #weights: EncoderWeights
  readonly #graph = new GraphBuilder(makeGraph({ name: 'encoder' }), 'encoder')
  readonly #nodes: LayerNodes
  readonly #sequences: EncoderSequences
  readonly #rotary: RotaryNodes
  readonly #outputs: ValueInfo[] = []

  constructor(config: EncoderConfig, source: WeightSource) {
    this.#config = config
    this.#weights = new EncoderWeights(source)
    this.#nodes = new LayerNodes(this.#graph, config)
    this.#sequences = new EncoderSequences(this.#graph, config.hiddenSize)
    this.#rotary = new RotaryNodes(this.#graph, this.#sequences.positions)
  }

  build(): Graph {
    const { layers, type, hiddenSize } = this.#config
    let x = this.#embedded()
    for (const [index, layer] of layers.entries()) x = this.#layer(x, index, layer)
    const rows = this.#normed(x, this.#weights.finalNorm)
    const hidden = this.#sequences.padded(rows)
    this.#give(hidden, 'hidden', ['sequences', 'length', hiddenSize])
    for (const pooling of poolings)
      this.#give(this.#pooled(pooling, rows, hidden), pooling, ['sequences', hiddenSize])
    this.#weights.expectAllUsed(type)
    return { ...this.#graph.build(), outputs: this.#outputs }
  }

  #give(value: string, name: string, shape: (number | string)[]): void {
    this.#graph.append(makeNode('Identity', [value], [name]))
    this.#outputs.push({ name, type: tensorType('f32', shape) })
  }

  #pooled(pooling: Pooling, rows: string, hidden: string): string {
    if (pooling === 'mean') return this.#sequences.mean(hidden)
    return pooling === 'cls' ? this.#sequences.first(hidden) : this.#sequences.last(rows)
  }

  /** Rows of the embeddings of all tokens, [sequences · length, hidden size]. */
  #embedded(): string {
    const g = this.#graph
    const tokens = g.add('Gather', [g.constant(this.#weights.embedding), 'tokens'], { axis: int(0) })
    const added = [this.#typeRow(), this.#positionRows()].filter(value => value !== undefined)
    const sum = added.reduce((total, value) => g.add('Add', [total, value]), tokens)
    return this.#sequences.rows(this.#normed(sum, this.#weights.embeddingNorm))
  }

  /** What tokens of the only text of a sequence have in common, [1, hidden size]. */
  #typeRow(): string | undefined {
    const g = this.#graph
    const table = this.#weights.tokenTypes
    return table && g.add('Slice', [g.constant(table), g.constant([0]), g.constant([1]), g.constant([0])])
  }

  /** Learned positions, [length, hidden size]. */
  #positionRows(): string | undefined {
    const g = this.#graph
    const table = this.#weights.positions
    const { firstPosition } = this.#config
    const { positions } = this.#sequences
    const rows = firstPosition === 0 ? positions : g.add('Add', [positions, g.constant([firstPosition])])
    return table && g.add('Gather', [g.constant(table), rows], { axis: int(0) })
  }

  #layer(x: string, index: number, layer: EncoderLayer): string {
    const { normFirst } = this.#config
    const [first, second] = (['attentionNorm', 'feedForwardNorm'] as const).map(part =>
      this.#weights.optional(index, part),
    )
    const step = (state: string, norm: LinearWeights | undefined, change: (x: string) => string): string => {
      const inside = normFirst ? this.#normed(state, norm) : state
      const sum = this.#graph.add('Add', [state, change(inside)])
      return normFirst ? sum : this.#normed(sum, norm)
    }
    const attended = step(x, first, state => this.#attention(state, index, layer))
    return step(attended, second, state => this.#feedForward(state, index))
  }

  #normed(x: string, norm: LinearWeights | undefined): string {
    return norm ? this.#nodes.norm(x, norm) : x
  }

  #feedForward(x: string, layer: number): string {
    const { activation } = this.#config
    return denseNetwork(x, {
      graph: this.#graph,
      nodes: this.#nodes,
      weights: this.#weights,
      layer,
      activation,
    })
  }

  #attention(x: string, index: number, layer: EncoderLayer): string {
    const [query, key, value] = this.#projections(x, index).map(part => this.#sequences.padded(part))
    const inputs = [
      this.#rotated(query!, layer),
      this.#rotated(key!, layer),
      value!,
      this.#sequences.mask(layer.distance),
    ]
    const { heads, headSize } = layer
    const attributes = {
      q_num_heads: int(heads),
      kv_num_heads: int(heads),
      scale: float(headSize ** -0.5),
    }
    const attended = this.#sequences.rows(this.#graph.add('Attention', inputs, attributes))
    return this.#nodes.linear(attended, this.#weights.part(index, 'attentionOutput'))
  }

  #rotated(x: string, { rotary, heads }: EncoderLayer): string {
    if (!rotary) return x
    const [cosines, sines] = this.#rotary.angles(rotary)
    const inputs = [x, cosines, sines, this.#sequences.positionGrid]
    const attributes = {
      num_heads: int(heads),
      rotary_embedding_dim: int(2 * rotary.frequencies[0]!.length),
      interleaved: int(rotary.interleaved ? 1 : 0),
    }
    return this.#graph.add('RotaryEmbedding', inputs, attributes)
  }

  /** Queries, keys and values, [sequences · length, hidden size] each. */
  #projections(x: string, index: number): string[] {
    const fused = this.#weights.optional(index, 'queryKeyValue')
    if (!fused) {
      const parts = ['query', 'key', 'value'] as const
      return parts.map(part => this.#nodes.linear(x, this.#weights.part(index, part)))
    }
    const wide = this.#nodes.linear(x, fused)
    return this.#graph.addMany('Split', [wide], [true, true, true], { axis: int(1), num_outputs: int(3) })
  }
}

/**
 * The graph of an encoder: i32 inputs `tokens` [sequences, length], of which a sequence uses the first ones, and `lengths`
 * [sequences], how many, at least 1; outputs `hidden` [sequences, length, hidden size], and [sequences, hidden size] `mean`, `cls`
 * (that of the first token) and `last`. Nothing that a sequence uses depends on the other ones, nor on how long they are.
 * @throws SparkError ERR_FORMAT when weights are missing or do not fit, ERR_UNSUPPORTED when there are ones that are not known
 */
export function encoderGraph(config: EncoderConfig, source: WeightSource): Graph {
  return new EncoderBuilder(config, source).build()
}
