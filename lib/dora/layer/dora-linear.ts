// dora-linear.ts: a linear layer with a DoRA adapter.
import { expectKnownOptions } from '../../core/checks.js'
import type { Precision } from '../../core/config.js'
import type { DType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { DeferredRelease, type HeldWeight, holdWeight } from '../../kernels/held-weight.js'
import type { Kernels, StoredWeight } from '../../kernels/kernels.js'
import { Tensor } from '../../memory/tensor.js'
import { decodeWeight, precisionOf, storedBytes, storeWeight } from '../../weights/encode.js'
import { AdaptedLayer } from './adapted-layer.js'
import { AdapterSet } from './adapter-set.js'
import { type LayerParts, layerOptions, prepareLayer } from './create.js'
import { loadLinear, saveLinear } from './files.js'
import { adapterOptions, type Frozen, LayerAdapter } from './layer-adapter.js'
import { divideOut, expectFiniteMerge, type Merged, mergeWork } from './merge.js'
import { mixedWork } from './mixed.js'
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
} from './options.js'
import { type Activations, backwardWork, forwardWork, linearWork, type Snapshot } from './passes.js'
import { run, runSync, type Work } from './prepared-calls.js'

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
export class DoRALinear extends AdaptedLayer {
  /** Columns of the weight. */
  readonly inFeatures: number
  /** Rows of the weight. */
  readonly outFeatures: number
  /** Whether the gradients of A and B include those of the norm. */
  readonly normGradient: NormGradient
  /** Engine of this layer. */
  readonly backend: Kernels['backend']

  readonly #kernels: Kernels
  readonly #weightNorm2: Float32Array
  readonly #weights = new DeferredRelease()
  readonly #adapters: AdapterSet
  #base: HeldWeight | null
  #merged: Merged | null = null
  #bias: Float32Array | undefined
  #kept: { adapter: LayerAdapter; activations: Activations } | null = null
  #passes = 0
  #training = false
  #disposed = false

  private constructor({ base, kernels, weightNorm2, bias, normGradient, adapter }: LayerParts) {
    super()
    this.inFeatures = base.weight.cols
    this.outFeatures = base.weight.rows
    this.normGradient = normGradient
    this.backend = kernels.backend
    this.#kernels = kernels
    this.#weightNorm2 = weightNorm2
    this.#base = base
    this.#bias = bias
    this.#adapters = new AdapterSet(adapter)
  }

  /**
   * Puts an adapter on a linear layer. With the usual starting values the layer computes at first what `linear` does.
   * The layer keeps a copy of the weight in the layout that its engine reads, or, with backend `js`, the array itself
   * where its format stays: it must not be changed afterwards.
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
    const [a, b, magnitude] = this.parameters().map(({ data, shape }) => Tensor.from(data.slice(), { shape }))
    const { rank, alpha, rslora, dropout } = this
    await saveLinear(folder, { rank, alpha, rslora, dropout, a, b, magnitude }, options)
  }

  /** Names of the adapters, in the order in which they were added. */
  get adapters(): readonly string[] {
    return this.#adapters.names
  }

  /**
   * Puts another adapter on the same frozen weight, which is not copied. It does not become the active one.
   *
   * @throws SparkError ERR_ARGUMENT when there is one of that name, or the layer is merged; ERR_SHAPE, ERR_DTYPE,
   * ERR_DISPOSED
   */
  async addAdapter(name: string, options: LayerAdapterOptions = {}): Promise<void> {
    const frozen = this.#unmerged('an adapter can be added')
    expectKnownOptions('options', options, adapterOptions)
    this.#adapters.expectFree(name)
    const { adapter, ready } = LayerAdapter.prepare(name, frozen.weight, options)
    await this.#weights.during(() => ready(this.#kernels, frozen))
    this.#expectAlive()
    this.#adapters.add(adapter)
  }

