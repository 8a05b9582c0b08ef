// network.ts: a network under construction: its nodes, and its weights, which are drawn at the end.
import type { Paced } from '../../core/paced.js'
import { kaimingUniform, randomGenerator } from '../../core/random.js'
import { numel } from '../../core/shape.js'
import { tensor } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { freshNames } from '../../graph/edit.js'
import {
  type Attributes,
  type Graph,
  makeGraph,
  makeNode,
  type Node,
  tensorType,
  type ValueInfo,
} from '../../graph/graph.js'
import { type AttributeValue, attributeOf } from '../../model/attribute-values.js'
import { encode } from '../../precision/casts.js'

/** Types that the weights of a network have. */
type FloatType = 'f32' | 'f16'

/** A weight that is not drawn yet. */
interface Draw {
  readonly name: string
  readonly shape: readonly number[]
  readonly deviation: number
  readonly mean: number
}

/** What a finished network is called and says about itself. */
export interface NetworkDetails {
  /** Name of the graph. */
  readonly name: string
  /** Seed of the weights. */
  readonly seed: number
  /** Version of the ONNX standard that its nodes follow. */
  readonly opset: number
  /** Remarks: see the ONNX field metadata_props. */
  readonly metadata: ReadonlyMap<string, string>
}

/** Nodes are named as PyTorch's exporter names them: by the module that they belong to, its scope. */
export class Network {
  /** Type of the weights and of everything between them. */
  readonly dtype: FloatType
  readonly #inputs: ValueInfo[] = []
  readonly #nodes: Node[] = []
  readonly #draws: Draw[] = []
  readonly #fresh = freshNames(makeGraph({}))

  constructor(dtype: FloatType) {
    this.dtype = dtype
  }

  /** Adds an input and returns its name. */
  input(name: string, dtype: 'u8' | FloatType, shape: readonly number[]): string {
    this.#inputs.push({ name: this.#fresh(name), type: tensorType(dtype, shape) })
    return name
  }

  /** Adds a weight of uniformly distributed numbers. @returns its name */
  weight(name: string, shape: readonly number[], deviation: number, mean = 0): string {
    const fresh = this.#fresh(name)
    this.#draws.push({ name: fresh, shape, deviation, mean })
    return fresh
  }

  /** Adds a node with one output and returns the name of that. */
  add(
    scope: string,
    op: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, AttributeValue>> = {},
  ): string {
    return this.addAll(scope, op, inputs, 1, attributes)[0]!
  }

  /** Adds a node with several outputs and returns their names. */
  addAll(
    scope: string,
    op: string,
    inputs: readonly string[],
    count: number,
    attributes: Readonly<Record<string, AttributeValue>> = {},
  ): string[] {
    const values = Object.entries(attributes).map(([key, value]) => [key, attributeOf(key, key, value)])
    return this.#append(scope, op, inputs, count, Object.fromEntries(values) as Attributes)
  }

  /** A number of the network's type, as a node. */
  number(scope: string, value: number): string {
    return this.#constant(scope, this.#encoded([], Float32Array.of(value)))
  }

  /** A list of i64, as a node. */
  integers(scope: string, ...values: readonly number[]): string {
    return this.#constant(scope, Constant.i64(values))
  }

  /** The graph, whose one output `outputs` is the given value of `shape`. The same seed gives the same weights. */
  *finish(value: string, shape: readonly number[], details: NetworkDetails): Paced<Graph> {
    const random = randomGenerator(details.seed)
    const initializers = new Map<string, Constant>()
    for (const draw of this.#draws) {
      const values = kaimingUniform(random, numel(draw.shape), 1 / (3 * draw.deviation ** 2))
      if (draw.mean !== 0) for (let i = 0; i < values.length; i++) values[i]! += draw.mean
      initializers.set(draw.name, this.#encoded(draw.shape, values))
      yield
    }
    const rename = (name: string): string => (name === value ? 'outputs' : name)
    return makeGraph({
      name: details.name,
      inputs: this.#inputs,
      outputs: [{ name: 'outputs', type: tensorType(this.dtype, shape) }],
      nodes: this.#nodes.map(node => ({ ...node, outputs: node.outputs.map(rename) })),
      initializers,
      metadata: details.metadata,
      opsets: new Map([['', details.opset]]),
    })
  }

  #append(
    scope: string,
    op: string,
    inputs: readonly string[],
    count: number,
    attributes: Attributes,
  ): string[] {
    const name = this.#fresh(`/${scope.replaceAll('.', '/')}/${op}`)
    const outputs = Array.from({ length: count }, (_, i) => this.#fresh(`${name}_output_${i}`))
    this.#nodes.push(makeNode(op, inputs, outputs, { name, attributes }))
    return outputs
  }

  #constant(scope: string, value: Constant): string {
    return this.#append(scope, 'Constant', [], 1, { value: tensor(value) })[0]!
  }

  #encoded(shape: readonly number[], values: Float32Array): Constant {
    return Constant.from(this.dtype, shape, this.dtype === 'f32' ? values : encode(values, this.dtype))
  }
}
