// graph-builder.ts: graphs made by hand, operator by operator.
import { argumentError, expectKnownOptions, expectObject, expectText } from '../core/checks.js'
import { didYouMean } from '../core/did-you-mean.js'
import { type ElementType, elementBits } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { Constant } from '../graph/constant.js'
import { renameReads } from '../graph/edit.js'
import {
  type Attribute,
  type Attributes,
  type Dimension,
  type Graph,
  makeGraph,
  makeNode,
  type Node,
  sparkDomain,
  tensorType,
  type ValueInfo,
} from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { uniqueNames } from '../graph/rewrites/unique-names.js'
import { inferFacts } from '../graph/shape-inference.js'
import { families, rowOf } from '../graph/shapes/table.js'
import { checkGraph } from '../graph/validate.js'
import { Tensor, type TensorValues } from '../memory/tensor.js'
import { type AttributeValue, attributeOf } from './attribute-values.js'
import { constantOf } from './tensor-constant.js'

/** What an operator can read: a value by its name, a constant, or '' for an optional input that is left out. */
export type Operand = string | number | Tensor<ElementType>

/** Options of {@link GraphBuilder}. */
export interface GraphBuilderOptions {
  /** Name of the graph. Default: graph. */
  name?: string
}

/** Options of {@link GraphBuilder.add}. */
export interface NodeDetails {
  /** Name of the node, for messages. Default: that of its first output. */
  name?: string
  /** Name of the output, or names of all; '' leaves one out. Default: one output, named after the operator. */
  outputs?: string | readonly string[]
  /** Who defines the operator. Default: the ONNX standard. */
  domain?: string
}

/**
 * Makes a graph of ONNX operators (opset 25) for {@link Model.fromGraph}, a `Trainer`, or an ONNX file. Values are known by
 * their names, which {@link GraphBuilder.input}, {@link GraphBuilder.initializer} and {@link GraphBuilder.add} return.
 *
 * @example
 * const g = new GraphBuilder()
 * const x = g.input('x', 'f32', ['n', 2])
 * const w = g.initializer('w', [[1, 0, 2], [0, 1, 3]])
 * const h = g.add('Relu', [g.add('MatMul', [x, w])])
 * g.output(g.add('Softmax', [h], { axis: -1 }), 'scores')
 * const model = await Model.fromGraph(g.build())
 * const { scores } = await model.run<{ scores: 'f32' }>({ x: [[1, -1]] })
 * await model.save('model.onnx')
 */
export class GraphBuilder {
  readonly #name: string
  readonly #outer: GraphBuilder | undefined
  readonly #inputs: ValueInfo[] = []
  readonly #nodes: Node[] = []
  readonly #initializers = new Map<string, Constant>()
  /** Names of outputs, and the values that they are. */
  readonly #outputs = new Map<string, string>()
  /** All names of this graph and of those in it. */
  readonly #names: Set<string>

  /**
   * @param options - `name`
   * @param outer - the builder of the graph around a body; see {@link GraphBuilder.body}
   */
  constructor(options: GraphBuilderOptions = {}, outer?: GraphBuilder) {
    expectKnownOptions('options', options, ['name'])
    this.#name = options.name ?? 'graph'
    this.#outer = outer
    this.#names = outer ? outer.#names : new Set()
  }

  /**
   * Adds an input.
   * @param shape - sizes: a number, a name for a size that is open, or null; without it not even their number is known
   * @returns its name
   * @throws SparkError ERR_ARGUMENT for a name that is taken, an unknown dtype or a shape that is none
   */
  input(name: string, dtype: ElementType = 'f32', shape?: readonly Dimension[]): string {
    this.#define('name', name)
    if (!(dtype in elementBits))
      throw argumentError('dtype', `one of ${Object.keys(elementBits).join(', ')}`, dtype)
    this.#inputs.push({ name, type: tensorType(dtype, shape && expectDimensions(shape)) })
    return name
  }

  /**
   * Adds a weight or another constant.
   * @param value - a tensor, or what {@link Tensor.from} takes
   * @returns its name
   * @throws SparkError ERR_ARGUMENT for a name that is taken, and as {@link Tensor.from}
   */
  initializer(name: string, value: Tensor<ElementType> | TensorValues): string {
    const constant = constantOf(tensorOf(value))
    this.#define('name', name)
    this.#initializers.set(name, constant)
    return name
  }

