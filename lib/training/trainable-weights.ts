// trainable-weights.ts: the weights of a model as trainable parameters, for full fine-tuning.
import { createHash } from 'node:crypto'
import { argumentError } from '../core/checks.js'
import { didYouMean } from '../core/did-you-mean.js'
import { isHalf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { graphOf, type ModelSource } from '../dora/model/model-source.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { int } from '../graph/attributes.js'
import { Constant } from '../graph/constant.js'
import { allNodes, freshNames } from '../graph/edit.js'
import { onnxNumbers } from '../graph/element-types.js'
import { type Graph, makeNode, type Node } from '../graph/graph.js'
import { lockFile } from '../io/lock.js'
import { type WriteOnnxOptions, writeOnnx } from '../io/onnx/save.js'
import { Tensor } from '../memory/tensor.js'
import { encode } from '../precision/casts.js'

/** Inputs of operators that are learned: weights, biases, scales. */
const learnedInputs: Readonly<Record<string, readonly number[]>> = {
  MatMul: [0, 1],
  Gemm: [0, 1, 2],
  Conv: [1, 2],
  ConvTranspose: [1, 2],
  Gather: [0],
  BatchNormalization: [1, 2],
  LayerNormalization: [1, 2],
  RMSNormalization: [1],
  GroupNormalization: [1, 2],
  InstanceNormalization: [1, 2],
  PRelu: [1],
  LSTM: [1, 2, 3, 7],
  GRU: [1, 2, 3],
  RNN: [1, 2, 3],
}

/** Operators whose constant operand of one dimension is the bias or scale of a layer that an exporter took apart. */
const elementwise = ['Add', 'Mul']

/**
 * The weights of a model as parameters of a training. The model itself is not changed: {@link TrainableWeights.save} writes
 * the new weights as an ONNX file, and {@link TrainableWeights.graph} is a graph with them. Weights of 16 bits are trained
 * in f32 and rounded when they are saved. Means and variances of batch normalization stay as they are.
 *
 * @example
 * const trainer = new Trainer(model, null, { loss: 'mse', epochs: 3 })
 * await trainer.fit(data)
 * await trainer.weights.save('tuned.onnx')
 */
export class TrainableWeights implements TrainableAdapter {
  /** The model with its first weights. */
  readonly base: Graph
  /** Names of the trained weights, in the order of the model. */
  readonly parameters: readonly string[]
  readonly #values: Map<string, Float32Array>

  /**
   * @param names - names of weights, or beginnings of names that end at a dot or slash (`encoder` for `encoder.fc.weight`).
   * Default: all weights, biases and scales of layers, without constants
   * @throws SparkError ERR_ARGUMENT for a name of no float weight, ERR_UNSUPPORTED for a model without any, such as a
   * quantized one
   */
  constructor(model: ModelSource, names?: readonly string[]) {
    this.base = graphOf(model)
    const learned = learnedWeights(this.base)
    this.parameters = names === undefined ? learned : namedWeights(this.base, names)
    if (this.parameters.length === 0) {
      const why =
        'the model has no float weights to train: train an adapter of it, or take the model before quantization'
      throw new SparkError('ERR_UNSUPPORTED', why)
    }
    this.#values = new Map(this.parameters.map(name => [name, wide(this.base.initializers.get(name)!)]))
  }

  /** The model with the current weights in f32; those of 16 bits are rounded before they are used. */
  get graph(): Graph {
    const fresh = freshNames(this.base)
    const initializers = new Map(this.base.initializers)
    const casts: Node[] = []
    const renamed = new Map<string, string>()
    for (const name of this.parameters) {
      const { dtype, shape } = this.base.initializers.get(name)!
      initializers.set(name, Constant.from('f32', shape, this.#values.get(name)!))
      if (dtype === 'f32') continue
      const narrow = fresh(`${name}/${dtype}`)
      renamed.set(name, narrow)
      casts.push(makeNode('Cast', [name], [narrow], { attributes: { to: int(onnxNumbers[dtype]) } }))
    }
    const reading = (node: Node): Node =>
      node.inputs.some(name => renamed.has(name))
        ? { ...node, inputs: node.inputs.map(name => renamed.get(name) ?? name) }
        : node
    return { ...this.base, initializers, nodes: [...casts, ...this.base.nodes.map(reading)] }
  }

  /** The model with the current weights in the types of the first ones. */
  get tuned(): Graph {
    const initializers = new Map(this.base.initializers)
    for (const [name, values] of this.#values) {
      const { dtype, shape } = initializers.get(name)!
      initializers.set(
        name,
        Constant.from(dtype as 'f32', shape, isHalf(dtype) ? encode(values, dtype) : values),
      )
    }
    return { ...this.base, initializers }
  }

  /**
   * Settings that a resumed training must have.
   * @internal
   */
  get settings(): Readonly<Record<string, unknown>> {
    return { method: 'full', weights: this.parameters }
  }

  /** Number of elements of all trained weights. */
  get parameterCount(): number {
    return [...this.#values.values()].reduce((sum, { length }) => sum + length, 0)
  }

  /** The sha256 of each weight before training. */
  baseHashes(): ReadonlyMap<string, string> {
    const hash = (name: string): string =>
      createHash('sha256').update(this.base.initializers.get(name)!.bytes).digest('hex')
    return new Map(this.parameters.map(name => [name, hash(name)]))
  }

  /**
   * A copy of the values of a weight, row-major.
   * @throws SparkError ERR_ARGUMENT for a name that is not trained
   */
  read(parameter: string): Float32Array {
    return this.#valuesOf(parameter).slice()
  }

  /**
   * Replaces the values of a weight; they are copied.
   * @throws SparkError ERR_ARGUMENT for a name that is not trained, ERR_SHAPE for a wrong number of values
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
   * Writes the model with the current weights as an ONNX file.
   * @throws SparkError as `Model.save`, ERR_BUSY naming the process that writes the same file
   */
  async save(file: string, options: WriteOnnxOptions = {}): Promise<void> {
    const { decompose } = await import('../graph/rewrites/decompose.js')
    using _lock = await lockFile(file)
    await writeOnnx(decompose(this.tuned), file, options)
  }

  /** One line: weights, elements and their share of the model. */
  toString(): string {
    const all = [...this.base.initializers.values()].filter(isFloatWeight)
    const total = all.reduce((sum, { count }) => sum + count, 0)
    const [own, whole] = [this.parameterCount, total].map(count => count.toLocaleString('en'))
    return `${own} elements in ${this.parameters.length} weights, of the model's ${whole}`
  }

  #valuesOf(parameter: string): Float32Array {
    const values = this.#values.get(parameter)
    if (values) return values
    const hint = didYouMean(parameter, this.parameters)
    throw new SparkError('ERR_ARGUMENT', `'${parameter}' is no weight that is trained${hint}`)
  }
}

const isFloatWeight = ({ dtype }: Constant): boolean => dtype === 'f32' || isHalf(dtype)

const wide = ({ dtype, shape, data }: Constant): Float32Array =>
  Float32Array.from(Tensor.from(data as Float32Array, { shape, dtype: dtype as 'f32' }).toFloat32())

/** Weights, biases and scales of layers, in the order of the model. */
function learnedWeights(graph: Graph): string[] {
  const learned = new Set<string>()
  for (const { domain, op, inputs } of graph.nodes) {
    if (domain !== '') continue
    const indices = Object.hasOwn(learnedInputs, op) ? learnedInputs[op]! : []
    for (const i of indices) learned.add(inputs[i] ?? '')
    if (!elementwise.includes(op)) continue
    for (const name of inputs) {
      const { shape, count } = graph.initializers.get(name) ?? { shape: [], count: 0 }
      if (count > 1 && shape.filter(size => size !== 1).length === 1) learned.add(name)
    }
  }
  return [...graph.initializers].flatMap(([name, constant]) =>
    learned.has(name) && isFloatWeight(constant) && constant.count > 0 ? [name] : [],
  )
}

function namedWeights(graph: Graph, names: readonly string[]): string[] {
  const isList = Array.isArray(names) && names.every(name => typeof name === 'string')
  if (!isList) throw argumentError('options.trainable', 'a list of names of weights', names)
  const read = new Set([...allNodes(graph)].flatMap(({ inputs }) => inputs))
  const weights = [...graph.initializers].filter(
    ([name, constant]) => read.has(name) && isFloatWeight(constant),
  )
  const matches = (name: string, wanted: string): boolean =>
    name === wanted || name.startsWith(`${wanted}.`) || name.startsWith(`${wanted}/`)
  for (const wanted of names) {
    if (weights.some(([name]) => matches(name, wanted))) continue
    const known = weights.map(([name]) => name)
    const shown = known.slice(0, 8).join(', ') || 'none'
    const hint = didYouMean(wanted, known)
    throw new SparkError(
      'ERR_ARGUMENT',
      `options.trainable: the model has no weight '${wanted}'${hint}; it has: ${shown}`,
    )
  }
  return weights.flatMap(([name]) => (names.some(wanted => matches(name, wanted)) ? [name] : []))
}
