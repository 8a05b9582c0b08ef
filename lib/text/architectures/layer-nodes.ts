// layer-nodes.ts: the nodes that all layers are made of.
import { float, int, string } from '../../graph/attributes.js'
import type { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import type { FeedForwardActivation, NormTraits } from './config.js'
import type { LinearWeights } from './named-weights.js'

/** Limits of the SwiGLU of gpt-oss, and the factor in its sigmoid. */
const swigluLimit = 7
const swigluAlpha = 1.702

/** Adds nodes to the graph of a model. Values are known by their names. */
export class LayerNodes {
  readonly #graph: GraphBuilder
  readonly #config: NormTraits

  constructor(graph: GraphBuilder, config: NormTraits) {
    this.#graph = graph
    this.#config = config
  }

  /** x · Wᵀ + bias: [rows, in features] to [rows, out features]. */
  linear(x: string, { weight, bias, isTransposed }: LinearWeights): string {
    const inputs = [x, this.#graph.constant(weight)]
    if (bias) inputs.push(this.#graph.constant(bias))
    return this.#graph.add('Gemm', inputs, { transB: int(isTransposed ? 0 : 1) })
  }

  /** The normalization of the model along the last axis. */
  norm(x: string, { weight, bias }: LinearWeights): string {
    const { norm, epsilon } = this.#config
    const attributes = { epsilon: float(epsilon), axis: int(-1) }
    const inputs = [x, this.#graph.constant(this.normWeight(weight))]
    if (norm === 'rms') return this.#graph.add('RMSNormalization', inputs, attributes)
    if (bias) inputs.push(this.#graph.constant(bias))
    return this.#graph.add('LayerNormalization', inputs, attributes)
  }

  /** The factors of a normalization. */
  normWeight(weight: Constant): Constant {
    if (!this.#config.normPlusOne) return weight
    return Constant.f32(
      Array.from(weight.data as Float32Array, value => Math.fround(value + 1)),
      weight.shape,
    )
  }

  /** x · factor */
  scaled(x: string, factor: number): string {
    return factor === 1 ? x : this.#graph.add('Mul', [x, this.#graph.constant(factor)])
  }

  /** c · tanh(x / c), or x for c = 0. */
  softcapped(x: string, cap: number): string {
    if (cap === 0) return x
    return this.scaled(this.#graph.add('Tanh', [this.scaled(x, 1 / cap)]), cap)
  }

  /** activation(gate) · up, or activation(gate) where there is no `up`. */
  activated(activation: FeedForwardActivation, gate: string, up?: string): string {
    if (activation === 'clamped_swiglu') return this.#clampedSwiglu(gate, up!)
    const result = this.#activation(activation, gate)
    return up === undefined ? result : this.#graph.add('Mul', [result, up])
  }

  #activation(activation: FeedForwardActivation, x: string): string {
    if (activation === 'relu') return this.#graph.add('Relu', [x])
    if (activation === 'silu') return this.#graph.add('Swish', [x])
    return this.#graph.add('Gelu', [x], {
      approximate: string(activation === 'gelu_tanh' ? 'tanh' : 'none'),
    })
  }

  /** (u + 1) · g · σ(1.702 g) with g = min(gate, 7) and u between ±7: gpt-oss. */
  #clampedSwiglu(gate: string, up: string): string {
    const g = this.#graph
    const limited = g.add('Min', [gate, g.constant(swigluLimit)])
    const clipped = g.add('Clip', [up, g.constant(-swigluLimit), g.constant(swigluLimit)])
    const swish = g.add('Swish', [limited], { alpha: float(swigluAlpha) })
    return g.add('Mul', [swish, g.add('Add', [clipped, g.constant(1)])])
  }
}