  /**
   * Adds an operator with one output.
   * @param op - its name in ONNX, such as `Conv`
   * @param operands - names of values; numbers (f32) and tensors become constants; '' leaves an optional input out
   * @param attributes - by name: numbers, texts, lists of them, tensors, or a graph made by {@link GraphBuilder.body}
   * @param details - names of the node and its outputs; the domain
   * @returns the name of its first output
   * @throws SparkError ERR_UNSUPPORTED for an operator that is not known, ERR_ARGUMENT for a value or attribute that is
   * none, or a name that is taken
   */
  add(
    op: string,
    operands: readonly Operand[],
    attributes: Readonly<Record<string, AttributeValue>> = {},
    details: NodeDetails = {},
  ): string {
    return this.addAll(op, operands, 1, attributes, details).find(name => name !== '')!
  }

  /**
   * As {@link GraphBuilder.add}, for an operator with several outputs.
   * @param count - how many outputs it has, unless `details` names them
   * @returns the names of all outputs
   * @throws SparkError as {@link GraphBuilder.add}
   */
  addAll(
    op: string,
    operands: readonly Operand[],
    count: number,
    attributes: Readonly<Record<string, AttributeValue>> = {},
    details: NodeDetails = {},
  ): string[] {
    expectText('op', op)
    expectObject('attributes', 'an object with values by name', attributes)
    expectKnownOptions('details', details, ['name', 'outputs', 'domain'])
    const { name = '', domain = '' } = details
    if (!Array.isArray(operands))
      throw argumentError('operands', 'a list of names, numbers and tensors', operands)
    expectOperator(op, domain)
    const inputs = operands.map((operand, i) => this.#operand(op, operand, i))
    const given = typeof details.outputs === 'string' ? [details.outputs] : details.outputs
    const outputs = (given ?? Array.from({ length: count }, () => this.#fresh(op))).map(output => {
      if (output !== '' && given) this.#define('details.outputs', output)
      return output
    })
    const values = Object.entries(attributes)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]): [string, Attribute] => [key, attributeOf(`attributes.${key}`, key, value)])
    this.#nodes.push(
      makeNode(op, inputs, outputs, { domain, name, attributes: Object.fromEntries(values) as Attributes }),
    )
    return outputs
  }

  /**
   * Adds the nodes and constants of another graph, which stays as it is; their names change where they are taken.
   * @param graph - canonical, as {@link GraphBuilder.build} makes it
   * @param inputs - a value of this graph for each input of the other one, by its name
   * @returns the values that its outputs are here, by their names there
   * @throws SparkError ERR_ARGUMENT for an input that is missing or unknown, or a value that is not there
   */
  inline(graph: Graph, inputs: ReadonlyMap<string, string>): Map<string, string> {
    const needed = graph.inputs.map(({ name }) => name).filter(name => !graph.initializers.has(name))
    for (const name of needed)
      if (!inputs.has(name)) throw argumentError('inputs', `a value for input '${name}'`, [...inputs.keys()])
    for (const [name, value] of inputs) {
      if (!needed.includes(name))
        throw argumentError('inputs', `inputs of the graph: ${needed.join(', ')}`, name)
      if (!this.#has(value)) throw this.#missing(`inputs['${name}']`, value)
    }
    const made = [...graph.initializers.keys(), ...graph.nodes.flatMap(({ outputs }) => outputs)]
    const names = new Map(inputs)
    for (const name of made) if (name !== '' && !names.has(name)) names.set(name, this.#freshName(name))
    for (const [name, value] of graph.initializers) this.#initializers.set(names.get(name)!, value)
    const rename = (name: string): string => names.get(name) ?? name
    for (const node of uniqueNames(renameReads(graph, names)).nodes)
      this.#nodes.push({ ...node, outputs: node.outputs.map(rename) })
    return new Map(graph.outputs.map(({ name }) => [name, rename(name)]))
  }

  /**
   * A builder of a graph inside of this one, for an attribute of If, Loop or Scan: it may read the values of this graph.
   * @returns a builder whose {@link GraphBuilder.build} gives the attribute
   */
  body(name = 'body'): GraphBuilder {
    return new GraphBuilder({ name }, this)
  }

  /**
   * Makes a value an output.
   * @param name - of the output. Default: that of the value
   * @throws SparkError ERR_ARGUMENT for a value that is not there or a name that is taken
   */
  output(value: string, name: string = value): this {
    expectText('name', name)
    if (!this.#has(value)) throw this.#missing('value', value)
    if (this.#outputs.has(name)) throw argumentError('name', 'the name of no other output', name)
    if (name !== value) this.#define('name', name)
    this.#outputs.set(name, value)
    return this
  }

  /**
   * The graph, with the types of its outputs as far as they can be inferred.
   * @throws SparkError ERR_FORMAT without outputs; ERR_SHAPE, ERR_DTYPE or ERR_FORMAT naming a node whose inputs or
   * attributes do not fit
   */
  build(): Graph {
    if (this.#outputs.size === 0)
      throw new SparkError('ERR_FORMAT', `graph '${this.#name}' has no outputs: call output(value, name)`)
    const graph = makeGraph({
      name: this.#name,
      inputs: this.#inputs,
      initializers: this.#initializers,
      ...this.#ends(),
    })
    if (this.#outer) return graph
    const checked = checkGraph(graph, `graph '${this.#name}'`)
    const facts = inferFacts(canonicalise(checked))
    const outputs = checked.outputs.map(({ name }): ValueInfo => {
      const type = facts.get(name)?.type
      return type ? { name, type } : { name }
    })
    return { ...checked, outputs }
  }

  /** Nodes and outputs; a value of a node gets the name of its output, another one by a node. */
  #ends(): Pick<Graph, 'nodes' | 'outputs'> {
    const made = new Set(this.#nodes.flatMap(node => node.outputs))
    const names = new Map<string, string>()
    const copies: Node[] = []
    for (const [name, value] of this.#outputs) {
      const renamed = names.get(value)
      const isKept = this.#outputs.has(value)
      if (name === value) continue
      if (made.has(value) && renamed === undefined && !isKept) names.set(value, name)
      else copies.push(makeNode('Identity', [renamed ?? value], [name]))
    }
    const rename = (name: string): string => names.get(name) ?? name
    const renamed = renameReads(makeGraph({ nodes: this.#nodes }), names)
    const nodes = renamed.nodes.map(node => ({ ...node, outputs: node.outputs.map(rename) }))
    const outputs = [...this.#outputs.keys()].map(name => ({ name }))
    return { nodes: [...nodes, ...copies], outputs }
  }

  #operand(op: string, operand: Operand, i: number): string {
    if (typeof operand === 'number' || operand instanceof Tensor) {
      const name = this.#fresh('constant')
      this.#initializers.set(name, constantOf(tensorOf(operand)))
      return name
    }
    if (operand === '' || (typeof operand === 'string' && this.#has(operand))) return operand
    if (typeof operand === 'string') throw this.#missing(`operands[${i}] of ${op}`, operand)
    throw argumentError(
      `operands[${i}] of ${op}`,
      'the name of a value, a number, a tensor or an empty string',
      operand,
    )
  }

  /** Names of the values of this graph and those around it. */
  #values(): string[] {
    const own = [
      ...this.#inputs.map(({ name }) => name),
      ...this.#initializers.keys(),
      ...this.#nodes.flatMap(({ outputs }) => outputs.filter(name => name !== '')),
    ]
    return [...own, ...(this.#outer ? this.#outer.#values() : [])]
  }

  #has(value: string): boolean {
    return this.#names.has(value) && this.#values().includes(value)
  }

  #missing(what: string, value: string): SparkError {
    const hint = typeof value === 'string' ? didYouMean(value, this.#values()) : ''
    return new SparkError('ERR_ARGUMENT', `${what}: there is no value '${value}' here${hint}`)
  }

  #define(what: string, name: string): void {
    expectText(what, name)
    if (this.#names.has(name)) throw argumentError(what, 'a name that no other value has', name)
    this.#names.add(name)
  }

  /** A name that no value has. */
  #fresh(op: string): string {
    return this.#freshName(`/${op}`)
  }

  #freshName(base: string): string {
    let name = base
    for (let i = 1; this.#names.has(name); i++) name = `${base}_${i}`
    this.#names.add(name)
    return name
  }
}

function expectDimensions(shape: readonly Dimension[]): readonly Dimension[] {
  const isDimension = (size: unknown): boolean =>
    size === null || typeof size === 'string' || (Number.isSafeInteger(size) && (size as number) >= 0)
  if (!Array.isArray(shape) || !shape.every(isDimension))
    throw argumentError('shape', 'a list of sizes, names of sizes and null', shape, 'ERR_SHAPE')
  return shape.map(size => (size === '' || size === '?' ? null : size))
}

function expectOperator(op: string, domain: string): void {
  if (rowOf(makeNode(op, [], [], { domain }))) return
  if (domain !== '' && domain !== sparkDomain) return
  const known = Object.values(families).flatMap(family => Object.keys(family[domain] ?? {}))
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `there is no operator '${op}'${didYouMean(op, known)}; npx dgx-spark ops lists all`,
  )
}

const tensorOf = (value: Tensor<ElementType> | TensorValues): Tensor<ElementType> =>
  value instanceof Tensor ? value : Tensor.from<ElementType>(value)