  /**
   * Makes an adapter the active one, which costs nothing: its gain is kept as long as its parameters stay. A backward
   * pass still goes through the adapter of its forward pass. Returns the layer.
   *
   * @throws SparkError ERR_ARGUMENT when there is no such adapter, or another one is merged; ERR_DISPOSED
   */
  setActive(name: string): this {
    this.#expectAlive()
    const adapter = this.#adapters.get(name)
    if (adapter !== this.#adapters.active) this.#unmerged('another adapter can become active')
    this.#adapters.activate(adapter)
    return this
  }

  /**
   * Takes an adapter away for good.
   * @throws SparkError ERR_ARGUMENT when there is no such adapter, or it is the active one; ERR_DISPOSED
   */
  removeAdapter(name: string): void {
    this.#expectAlive()
    const adapter = this.#adapters.remove(name)
    if (this.#kept?.adapter === adapter) this.#kept = null
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
   * Folds the adapter into the weight: the layer is then a plain linear one. A second call does nothing.
   * @throws SparkError ERR_NOT_FINITE when the merged weight is not finite, ERR_RANGE when it is too large for fp16; the
   * layer stays as it was. ERR_DISPOSED
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
    if (this.#disposed || this.#merged) return held.dispose()
    this.#merged = { ...held, snapshot }
    this.#adapters.activate(adapter) // another one may have become active meanwhile
    this.#kept = null
    if (keepOriginal) return
    this.#weights.release(this.#base)
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
    this.#weights.release(this.#merged)
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
      const values = decodeWeight(this.#merged.weight).slice()
      return Tensor.from(values, { shape: [this.outFeatures, this.inFeatures] })
    }
    return (await this.#run(this.#prepareMerge())).tensor
  }

  /**
   * The trainable arrays of the active adapter, always the same objects: A [rank, in], B [out, rank], magnitude [out].
   * They must not be written while a promise of this layer is pending.
   * @throws SparkError ERR_DISPOSED
   */
  parameters(): readonly Parameter[] {
    this.#expectAlive()
    return this.#adapters.active.parameters
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
    this.#weights.release(this.#base)
    this.#weights.release(this.#merged)
    this.#base = null
    this.#merged = null
    this.#bias = undefined
    this.#kept = null
    this.#adapters.dispose()
  }

  /** The same as {@link DoRALinear.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #prepareForward<D extends DType>(x: Tensor<D>, options: ForwardOptions): Work<Tensor<D>> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['training', 'mask', 'adapters'])
    const { training = this.#training, adapters } = options
    if (adapters) {
      if (training) {
        throw new SparkError('ERR_ARGUMENT', 'rows can go through different adapters in eval passes only')
      }
      const frozen = this.#unmerged('rows can go through different adapters')
      return mixedWork(frozen, this.#bias, x, adapters, name => this.#adapters.get(name))
    }
    if (this.#merged && !training) return linearWork(this.backend, this.#merged.weight, this.#bias, x)
    const { adapter } = this
    const frozen = this.#unmerged('it can be trained')
    const { snapshot, steps } = adapter.takeSnapshot(frozen)
    const pass = ++this.#passes
    const drawn = training && !options.mask ? adapter.drawMask(x.size) : undefined
    const keep = (activations: Activations): void => {
      const last = this.#kept?.activations.pass ?? 0
      if (!this.#disposed && pass >= last) this.#kept = { adapter, activations }
    }
    const kept = training ? { pass, mask: options.mask, drawn: drawn?.mask, keep } : null
    const work = forwardWork(this.backend, frozen.weight, this.#bias, snapshot, x, kept)
    return adapter.completed(snapshot, [...steps, ...(drawn ? [drawn.step] : []), ...work.steps], work.finish)
  }

  #prepareBackward(dy: Tensor, options: { input?: boolean }): Work<DoRAGradients> {
    this.#expectAlive()
    expectKnownOptions('options', options, ['input'])
    if (!this.#kept) {
      const remedy = 'call forward(x, { training: true }) first'
      throw new SparkError('ERR_ARGUMENT', `there is no training pass to go back through: ${remedy}`)
    }
    const { adapter, activations } = this.#kept
    const work = backwardWork(this.backend, this.#weight(), activations, dy, {
      exactNorm: this.normGradient === 'exact',
      input: options.input ?? true,
      bias: this.#bias !== undefined,
    })
    return { steps: work.steps, finish: () => adapter.setGradients(work.finish()) }
  }

  #prepareMerge(): Work<{ snapshot: Snapshot; tensor: Tensor<'f32'> }> {
    const { snapshot, steps } = this.#adapters.active.takeSnapshot(this.#unmerged('it can be merged'))
    const { steps: merge, finish } = mergeWork(this.#weight(), snapshot)
    return { steps: [...steps, ...merge], finish: () => ({ snapshot, tensor: finish() }) }
  }

  /** @internal */
  protected get adapter(): LayerAdapter {
    return this.#adapters.active
  }

  async #restoreBase(merged: Merged): Promise<HeldWeight> {
    const weight = await divideOut(this.#kernels, merged, this.#weightNorm2)
    this.#adapters.forgetGains()
    return holdWeight(this.#kernels, weight)
  }

  #run = <T>(work: Work<T>): Promise<T> => this.#weights.during(() => run(this.#kernels, work))

  /** The weight in use. */
  #weight(): StoredWeight {
    this.#expectAlive()
    return (this.#merged ?? this.#base!).weight
  }

  /** The frozen weight; ERR_ARGUMENT says what has to wait until the layer is not merged. */
  #unmerged(what: string): Frozen {
    this.#expectAlive()
    if (!this.#merged && this.#base) return { weight: this.#base.weight, weightNorm2: this.#weightNorm2 }
    throw new SparkError('ERR_ARGUMENT', `the layer is merged: call unmerge() first, then ${what}`)
  }

  #expectAlive(): void {
    if (this.#disposed)
      throw new SparkError('ERR_DISPOSED', `the layer of adapter '${this.activeAdapter}' was disposed`)
  }
}
