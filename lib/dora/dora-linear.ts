// dora-linear.ts: a linear layer with a DoRA adapter.
import { expectKnownOptions } from '../core/checks.js'
import type { Precision } from '../core/config.js'
import type { DType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Kernels, StoredWeight } from '../runtime/kernels.js'
import { decodeWeight, precisionOf, storedBytes, storeWeight } from '../runtime/stored-weight.js'
import { type LayerParts, layerOptions, prepareLayer } from './create.js'
import { type HeldWeight, holdWeight, Retirement } from './held-weight.js'
import { loadLinear, saveLinear } from './linear-files.js'
import { divideOut, expectFiniteMerge, type Merged, mergeWork } from './merge.js'
import type {
  DoRAGradients,
  DoRALinearOptions,
  ForwardOptions,
  LayerOptions,
  LinearLayer,
  MergeOptions,
  NormGradient,
  Parameter,
} from './options.js'
import {
  type Activations,
  backwardWork,
  forwardWork,
  linearWork,
  type Snapshot,
  takeSnapshot,
} from './passes.js'
import { dropoutMask } from './random.js'
import { run, runSync, type Step, type Work } from './work.js'

/**
 * A linear layer whose weight W is frozen and whose change is learned as a direction and a magnitude (DoRA, Liu et al.
 * 2024): y = x · (gain ∘ (W + scale · B·A))ᵀ + bias with gain = magnitude / ‖W + scale · B·A‖ per row, and
 * scale = alpha / rank. No [out, in] temporary is ever made. Sums are taken in f32.
 *
 * @example
 * const layer = await DoRALinear.fromLinear({ weight, bias }, { rank: 8, alpha: 16 })
 * const y = await layer.forward(x, { training: true })
 * const gradients = await layer.backward(dy)
 */
export class DoRALinear {
  /** Columns of the weight. */
  readonly inFeatures: number
  /** Rows of the weight. */
  readonly outFeatures: number
  /** Rows of A. */
  readonly rank: number
  /** Numerator of {@link DoRALinear.scale}. */
  readonly alpha: number
  /** Whether the scale is alpha / √rank. */
  readonly rslora: boolean
  /** Factor of B·A, an f32. */
  readonly scale: number
  /** Probability of dropout in training. */
  readonly dropout: number
  /** Whether the gradients of A and B include those of the norm. */
  readonly normGradient: NormGradient
  /** Name of the adapter in errors. */
  readonly name: string
  /** Engine of this layer. */
  readonly backend: Kernels['backend']

  readonly #kernels: Kernels
  readonly #random: () => number
  readonly #weightNorm2: Float32Array
  readonly #weights = new Retirement()
  #parameters: readonly Parameter[]
  #base: HeldWeight | null
  #merged: Merged | null = null
  #bias: Float32Array | undefined
  #snapshot: Snapshot | null = null
  #activations: Activations | null = null
  #passes = 0
  #training = false
  #disposed = false

