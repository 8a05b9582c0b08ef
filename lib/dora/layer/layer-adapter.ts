// layer-adapter.ts: one of the adapters of a layer.
import { expectInteger, expectKnownOptions, expectNumber } from '../../core/checks.js'
import { kaimingUniform, randomGenerator } from '../../core/random.js'
import type { Kernels, LowRank, StoredWeight } from '../../kernels/kernels.js'
import type { DoRAGradients, LayerAdapterOptions, Parameter } from './options.js'
import { floats, type Snapshot, takeSnapshot } from './passes.js'
import type { Step, Work } from './prepared-calls.js'

/** A frozen weight and its squared row norms. */
export interface Frozen {
  readonly weight: StoredWeight
  readonly weightNorm2: Float32Array
}

/** Keys of LayerAdapterOptions. */
export const adapterOptions = ['rank', 'alpha', 'rslora', 'dropout', 'initial', 'seed']

/** The settings, the trainable arrays and the last gain of an adapter. */
export class LayerAdapter {
  /** A [rank, in], B [out, rank], magnitude [out]. */
  parameters: readonly Parameter[]
  readonly rank: number
  readonly alpha: number
  readonly rslora: boolean
  readonly scale: number
  readonly dropout: number
  readonly #seed: number
  #masks = 0
  #snapshot: Snapshot | null = null

  /** Without a magnitude the arrays await that of {@link LayerAdapter.create}. @throws SparkError for options */
  private constructor(
    readonly name: string,
    { rows, cols }: StoredWeight,
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

  /** Checks the options against the weight; the arrays are complete once `ready` has run. */
  static prepare(
    name: string,
    weight: StoredWeight,
    options: LayerAdapterOptions,
  ): { adapter: LayerAdapter; ready(kernels: Kernels, frozen: Frozen): Promise<void> } {
    const adapter = new LayerAdapter(name, weight, options)
    const ready = async (kernels: Kernels, frozen: Frozen): Promise<void> => {
      if (options.initial?.magnitude) return
      const [a, b, magnitude] = adapter.#arrays()
      await rowNorms(kernels, frozen, { rank: adapter.rank, scale: adapter.scale, a, b }, magnitude)
    }
    return { adapter, ready }
  }

  /** The adapter as it is now, and the steps that compute its gain where it is not the one of the last time. */
  takeSnapshot(frozen: Frozen): { snapshot: Snapshot; steps: readonly Step[] } {
    const { rank, scale } = this
    return takeSnapshot(this.#arrays(), this.#snapshot, { ...frozen, rank, scale })
  }

  /** Keeps a snapshot whose steps have run. */
  keep(snapshot: Snapshot): void {
    if (this.parameters.length > 0) this.#snapshot = snapshot
  }

  /** Work that is done once `steps` have run, which also complete a snapshot of this adapter. */
  completed<T>(snapshot: Snapshot, steps: readonly Step[], finish: () => T): Work<T> {
    return {
      steps,
      finish: () => {
        this.keep(snapshot)
        return finish()
      },
    }
  }

  /** Lets the next snapshot compute its gain. */
  forgetGain(): void {
    this.#snapshot = null
  }

  /** Puts gradients beside the parameters; returns them. */
  setGradients(gradients: DoRAGradients): DoRAGradients {
    const { a, b, magnitude } = gradients
    for (const [i, grad] of [a, b, magnitude].entries()) {
      const parameter = this.parameters[i]
      if (parameter) parameter.grad = grad.toFloat32()
    }
    return gradients
  }

  /** A dropout mask for `count` elements and the step that draws it, another one at each call; nothing without dropout. */
  drawMask(count: number): { mask: Float32Array; step: Step } | undefined {
    if (this.dropout === 0) return undefined
    const mask = new Float32Array(count)
    const state = Uint32Array.of(this.#seed, ++this.#masks, 0)
    return { mask, step: ['dropoutMask', { count, ratio: this.dropout, stream: 0, state, mask }] }
  }

  /** Lets go of the arrays. */
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

/** out = ‖W + scale · B·A‖ by rows: the magnitude with which a layer computes at first what plain LoRA does. */
export async function rowNorms(
  kernels: Kernels,
  { weight, weightNorm2 }: Frozen,
  lowRank: LowRank,
  out: Float32Array,
): Promise<void> {
  const [magnitude, gain] = [new Float32Array(weight.rows), new Float32Array(weight.rows)]
  await kernels.run('doraNorm', { ...lowRank, weight, weightNorm2, magnitude, norm: out, gain })
}
