// layer-adapter.ts: parameters and settings of one adapter of a layer.
import { expectInteger, expectKnownOptions, expectNumber } from '../../core/checks.js'
import { kaimingUniform, randomGenerator } from '../../core/random.js'
import type { Kernels, LowRank, Weight } from '../../kernels/kernels.js'
import { floats, type Snapshot, takeSnapshot } from './forward-backward.js'
import type { KernelCall, KernelCalls } from './kernel-calls.js'
import type { DoRAGradients, LayerAdapterOptions, Parameter } from './layer-types.js'

/** A frozen weight and its squared row norms. */
export interface FrozenWeight {
  readonly weight: Weight
  readonly weightNorm2: Float32Array
}

/** Keys of LayerAdapterOptions. */
export const adapterOptions = ['rank', 'alpha', 'rslora', 'dropout', 'initial', 'seed']

/** Keys of LayerOptions. */
export const layerOptions = ['name', 'normGradient', 'precision', 'activations', 'backend', 'device', 'seed']

/** The settings, the trainable arrays and the last gain of an adapter. */
export class LayerAdapter {
  /** A [rank, in], B [out, rank], magnitude [out]. */
  parameters: readonly Parameter[]
  readonly rank: number
  readonly alpha: number
  readonly rslora: boolean
  readonly scale: number
  readonly dropout: number
  /** Number of trainable elements. */
  readonly trainableCount: number
  readonly #seed: number
  #masks = 0
  #snapshot: Snapshot | null = null

  /** Without an initial magnitude, {@link LayerAdapter.prepare} computes it later. @throws SparkError for invalid options */
  private constructor(
    readonly name: string,
    { rows, cols }: Weight,
    options: LayerAdapterOptions,
  ) {
    const { rank = 16, alpha = 16, rslora = false, dropout = 0, initial = {}, seed = 0 } = options
    expectLayerAdapterOptions(options)
    this.#seed = seed
    this.rank = rank
    this.alpha = alpha
    this.rslora = rslora
    this.scale = Math.fround(alpha / (rslora ? Math.sqrt(rank) : rank))
    this.dropout = dropout
    this.trainableCount = rank * (rows + cols) + rows
    const a = initial.a
      ? floats('options.initial.a', initial.a, [rank, cols])
      : kaimingUniform(randomGenerator(seed), rank * cols, cols)
    const b = initial.b ? floats('options.initial.b', initial.b, [rows, rank]) : new Float32Array(rows * rank)
    const magnitude = initial.magnitude
      ? floats('options.initial.magnitude', initial.magnitude, [rows])
      : new Float32Array(rows)
    this.parameters = [
      { name: 'lora_A', shape: [rank, cols], data: a },
      { name: 'lora_B', shape: [rows, rank], data: b },
      { name: 'magnitude', shape: [rows], data: magnitude },
    ]
  }

  /** Checks the options against the weight; `ready` computes a magnitude that was not given. */
  static prepare(
    name: string,
    weight: Weight,
    options: LayerAdapterOptions,
  ): { adapter: LayerAdapter; ready(kernels: Kernels, frozen: FrozenWeight): Promise<void> } {
    const adapter = new LayerAdapter(name, weight, options)
    const ready = async (kernels: Kernels, frozen: FrozenWeight): Promise<void> => {
      if (options.initial?.magnitude) return
      const [a, b, magnitude] = adapter.#arrays()
      await rowNorms(kernels, frozen, { rank: adapter.rank, scale: adapter.scale, a, b }, magnitude)
    }
    return { adapter, ready }
  }

  /** The current parameters, and the calls that compute their gain if they changed since the last snapshot. */
  takeSnapshot(frozen: FrozenWeight): { snapshot: Snapshot; calls: readonly KernelCall[] } {
    const { rank, scale } = this
    return takeSnapshot(this.#arrays(), this.#snapshot, { ...frozen, rank, scale })
  }

  /** Caches a snapshot whose calls have run. */
  keep(snapshot: Snapshot): void {
    if (this.parameters.length > 0) this.#snapshot = snapshot
  }

  /** Appends caching of `snapshot`, which `calls` complete, to a sequence of calls. */
  completed<T>(snapshot: Snapshot, calls: readonly KernelCall[], result: () => T): KernelCalls<T> {
    return {
      calls,
      result: () => {
        this.keep(snapshot)
        return result()
      },
    }
  }

  /** Makes the next snapshot compute its gain again. */
  forgetGain(): void {
    this.#snapshot = null
  }

  /** Stores gradients with their parameters; returns them. */
  setGradients(gradients: DoRAGradients): DoRAGradients {
    const { a, b, magnitude } = gradients
    for (const [i, grad] of [a, b, magnitude].entries()) {
      const parameter = this.parameters[i]
      if (parameter) parameter.grad = grad.toFloat32()
    }
    return gradients
  }

  /** A new random dropout mask for `count` elements and the call that fills it; undefined without dropout. */
  drawMask(count: number): { mask: Float32Array; call: KernelCall } | undefined {
    if (this.dropout === 0) return undefined
    const mask = new Float32Array(count)
    const state = Uint32Array.of(this.#seed, ++this.#masks, 0)
    return { mask, call: ['dropoutMask', { count, ratio: this.dropout, stream: 0, state, mask }] }
  }

  /** Drops the arrays. */
  dispose(): void {
    this.parameters = []
    this.#snapshot = null
  }

  #arrays(): [a: Float32Array, b: Float32Array, magnitude: Float32Array] {
    return this.parameters.map(({ data }) => data) as [Float32Array, Float32Array, Float32Array]
  }
}

function expectLayerAdapterOptions(options: LayerAdapterOptions): void {
  const { rank = 16, alpha = 16, dropout = 0, initial = {}, seed = 0 } = options
  expectInteger('options.rank', rank, 1)
  expectNumber('options.alpha', alpha)
  expectNumber('options.dropout', dropout, 0, 1 - 2 ** -24)
  expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
  expectKnownOptions('options.initial', initial, ['a', 'b', 'magnitude'])
}

/** out = row norms of W + scale · B·A: the magnitude with which DoRA equals plain LoRA. */
export async function rowNorms(
  kernels: Kernels,
  { weight, weightNorm2 }: FrozenWeight,
  lowRank: LowRank,
  out: Float32Array,
): Promise<void> {
  const magnitude = new Float32Array(weight.rows)
  const gain = new Float32Array(weight.rows)
  await kernels.run('doraNorm', { ...lowRank, weight, weightNorm2, magnitude, norm: out, gain })
}