  private constructor(parts: LayerParts) {
    const { base, rank, kernels } = parts
    const { weight } = base
    this.inFeatures = weight.cols
    this.outFeatures = weight.rows
    this.rank = rank
    this.alpha = parts.alpha
    this.rslora = parts.rslora
    this.scale = parts.scale
    this.dropout = parts.dropout
    this.normGradient = parts.normGradient
    this.name = parts.name
    this.backend = kernels.backend
    this.#kernels = kernels
    this.#random = parts.random
    this.#weightNorm2 = parts.weightNorm2
    this.#base = base
    this.#bias = parts.bias
    this.#parameters = [
      { name: 'lora_A', shape: [rank, weight.cols], data: parts.a },
      { name: 'lora_B', shape: [weight.rows, rank], data: parts.b },
      { name: 'magnitude', shape: [weight.rows], data: parts.magnitude },
    ]
  }

  /**
   * Puts an adapter on a linear layer. With the usual starting values the layer computes at first what `linear` does.
   * The weight is not copied where its format stays: it must not be changed afterwards.
   *
   * @throws SparkError ERR_SHAPE, ERR_DTYPE, ERR_ARGUMENT for what does not fit; ERR_NOT_FINITE or ERR_RANGE when the
   * weight cannot be stored in `precision`; ERR_NO_CUDA, ERR_NO_NATIVE, ERR_DISABLED for an explicit backend
   */
  static async fromLinear(linear: LinearLayer, options: DoRALinearOptions = {}): Promise<DoRALinear> {
    return new DoRALinear(await prepareLayer(linear, options))
  }

  /**
   * Reads an adapter in PEFT's format and puts it on `linear`.
   *
   * @param folder - holds adapter_config.json and adapter_model.safetensors
   * @param linear - the base layer; [out, in] also where the adapter says fan_in_fan_out
   * @param options - `module`: which module of the adapter; not needed when it has one
   * @throws SparkError ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED for adapters that do something else than DoRA; ERR_SHAPE when
   * the adapter does not fit `linear`; and as {@link DoRALinear.fromLinear}
   */
  static async load(
    folder: string,
    linear: LinearLayer,
    options: LayerOptions & { module?: string } = {},
  ): Promise<DoRALinear> {
    expectKnownOptions('options', options, [...layerOptions, 'module'])
    const { module, ...layer } = options
    const { bias, a, b, magnitude, ...adapter } = await loadLinear(folder, module)
    const initial = { a, b, magnitude }
    return DoRALinear.fromLinear({ ...linear, ...(bias && { bias }) }, { ...layer, ...adapter, initial })
  }

  /**
   * Writes the adapter as PEFT does: adapter_config.json and adapter_model.safetensors (f32).
   *
   * @param folder - made when it does not exist
   * @param options - `module`: name of the layer in the base model; `baseModel`: name or path of that model
   * @throws SparkError ERR_IO, ERR_DISPOSED
   */
  async save(folder: string, options: { module?: string; baseModel?: string } = {}): Promise<void> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['module', 'baseModel'])
    const [a, b, magnitude] = this.#parameters.map(({ data, shape }) => Tensor.from(data.slice(), { shape }))
    const { rank, alpha, rslora, dropout } = this
    await saveLinear(folder, { rank, alpha, rslora, dropout, a, b, magnitude }, options)
  }

  /** Whether {@link DoRALinear.forward} keeps what a backward pass needs. false at first. */
  get training(): boolean {
    return this.#training
  }

  /** Makes forward passes training passes; returns the layer. */
  train(): this {
    this.#expectAlive()
    this.#training = true
    return this
  }

  /** Makes forward passes keep nothing, and forgets what they kept; returns the layer. */
  eval(): this {
    this.#expectAlive()
    this.#training = false
    this.#activations = null
    return this
  }

  /**
   * y = x · (gain ∘ (W + scale · B·A))ᵀ + bias.
   *
   * @param x - [..., in] in f32, f16 or bf16
   * @returns [..., out] in the dtype of x
   * @throws SparkError ERR_SHAPE, ERR_DTYPE, ERR_DISPOSED; ERR_ARGUMENT for a training pass of a merged layer
   */
  async forward<D extends DType>(x: Tensor<D>, options: ForwardOptions = {}): Promise<Tensor<D>> {
    return this.#run(this.#prepareForward(x, options))
  }

  /** {@link DoRALinear.forward}, computed before it returns; not on cuda (ERR_UNSUPPORTED). */
  forwardSync<D extends DType>(x: Tensor<D>, options: ForwardOptions = {}): Tensor<D> {
    return runSync(this.#kernels, this.#prepareForward(x, options))
  }

  /**
   * The gradients of a loss, given its gradient with respect to the output of the last training pass. Those of the
   * parameters are also in {@link DoRALinear.parameters}.
   *
   * @param dy - shape of that output
   * @param options - `input: false` leaves out the gradient of x, which costs as much as the forward pass
   * @throws SparkError ERR_ARGUMENT without a training pass, ERR_SHAPE, ERR_DISPOSED
   */
  async backward(dy: Tensor, options: { input?: boolean } = {}): Promise<DoRAGradients> {
    return this.#run(this.#prepareBackward(dy, options))
  }

  /** {@link DoRALinear.backward}, computed before it returns; not on cuda (ERR_UNSUPPORTED). */
  backwardSync(dy: Tensor, options: { input?: boolean } = {}): DoRAGradients {
    return runSync(this.#kernels, this.#prepareBackward(dy, options))
  }

  /**
   * Folds the adapter into the weight: the layer is then a plain linear layer, without a gradient. Does nothing when it
   * is merged already.
   *
   * @throws SparkError ERR_NOT_FINITE when the merged weight is not finite, ERR_RANGE when it is too large for fp16; the
   * layer stays as it was. ERR_DISPOSED
   */
  async merge(options: MergeOptions = {}): Promise<void> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['safe', 'precision', 'keepOriginal'])
    const { safe = true, precision = this.precision, keepOriginal = true } = options
    if (this.#merged) return
    const { snapshot, tensor } = await this.#run(this.#prepareMerge())
    if (safe) expectFiniteMerge(this.name, tensor)
    const held = await holdWeight(this.#kernels, storeWeight(tensor, precision, 'the merged weight'))
    if (this.#disposed || this.#merged) return held.dispose()
    this.#merged = { ...held, snapshot }
    this.#activations = null
    if (keepOriginal) return
    this.#weights.retire(this.#base)
    this.#base = null
  }

  /**
   * Takes the adapter out of the weight again: bit for bit, unless the frozen weight was not kept. Does nothing when the
   * layer is not merged.
   *
   * @throws SparkError ERR_RANGE when the frozen weight was not kept and a gain is 0; ERR_DISPOSED
   */
  async unmerge(): Promise<void> {
    this.#expectAlive()
    if (!this.#merged) return
    const base = this.#base ?? (await this.#restoreBase(this.#merged))
    if (this.#disposed || !this.#merged) return
    this.#weights.retire(this.#merged)
    this.#base = base
    this.#merged = null
  }

  /** Whether the adapter is folded into the weight. */
  get merged(): boolean {
    return this.#merged !== null
  }

  /**
   * The weight of a plain linear layer that computes the same, [out, in] in f32: gain ∘ (W + scale · B·A).
   * @throws SparkError ERR_DISPOSED
   */
  async mergedWeight(): Promise<Tensor<'f32'>> {
    this.#expectAlive()
    if (this.#merged) {
      const values = decodeWeight(this.#merged.weight)
      return Tensor.from(values.slice(), { shape: [this.outFeatures, this.inFeatures] })
    }
    return (await this.#run(this.#prepareMerge())).tensor
  }

  /**
   * The trainable arrays, always the same objects: A [rank, in], B [out, rank], magnitude [out]. They must not be
   * written while a promise of this layer is pending.
   * @throws SparkError ERR_DISPOSED
   */
  parameters(): readonly Parameter[] {
    this.#expectAlive()
    return this.#parameters
  }

  /** Number of trainable elements: rank · (in + out) + out. */
  get trainableCount(): number {
    return this.rank * (this.inFeatures + this.outFeatures) + this.outFeatures
  }

  /** How the weight in use, frozen or merged, is stored. */
  get precision(): Precision {
    return precisionOf(this.#weight().dtype)
  }

  /** Bytes of the weight in use, scales included. */
  get weightBytes(): number {
    return storedBytes(this.#weight())
  }

  /** Frees the weight and the activations. A second call does nothing; every other method then throws ERR_DISPOSED. */
  dispose(): void {
    this.#disposed = true
    this.#weights.retire(this.#base)
    this.#weights.retire(this.#merged)
    this.#base = null
    this.#merged = null
    this.#bias = undefined
    this.#snapshot = null
    this.#activations = null
    this.#parameters = []
  }

  /** The same as {@link DoRALinear.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #prepareForward<D extends DType>(x: Tensor<D>, options: ForwardOptions): Work<Tensor<D>> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['training', 'mask'])
    const { training = this.#training } = options
    if (this.#merged) {
      if (training) {
        throw new SparkError('ERR_ARGUMENT', 'a merged layer cannot be trained: call unmerge() first')
      }
      return linearWork(this.#merged.weight, this.#bias, x)
    }
    const { snapshot, steps } = this.#takeSnapshot()
    const pass = ++this.#passes
    const mask = (count: number): Tensor | undefined =>
      options.mask ??
      (this.dropout > 0 ? Tensor.from(dropoutMask(this.#random, count, this.dropout)) : undefined)
    const keep = (saved: Activations): void => {
      if (!this.#disposed && pass >= (this.#activations?.pass ?? 0)) this.#activations = saved
    }
    const work = forwardWork(this.#weight(), this.#bias, snapshot, x, training ? { pass, mask, keep } : null)
    const finish = (): Tensor<D> => {
      if (!this.#disposed) this.#snapshot = snapshot
      return work.finish()
    }
    return { steps: [...steps, ...work.steps], finish }
  }

  #prepareBackward(dy: Tensor, options: { input?: boolean }): Work<DoRAGradients> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['input'])
    if (!this.#activations) {
      const remedy = 'call train() and forward(), or forward(x, { training: true }), first'
      throw new SparkError('ERR_ARGUMENT', `there is no training pass to go back through: ${remedy}`)
    }
    const work = backwardWork(this.#weight(), this.#activations, dy, {
      exactNorm: this.normGradient === 'exact',
      input: options.input ?? true,
      bias: this.#bias !== undefined,
    })
    const finish = (): DoRAGradients => {
      const gradients = work.finish()
      const { a, b, magnitude } = gradients
      for (const [i, grad] of [a, b, magnitude].entries()) {
        const parameter = this.#parameters[i]
        if (parameter) parameter.grad = grad.toFloat32()
      }
      return gradients
    }
    return { steps: work.steps, finish }
  }

  #prepareMerge(): Work<{ snapshot: Snapshot; tensor: Tensor<'f32'> }> {
    const { snapshot, steps } = this.#takeSnapshot()
    const { steps: merge, finish } = mergeWork(this.#weight(), snapshot)
    return { steps: [...steps, ...merge], finish: () => ({ snapshot, tensor: finish() }) }
  }

  /** The adapter as it is now, and the steps that compute its gain where they are needed. */
  #takeSnapshot(): { snapshot: Snapshot; steps: readonly Step[] } {
    const data = this.#parameters.map(parameter => parameter.data)
    return takeSnapshot(data, this.#snapshot, {
      weight: this.#weight(),
      weightNorm2: this.#weightNorm2,
      rank: this.rank,
      scale: this.scale,
    })
  }

  async #restoreBase(merged: Merged): Promise<HeldWeight> {
    const weight = await divideOut(this.#kernels, merged, this.#weightNorm2)
    this.#snapshot = null // its norms are those of the weight before
    return holdWeight(this.#kernels, weight)
  }

  #run<T>(work: Work<T>): Promise<T> {
    return this.#weights.during(() => run(this.#kernels, work))
  }

  /** The weight in use. */
  #weight(): StoredWeight {
    this.#expectAlive()
    return (this.#merged ?? this.#base!).weight
  }

  #expectAlive(): void {
    if (this.#disposed)
      throw new SparkError('ERR_DISPOSED', `the layer of adapter '${this.name}' was disposed`)
  }
}
