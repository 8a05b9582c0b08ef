// dora-linear.ts: a linear layer with a DoRA adapter.
import { expectKnownOptions } from '../../core/checks.js'
import type { Precision } from '../../core/config.js'
import type { DType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { DeferredRelease, holdWeight } from '../../kernels/hold-weight.js'
import type { Kernels, Weight } from '../../kernels/kernels.js'
import { Tensor } from '../../memory/tensor.js'
import { decodeWeight, precisionOf, storeWeight, weightBytes } from '../../weights/encode.js'
import { releaseWeight } from '../../weights/weight.js'
import { AdaptedLayer } from './adapted-layer.js'
import { AdapterSet } from './adapter-set.js'
import {
  type Activations,
  backwardCalls,
  forwardCalls,
  linearCalls,
  type Snapshot,
} from './forward-backward.js'
import { type KernelCalls, run, runSync } from './kernel-calls.js'
import { adapterOptions, type FrozenWeight, LayerAdapter, layerOptions } from './layer-adapter.js'
import type {
  DoRAGradients,
  DoRALinearOptions,
  ForwardOptions,
  LayerAdapterOptions,
  LayerOptions,
  LinearLayer,
  MergeOptions,
  NormGradient,
  Parameter,
} from './layer-types.js'
import { expectFiniteMerge, type Merged, mergeCalls, unmergedWeight } from './merge.js'
import { mixedForwardCalls } from './mixed-batch.js'
import type { LayerState } from './prepare-layer.js'

/**
 * A linear layer with a frozen weight W and a trainable DoRA adapter (Liu et al. 2024):
 * y = x · (gain ∘ (W + scale · B·A))ᵀ + bias with gain = magnitude / ‖W + scale · B·A‖ per row and scale = alpha / rank.
 * It never materializes an [out, in] temporary. Sums are accumulated in f32.
 *
 * @example
 * const layer = await DoRALinear.fromLinear({ weight, bias }, { rank: 8, alpha: 16 })
 * const y = await layer.forward(x, { training: true })
 * const gradients = await layer.backward(dy)
 */
export class DoRALinear extends AdaptedLayer {
  /** Number of columns of the weight. */
  readonly inFeatures: number
  /** Number of rows of the weight. */
  readonly outFeatures: number
  /** Whether the gradients of A and B include those of the norm. */
  readonly normGradient: NormGradient
  /** What the rows of inference passes are rounded to. */
  readonly activations: 'f32' | 'nvfp4'
  /** The backend that runs this layer. */
  readonly backend: Kernels['backend']

  readonly #kernels: Kernels
  readonly #weightNorm2: Float32Array
  readonly #weights = new DeferredRelease()
  readonly #adapters: AdapterSet
  #base: Weight | null
  #merged: Merged | null = null
  #bias: Float32Array | undefined
  #kept: { adapter: LayerAdapter; activations: Activations } | null = null
  #passes = 0
  #training = false
  #disposed = false

  private constructor({ base, kernels, weightNorm2, bias, normGradient, activations, adapter }: LayerState) {
    super()
    this.inFeatures = base.cols
    this.outFeatures = base.rows
    this.normGradient = normGradient
    this.activations = activations
    this.backend = kernels.backend
    this.#kernels = kernels
    this.#weightNorm2 = weightNorm2
    this.#base = base
    this.#bias = bias
    this.#adapters = new AdapterSet(adapter)
  }

  /**
   * Adds an adapter to a linear layer. With the default initial values the new layer computes the same as `linear`.
   * The layer keeps a copy of the weight in the layout of its backend. Backend `js` keeps the array itself unless its
   * format changes: do not write to it afterwards.
   * @throws SparkError ERR_SHAPE, ERR_DTYPE, ERR_ARGUMENT for invalid arguments; ERR_NOT_FINITE or ERR_RANGE when the
   * weight cannot be stored in `precision`; ERR_NO_CUDA, ERR_NO_NATIVE, ERR_DISABLED for an explicit backend
   */
  static async fromLinear(linear: LinearLayer, options: DoRALinearOptions = {}): Promise<DoRALinear> {
    return new DoRALinear(await (await import('./prepare-layer.js')).prepareLayer(linear, options))
  }

  /**
   * Reads an adapter in PEFT's format and adds it to `linear`.
   *
   * @param folder - contains adapter_config.json and adapter_model.safetensors
   * @param linear - the base layer; its weight is [out, in] even if the adapter sets fan_in_fan_out
   * @param options - `module`: a module of the adapter; may be omitted if there is only one
   * @throws SparkError ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED for adapters other than DoRA; ERR_SHAPE when the
   * adapter does not fit `linear`; and the errors of {@link DoRALinear.fromLinear}
   */
  static async load(
    folder: string,
    linear: LinearLayer,
    options: LayerOptions & { module?: string } = {},
  ): Promise<DoRALinear> {
    expectKnownOptions('options', options, [...layerOptions, 'module'])
    const { module, ...layer } = options
    const { loadLinear } = await import('./peft-folder.js')
    const { bias, a, b, magnitude, ...adapter } = await loadLinear(folder, module)
    return DoRALinear.fromLinear(bias ? { ...linear, bias } : linear, {
      ...layer,
      ...adapter,
      initial: { a, b, magnitude },
    })
  }

  /**
   * Writes the active adapter in PEFT's format: adapter_config.json and adapter_model.safetensors (f32).
   *
   * @param folder - created if it does not exist
   * @param options - `module`: name of the layer in the base model; `baseModel`: name or path of the base model
   * @throws SparkError ERR_IO, ERR_DISPOSED
   */
  async save(folder: string, options: { module?: string; baseModel?: string } = {}): Promise<void> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['module', 'baseModel'])
    const [a, b, magnitude] = this.parameters().map(({ data, shape }) => Tensor.from(data.slice(), { shape }))
    const { rank, alpha, rslora, dropout } = this
    const { saveLinear } = await import('./peft-folder.js')
    await saveLinear(folder, { rank, alpha, rslora, dropout, a, b, magnitude }, options)
  }

  /** Names of the adapters, in insertion order. */
  get adapters(): readonly string[] {
    return this.#adapters.names
  }

  /**
   * Adds another adapter to the same frozen weight, which is not copied. The new adapter is not active.
   * @throws SparkError ERR_ARGUMENT for a taken name or a merged layer; ERR_SHAPE, ERR_DTYPE, ERR_DISPOSED
   */
  async addAdapter(name: string, options: LayerAdapterOptions = {}): Promise<void> {
    expectKnownOptions('options', options, adapterOptions)
    const frozen = this.#unmerged('add the adapter')
    this.#adapters.expectFree(name)
    const { adapter, ready } = LayerAdapter.prepare(name, frozen.weight, options)
    await this.#weights.during(() => ready(this.#kernels, frozen))
    this.#expectAlive()
    this.#adapters.add(adapter)
  }

  /**
   * Activates an adapter. This is free: its gain stays cached until its parameters change. A backward pass still uses the
   * adapter of its forward pass. Returns the layer.
   * @throws SparkError ERR_ARGUMENT for an unknown adapter, or when another one is merged; ERR_DISPOSED
   */
  setActive(name: string): this {
    this.#expectAlive()
    const adapter = this.#adapters.get(name)
    if (adapter !== this.#adapters.active) this.#unmerged('activate another adapter')
    this.#adapters.activate(adapter)
    return this
  }

  /**
   * Removes an adapter and its parameters.
   * @throws SparkError ERR_ARGUMENT for an unknown adapter, or the active one; ERR_DISPOSED
   */
  removeAdapter(name: string): void {
    this.#expectAlive()
    const adapter = this.#adapters.remove(name)
    if (this.#kept?.adapter === adapter) this.#kept = null
  }

  /** Whether {@link DoRALinear.forward} keeps activations for a backward pass by default. Initially false. */
  get training(): boolean {
    return this.#training
  }

  /** Switches to training mode; returns the layer. */
  train(): this {
    this.#expectAlive()
    this.#training = true
    return this
  }

  /** Switches to inference mode and drops kept activations; returns the layer. */
  eval(): this {
    this.#expectAlive()
    this.#training = false
    this.#kept = null
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

  /** Synchronous {@link DoRALinear.forward}; not on cuda (ERR_UNSUPPORTED). */
  forwardSync<D extends DType>(x: Tensor<D>, options: ForwardOptions = {}): Tensor<D> {
    return runSync(this.#kernels, this.#prepareForward(x, options))
  }

  /**
   * Computes the gradients of a loss from its gradient with respect to the output of the last training pass. The
   * gradients of the parameters are also stored in {@link DoRALinear.parameters}.
   *
   * @param dy - in the shape of that output
   * @param options - `input: false` skips the gradient of x, which costs as much as the forward pass
   * @throws SparkError ERR_ARGUMENT without a training pass, ERR_SHAPE, ERR_DISPOSED
   */
  async backward(dy: Tensor, options: { input?: boolean } = {}): Promise<DoRAGradients> {
    return this.#run(this.#prepareBackward(dy, options))
  }

  /** Synchronous {@link DoRALinear.backward}; not on cuda (ERR_UNSUPPORTED). */
  backwardSync(dy: Tensor, options: { input?: boolean } = {}): DoRAGradients {
    return runSync(this.#kernels, this.#prepareBackward(dy, options))
  }

  /**
   * Merges the active adapter into the weight, which makes this a plain linear layer. A second call does nothing.
   * @throws SparkError ERR_NOT_FINITE when the merged weight is not finite, ERR_RANGE when it is too large for fp16 (the
   * layer is then unchanged); ERR_DISPOSED
   */
  async merge(options: MergeOptions = {}): Promise<void> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['safe', 'precision', 'keepOriginal'])
    const { safe = true, precision = this.precision, keepOriginal = true } = options
    if (this.#merged) return
    const { adapter } = this
    const { snapshot, tensor } = await this.#run(this.#prepareMerge())
    if (safe) expectFiniteMerge(adapter.name, tensor)
    const held = await holdWeight(this.#kernels, storeWeight(tensor, precision, 'the merged weight'))
    if (this.#disposed || this.#merged) return releaseWeight(held)
    this.#merged = { weight: held, snapshot }
    this.#adapters.activate(adapter) // setActive may have been called meanwhile
    this.#kept = null
    if (keepOriginal) return
    this.#weights.release(this.#base)
    this.#base = null
  }

  /**
   * Restores the frozen weight of a merged layer: bit for bit if it was kept, otherwise by division.
   * @throws SparkError ERR_RANGE when the frozen weight was not kept and a gain is 0; ERR_DISPOSED
   */
  async unmerge(): Promise<void> {
    this.#expectAlive()
    if (!this.#merged) return
    const base = this.#base ?? (await this.#restoreBase(this.#merged))
    if (this.#disposed || !this.#merged) return
    this.#weights.release(this.#merged.weight)
    this.#base = base
    this.#merged = null
  }

  /** Whether the adapter is merged into the weight. */
  get merged(): boolean {
    return this.#merged !== null
  }

  /**
   * The merged weight [out, in] in f32, gain ∘ (W + scale · B·A), with which a plain linear layer computes the same.
   * @throws SparkError ERR_DISPOSED
   */
  async mergedWeight(): Promise<Tensor<'f32'>> {
    this.#expectAlive()
    if (!this.#merged) return (await this.#run(this.#prepareMerge())).tensor
    const values = decodeWeight(this.#merged.weight).slice()
    return Tensor.from(values, { shape: [this.outFeatures, this.inFeatures] })
  }

  /**
   * The trainable arrays of the active adapter, always the same objects: A [rank, in], B [out, rank], magnitude [out].
   * Do not write to them while a promise of this layer is pending.
   * @throws SparkError ERR_DISPOSED
   */
  parameters(): readonly Parameter[] {
    this.#expectAlive()
    return this.#adapters.active.parameters
  }

  /** Storage format of the weight in use, frozen or merged. */
  get precision(): Precision {
    return precisionOf(this.#weight().format)
  }

  /** Size of the weight in use, in bytes, including its scales. */
  get weightBytes(): number {
    return weightBytes(this.#weight())
  }

  /** Frees the weights and the activations; a second call does nothing. All other methods then throw ERR_DISPOSED. */
  dispose(): void {
    this.#disposed = true
    for (const weight of [this.#base, this.#merged?.weight ?? null]) this.#weights.release(weight)
    this.#base = null
    this.#merged = null
    this.#bias = undefined
    this.#kept = null
    this.#adapters.dispose()
  }

  /** As {@link DoRALinear.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #prepareForward<D extends DType>(x: Tensor<D>, options: ForwardOptions): KernelCalls<Tensor<D>> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['training', 'mask', 'adapters'])
    const { training = this.#training, adapters } = options
    if (adapters) {
      if (training || this.activations !== 'f32')
        throw new SparkError('ERR_ARGUMENT', 'options.adapters is for inference only, in f32')
      const frozen = this.#unmerged('use options.adapters')
      return mixedForwardCalls(frozen, this.#bias, x, adapters, name => this.#adapters.get(name))
    }
    if (this.#merged && !training) return linearCalls(this, this.#merged.weight, this.#bias, x)
    const [adapter, frozen] = [this.adapter, this.#unmerged('train it')]
    const { snapshot, calls } = adapter.takeSnapshot(frozen)
    const pass = ++this.#passes
    const drawn = training && !options.mask ? adapter.drawMask(x.size) : undefined
    const keep = (activations: Activations): void => {
      if (!this.#disposed && pass >= (this.#kept?.activations.pass ?? 0))
        this.#kept = { adapter, activations }
    }
    const kept = training ? { pass, mask: options.mask, drawn: drawn?.mask, keep } : null
    const forward = forwardCalls(this, frozen.weight, this.#bias, snapshot, x, kept)
    const all = [...calls, ...(drawn ? [drawn.call] : []), ...forward.calls]
    return adapter.completed(snapshot, all, forward.result)
  }

  #prepareBackward(dy: Tensor, options: { input?: boolean }): KernelCalls<DoRAGradients> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['input'])
    if (!this.#kept)
      throw new SparkError(
        'ERR_ARGUMENT',
        'backward needs a training pass: call forward(x, { training: true }) first',
      )
    const { adapter, activations } = this.#kept
    const backward = backwardCalls(this.backend, this.#weight(), activations, dy, {
      exactNorm: this.normGradient === 'exact',
      input: options.input ?? true,
      bias: this.#bias !== undefined,
    })
    return { calls: backward.calls, result: () => adapter.setGradients(backward.result()) }
  }

  #prepareMerge(): KernelCalls<{ snapshot: Snapshot; tensor: Tensor<'f32'> }> {
    const { snapshot, calls } = this.#adapters.active.takeSnapshot(this.#unmerged('merge it'))
    const { calls: merge, result } = mergeCalls(this.#weight(), snapshot)
    return { calls: [...calls, ...merge], result: () => ({ snapshot, tensor: result() }) }
  }

  /** @internal */
  protected get adapter(): LayerAdapter {
    return this.#adapters.active
  }

  async #restoreBase(merged: Merged): Promise<Weight> {
    const weight = await unmergedWeight(this.#kernels, merged, this.#weightNorm2)
    this.#adapters.forgetGains()
    return holdWeight(this.#kernels, weight)
  }

  #run = <T>(calls: KernelCalls<T>): Promise<T> => this.#weights.during(() => run(this.#kernels, calls))

  /** The weight in use. */
  #weight(): Weight {
    this.#expectAlive()
    return this.#merged?.weight ?? this.#base!
  }

  /** The frozen weight of a layer that is not merged. @throws SparkError ERR_ARGUMENT otherwise, with the next step in it */
  #unmerged(next: string): FrozenWeight {
    this.#expectAlive()
    if (!this.#merged && this.#base) return { weight: this.#base, weightNorm2: this.#weightNorm2 }
    throw new SparkError('ERR_ARGUMENT', `the layer is merged: call unmerge() first, then ${next}`)
  }

  #expectAlive(): void {
    if (this.#disposed)
      throw new SparkError('ERR_DISPOSED', `the layer of adapter '${this.activeAdapter}' was disposed`)
  }
}
