// adapter.ts: the adapter of a whole model.
import path from 'node:path'
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { printable } from '../../core/printable.js'
import { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import { doraParameters, insertDora } from '../../graph/rewrites/insert-dora.js'
import { openKernels } from '../../kernels/open.js'
import type { Tensor } from '../../memory/tensor.js'
import type { NormGradient } from '../layer/options.js'
import type { PeftConfig } from '../peft/config.js'
import {
  type AdapterFileOptions,
  fitParts,
  type LoadAdapterOptions,
  loadParts,
  saveParts,
  weightHash,
} from './files.js'
import { type ImportAdapterOptions, readForeignAdapter } from './foreign.js'
import { type MergedModel, type MergeModelOptions, mergeAdapters } from './merge.js'
import { graphOf, type ModelSource } from './model-source.js'
import type { AdapterModule, AdapterParts, ModuleValues } from './parts.js'
import type { TrainableAdapter } from './trainable-adapter.js'

/**
 * A DoRA adapter of a model (or LoRA, from a file). The weights of the model are shared, never changed.
 *
 * @example
 * const adapter = await createAdapter(model, { targetModules: ['fc1', 'fc2'], rank: 4 })
 * await adapter.save('negatives')
 * const again = await Adapter.load(model, 'negatives')
 */
export class Adapter implements TrainableAdapter {
  /** What errors and {@link AdaptedModel} call it. */
  readonly name: string
  /** The model without it. */
  readonly base: Graph
  /** What adapter_config.json says. */
  readonly config: PeftConfig
  /** The layers that have an adapter, in the order in which they run. */
  readonly modules: readonly AdapterModule[]
  /** How the norm enters gradients. */
  readonly normGradient: NormGradient
  /** Names of what is trained, in an order that never changes; none of LoRA, which can be run and merged only. */
  readonly parameters: readonly string[]
  /** Tensors of the file that replace some of the model: biases and modules_to_save. */
  readonly extra: ReadonlyMap<string, Tensor>
  readonly #replaced: ReadonlyMap<string, Constant>
  readonly #values = new Map<string, Float32Array>()

  /** @internal */
  constructor(parts: AdapterParts) {
    this.name = parts.name
    this.base = parts.base
    this.config = parts.config
    this.modules = parts.modules
    this.normGradient = parts.normGradient
    this.extra = parts.extra
    this.#replaced = parts.replaced
    for (const { name } of parts.modules) {
      const { a, b, magnitude } = parts.values.get(name)!
      doraParameters(name).forEach((parameter, i) => {
        this.#values.set(parameter, [a, b, magnitude][i]!)
      })
    }
    this.parameters = parts.config.useDora ? [...this.#values.keys()] : []
  }

  /**
   * Reads an adapter folder in PEFT's format and fits it to a model.
   * @throws SparkError as {@link readPeftAdapter}; ERR_SHAPE, ERR_FORMAT or ERR_UNSUPPORTED naming the module when it
   * does not fit the model, also when the file says that it was made for other weights
   */
  static async load(model: ModelSource, folder: string, options: LoadAdapterOptions = {}): Promise<Adapter> {
    const kernels = await openKernels({ ...(options.backend && { backend: options.backend }) })
    return new Adapter(await loadParts(graphOf(model), folder, options, kernels))
  }

  /**
   * Reads an adapter that NVlabs' code, LyCORIS, kohya's scripts, torchtune or MLX wrote: a safetensors file.
   * @throws SparkError ERR_FORMAT naming a tensor or module that is not understood, ERR_SHAPE when it does not fit
   */
  static async import(
    model: ModelSource,
    file: string,
    options: ImportAdapterOptions = {},
  ): Promise<Adapter> {
    const graph = graphOf(model)
    const peft = await readForeignAdapter(graph, file, options)
    const settings = { name: path.parse(file).name, normGradient: 'detached', folder: file } as const
    return new Adapter(await fitParts(graph, peft, settings, await openKernels()))
  }

  /** The model with the adapter in it, as its values are now. */
  get graph(): Graph {
    const initializers = new Map([...this.base.initializers, ...this.#replaced])
    const weights = new Set(this.modules.map(({ weight }) => weight))
    return insertDora(
      dequantizeLayers({ ...this.base, initializers }, weights),
      this.modules.map(module => this.#target(module)),
    )
  }

  /** Probability that an input of the adapter is dropped in training, as adapter_config.json says. */
  get dropout(): number {
    return this.config.loraDropout
  }

  /**
   * What training depends on beside the parameters.
   * @internal
   */
  get settings(): Readonly<Record<string, unknown>> {
    const modules = this.modules.map(({ name, rank, scale }) => [`module ${name}`, { rank, scale }] as const)
    return { dropout: this.dropout, normGradient: this.normGradient, ...Object.fromEntries(modules) }
  }

  /** Elements of all parameters. */
  get parameterCount(): number {
    return [...this.#values.values()].reduce((sum, { length }) => sum + length, 0)
  }

  /** Elements of the weights of the model: of all its constants of floats and of codes of up to 16 bits. */
  get baseParameterCount(): number {
    return this.#weights().reduce((sum, { count }) => sum + count, 0)
  }

  /** Bytes of the parameters in f32. */
  get byteLength(): number {
    return 4 * this.parameterCount
  }

  /** {@link Adapter.byteLength} as a share of the bytes of the model's weights. */
  get shareOfBase(): number {
    return this.byteLength / this.#weights().reduce((sum, { byteLength }) => sum + byteLength, 0)
  }

  /**
   * Initializers of the model that the adapter replaces whole.
   * @internal
   */
  get replaced(): ReadonlyMap<string, Constant> {
    return this.#replaced
  }

  /**
   * The values of a parameter, row-major: a copy.
   * @throws SparkError ERR_ARGUMENT when there is none of that name
   */
  read(parameter: string): Float32Array {
    return this.#valuesOf(parameter).slice()
  }

  /**
   * Replaces the values of a parameter; they are copied.
   * @throws SparkError ERR_ARGUMENT when there is none of that name, ERR_SHAPE for a wrong number of values
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
   * The arrays of a module as they are now; do not write into them.
   * @internal
   */
  valuesOf(module: string): ModuleValues {
    const [a, b, magnitude] = doraParameters(module).map(name => this.#valuesOf(name))
    return { a: a!, b: b!, magnitude: magnitude! }
  }

  /** The sha256 of the raw bytes of the weight that each module adapts, in hexadecimal, by the name of the module. */
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
   * Writes an adapter folder in PEFT's format, with the sha256 of each weight it belongs to. Each file appears whole or
   * not at all. Magnitudes are always f32.
   * @throws SparkError ERR_IO
   */
  save(folder: string, options: AdapterFileOptions = {}): Promise<void> {
    return saveParts(this, folder, options)
  }

  /**
   * The model with the adapter in its weights: a plain model of the same size and speed. Weights of 16 bits and less
   * are rounded once; `losses` says what that lost.
   * @throws SparkError ERR_NOT_FINITE when a merged weight is not finite
   */
  merge(options: MergeModelOptions = {}): Promise<MergedModel> {
    return mergeAdapters(this.base, [this], options)
  }

  #weights(): Constant[] {
    return [...this.base.initializers.values()].filter(({ dtype }) => /^(b?f\d|[iu](2|4|8|16)$)/.test(dtype))
  }

  #valuesOf(parameter: string): Float32Array {
    const values = this.#values.get(parameter)
    if (values) return values
    const known = [...this.#values.keys()].slice(0, 6).join(', ')
    throw new SparkError('ERR_ARGUMENT', `the adapter has no parameter '${parameter}'; it has: ${known}`)
  }

  #target({ name, weight, inColumns, rank, rows, aShape, bShape, scale, shape, dtype }: AdapterModule) {
    const { a, b, magnitude } = this.valuesOf(name)
    const inRows = aShape.length > 2 ? aShape : [rank, a.length / rank]
    return {
      ...{ weight, module: name, scale, normGradient: this.normGradient, inColumns },
      type: { dtype, shape },
      a: Constant.from('f32', inRows, a),
      b: Constant.from('f32', bShape, b),
      magnitude: Constant.from('f32', [rows], magnitude),
    }
  }
}
