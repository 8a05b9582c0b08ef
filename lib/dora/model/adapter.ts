// adapter.ts: the adapter of a whole model.
import path from 'node:path'
import { argumentError } from '../../core/checks.js'
import { isFloat, isNarrowInteger } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { printable } from '../../core/printable.js'
import { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import { doraParameters, insertDora } from '../../graph/rewrites/insert-dora.js'
import { type DropoutSites, insertLora, type LoraTarget } from '../../graph/rewrites/insert-lora.js'
import type { Tensor } from '../../memory/tensor.js'
import type { NormGradient } from '../layer/layer-types.js'
import type { PeftConfig } from '../peft/config.js'
import type { AdapterModule, AdapterState, ModuleValues } from './adapter-module.js'
import type { ImportAdapterOptions } from './import-adapter.js'
import type { MergedModel, MergeModelOptions } from './merge.js'
import { graphOf, type ModelSource } from './model-source.js'
import type { AdapterFileOptions, LoadAdapterOptions } from './peft-folder.js'
import type { TrainableAdapter, TrainingRecord } from './trainable-adapter.js'
import { weightHash } from './weight-hash.js'

/**
 * A DoRA or LoRA adapter of a model. It shares the weights of the model and never changes them.
 *
 * @example
 * const adapter = await createAdapter(model, { targetModules: ['fc1', 'fc2'], rank: 4 })
 * await adapter.save('negatives')
 * const again = await Adapter.load(model, 'negatives')
 */
export class Adapter implements TrainableAdapter {
  /** Name in error messages. */
  readonly name: string
  /** The model without the adapter. */
  readonly base: Graph
  /** The contents of adapter_config.json. */
  readonly config: PeftConfig
  /** The adapted layers, in execution order. */
  readonly modules: readonly AdapterModule[]
  /** Whether gradients include that of the norm. */
  readonly normGradient: NormGradient
  /** Names of the trainable parameters, in a fixed order: A and B of each module, and with DoRA its magnitude. */
  readonly parameters: readonly string[]
  /** Tensors of the file that replace tensors of the model: biases and modules_to_save. */
  readonly extra: ReadonlyMap<string, Tensor>
  readonly #replaced: ReadonlyMap<string, Constant>
  readonly #values = new Map<string, Float32Array>()
  #training: TrainingRecord | undefined

  /** @internal */
  constructor(state: AdapterState) {
    this.name = state.name
    this.base = state.base
    this.config = state.config
    this.modules = state.modules
    this.normGradient = state.normGradient
    this.extra = state.extra
    this.#replaced = state.replaced
    this.#training = state.training
    for (const { name } of state.modules) {
      const { a, b, magnitude } = state.values.get(name)!
      doraParameters(name).forEach((parameter, i) => {
        const values = [a, b, magnitude][i]
        if (values) this.#values.set(parameter, values)
      })
    }
    this.parameters = [...this.#values.keys()]
  }

  /**
   * Reads an adapter folder in PEFT's format for a model.
   * @throws SparkError as {@link readPeftAdapter}; ERR_SHAPE, ERR_FORMAT or ERR_UNSUPPORTED naming a module that does not
   * fit the model, or that was trained on other weights according to the file
   */
  static async load(model: ModelSource, folder: string, options: LoadAdapterOptions = {}): Promise<Adapter> {
    const graph = graphOf(model)
    const { loadAdapter } = await import('./peft-folder.js')
    return new Adapter(await loadAdapter(graph, folder, options))
  }

  /**
   * Reads a safetensors file with an adapter written by NVlabs' code, LyCORIS, kohya's scripts, torchtune or MLX.
   * @throws SparkError ERR_FORMAT naming an unknown tensor or module, ERR_SHAPE when it does not fit the model
   */
  static async import(
    model: ModelSource,
    file: string,
    options: ImportAdapterOptions = {},
  ): Promise<Adapter> {
    const graph = graphOf(model)
    const [{ readImportedAdapter }, { fitAdapter }] = await Promise.all([
      import('./import-adapter.js'),
      import('./peft-folder.js'),
    ])
    const peft = await readImportedAdapter(graph, file, options)
    const settings = { name: path.parse(file).name, normGradient: 'detached', folder: file } as const
    return new Adapter(fitAdapter(graph, peft, settings))
  }

  /** The model with the adapter inserted, with its current values. */
  get graph(): Graph {
    return this.#inserted().graph
  }

  /** @internal */
  get dropoutSites(): DropoutSites | undefined {
    return this.#inserted().dropout
  }

  #inserted(): { readonly graph: Graph; readonly dropout?: DropoutSites } {
    const initializers = new Map([...this.base.initializers, ...this.#replaced])
    const weights = new Set(this.modules.map(({ weight }) => weight))
    const base = dequantizeLayers({ ...this.base, initializers }, weights)
    if (!this.config.useDora)
      return insertLora(
        base,
        this.modules.map(module => this.#target(module)),
      )
    const targets = this.modules.map(module => {
      const magnitude = Constant.from('f32', [module.rows], this.valuesOf(module.name).magnitude!)
      return { ...this.#target(module), magnitude, normGradient: this.normGradient }
    })
    return { graph: insertDora(base, targets) }
  }

  /** Dropout probability of the adapter's inputs in training, from adapter_config.json. */
  get dropout(): number {
    return this.config.loraDropout
  }

  /**
   * Settings that training depends on, besides the parameters.
   * @internal
   */
  get settings(): Readonly<Record<string, unknown>> {
    const modules = this.modules.map(({ name, rank, scale }) => [`module ${name}`, { rank, scale }] as const)
    const method = this.config.useDora ? { normGradient: this.normGradient } : { method: 'lora' }
    return { dropout: this.dropout, ...method, ...Object.fromEntries(modules) }
  }

  /** Number of elements of all parameters. */
  get parameterCount(): number {
    return [...this.#values.values()].reduce((sum, { length }) => sum + length, 0)
  }

  /** Number of elements of the model's weights: all float constants and integer codes of up to 16 bits. */
  get baseParameterCount(): number {
    return this.#weights().reduce((sum, { count }) => sum + count, 0)
  }

  /** Size of the parameters in f32, in bytes. */
  get byteLength(): number {
    return 4 * this.parameterCount
  }

  /** {@link Adapter.byteLength} divided by the size of the model's weights. */
  get shareOfBase(): number {
    return this.byteLength / this.#weights().reduce((sum, { byteLength }) => sum + byteLength, 0)
  }

  /**
   * Initializers that the adapter replaces, by name.
   * @internal
   */
  get replaced(): ReadonlyMap<string, Constant> {
    return this.#replaced
  }

  /**
   * A copy of the values of a parameter, row-major.
   * @throws SparkError ERR_ARGUMENT for an unknown parameter
   */
  read(parameter: string): Float32Array {
    return this.#valuesOf(parameter).slice()
  }

  /**
   * Replaces the values of a parameter; they are copied.
   * @throws SparkError ERR_ARGUMENT for an unknown parameter, ERR_SHAPE for a wrong number of values
   */
  write(parameter: string, values: Float32Array): void {
    const { length } = this.#valuesOf(parameter)
    if (!(values instanceof Float32Array)) throw argumentError('values', 'a Float32Array', values)
    if (values.length !== length) {
      throw new SparkError('ERR_SHAPE', `'${parameter}' has ${length} values, got ${values.length}`)
    }
    this.#values.set(parameter, values.slice())
  }

  /**
   * The current arrays of a module, not copied; do not write to them.
   * @internal
   */
  valuesOf(module: string): ModuleValues {
    const [a, b, magnitude] = doraParameters(module)
    return { a: this.#valuesOf(a), b: this.#valuesOf(b), magnitude: this.#values.get(magnitude) }
  }

  /** How the adapter was trained: settings, steps and data; undefined for a new one. */
  get training(): TrainingRecord | undefined {
    return this.#training
  }

  /**
   * Remembers how the adapter was trained; files carry it.
   * @internal
   */
  record(training: TrainingRecord): void {
    this.#training = training
  }

  /** The hexadecimal sha256 of the bytes of each adapted weight, by module name. */
  baseHashes(): ReadonlyMap<string, string> {
    return new Map(this.modules.map(module => [module.name, weightHash(this.base, module)]))
  }

  /** One line: modules, parameters, bytes and their share of the model. */
  toString(): string {
    const [count, base] = [this.parameterCount, this.baseParameterCount].map(n => n.toLocaleString('en'))
    const share = (100 * this.shareOfBase).toFixed(2)
    const layers = this.modules.length === 1 ? '1 module' : `${this.modules.length} modules`
    return `${printable(this.name)}: ${count} parameters in ${layers}, ${share} % of the bytes of the model's ${base}`
  }

  /**
   * Writes an adapter folder in PEFT's format, including the sha256 of each adapted weight and how it was trained, and on
   * request a README.md. Each file is written atomically. Magnitudes are always f32.
   * @throws SparkError ERR_IO
   */
  async save(folder: string, options: AdapterFileOptions = {}): Promise<void> {
    const { saveAdapter } = await import('./peft-folder.js')
    return saveAdapter(this, folder, options)
  }

  /**
   * Merges the adapter into the weights: the result is a plain model of the same size and speed. Weights of 16 bits or
   * less are rounded once, with the errors in `losses`.
   * @throws SparkError ERR_NOT_FINITE when a merged weight is not finite
   */
  async merge(options: MergeModelOptions = {}): Promise<MergedModel> {
    const { mergeAdapters } = await import('./merge.js')
    return mergeAdapters(this.base, [this], options)
  }

  #weights(): Constant[] {
    return [...this.base.initializers.values()].filter(
      ({ dtype }) => isFloat(dtype) || isNarrowInteger(dtype),
    )
  }

  #valuesOf(parameter: string): Float32Array {
    const values = this.#values.get(parameter)
    if (values) return values
    const known = [...this.#values.keys()].slice(0, 6).join(', ')
    throw new SparkError('ERR_ARGUMENT', `the adapter has no parameter '${parameter}'; it has: ${known}`)
  }

  /** One adapted layer as insertLora takes it. */
  #target({ name, weight, inColumns, rank, aShape, bShape, scale, shape, dtype }: AdapterModule): LoraTarget {
    const { a, b } = this.valuesOf(name)
    const inRows = aShape.length > 2 ? aShape : [rank, a.length / rank]
    return {
      weight,
      module: name,
      scale,
      inColumns,
      type: { dtype, shape },
      a: Constant.from('f32', inRows, a),
      b: Constant.from('f32', bShape, b),
    }
  }
}
