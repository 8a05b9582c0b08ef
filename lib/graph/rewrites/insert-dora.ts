// insert-dora.ts: puts DoRA adapters into a graph.
import { SparkError } from '../../core/errors.js'
import { describeNode, float, floatOf, intOf, ints, string } from '../attributes.js'
import type { Constant } from '../constant.js'
import { freshNames } from '../edit.js'
import { type Attributes, type Graph, makeNode, type Node, sparkDomain } from '../graph.js'

/** The adapter of one weight, V = W + scale · B·A with rows scaled to the length that `magnitude` says. */
export interface DoraTarget {
  /** Name of the weight: an initializer. */
  readonly weight: string
  /** What names of the parameters start with: `<module>.lora_A`, `.lora_B`, `.lora_magnitude_vector`. */
  readonly module: string
  /** [R, I], or [R, C/G, kernel] for a convolution. */
  readonly a: Constant
  /** [O, R], or [O, R, 1, …]. */
  readonly b: Constant
  /** O elements. */
  readonly magnitude: Constant
  /** Factor of B·A. */
  readonly scale: number
  /** Whether the gradient takes the norm for a constant, as PEFT does. Default: `detached`. */
  readonly normGradient?: 'detached' | 'exact'
}

/** Names of the parameters of a target. */
export function doraParameters(module: string): readonly [a: string, b: string, magnitude: string] {
  return [`${module}.lora_A`, `${module}.lora_B`, `${module}.lora_magnitude_vector`]
}

/**
 * Puts an adapter in front of each given weight. A `MatMul` or `Gemm` becomes a `DoRA` node; the weight of any other
 * operator, such as `Conv`, is replaced by that of a `DoRAWeight` node: its first dimension counts the rows.
 *
 * @throws SparkError ERR_ARGUMENT for a weight that is no initializer or is read by no node, ERR_SHAPE when an adapter
 * does not fit its weight, ERR_UNSUPPORTED for a `Gemm` that scales
 */
export function insertDora(graph: Graph, targets: readonly DoraTarget[]): Graph {
  const fresh = freshNames(graph)
  const initializers = new Map(graph.initializers)
  let { nodes } = graph
  for (const target of targets) {
    const weight = graph.initializers.get(target.weight)
    const readers = nodes.filter(node => node.inputs.includes(target.weight))
    if (!weight || readers.length === 0) {
      throw new SparkError('ERR_ARGUMENT', `'${target.weight}' is no weight that a node reads`)
    }
    const layout = layoutOf(readers[0]!, weight)
    expectFit(target, layout)
    const [a, b, magnitude] = doraParameters(target.module)
    for (const [name, value] of [
      [a, target.a],
      [b, target.b],
      [magnitude, target.magnitude],
    ] as const) {
      initializers.set(name, value)
    }
    const attributes: Attributes = {
      scale: float(target.scale),
      norm_gradient: string(target.normGradient ?? 'detached'),
    }
    const made = new Adapter(target.weight, [a, b, magnitude], attributes, fresh)
    nodes = nodes.flatMap(node => (node.inputs.includes(target.weight) ? made.adapt(node) : [node]))
  }
  return { ...graph, nodes, initializers, opsets: new Map([...graph.opsets, [sparkDomain, 1]]) }
}

/** Rows and columns of a weight, as the node that reads it sees them. */
function layoutOf(node: Node, { shape }: Constant): { rows: number; cols: number } {
  const [first = 1, ...rest] = shape
  const others = rest.reduce((product, size) => product * size, 1)
  return isTransposed(node) ? { rows: others, cols: first } : { rows: first, cols: others }
}

/** Whether the rows of the weight are in features. */
const isTransposed = (node: Node): boolean =>
  node.op === 'MatMul' || (node.op === 'Gemm' && intOf(node, 'transB', 0) === 0)

function expectFit(
  { module, a, b, magnitude }: DoraTarget,
  { rows, cols }: { rows: number; cols: number },
): void {
  const rank = a.shape[0] ?? 0
  if (a.count !== rank * cols || b.count !== rows * rank || magnitude.count !== rows || rank === 0) {
    const shapes = [a, b, magnitude].map(({ shape }) => `[${shape.join(', ')}]`).join(', ')
    throw new SparkError(
      'ERR_SHAPE',
      `${module}: A, B and magnitude are ${shapes}; the weight has ${rows} rows of ${cols}`,
    )
  }
}

/** Adapts the readers of one weight; they share what is computed from the adapter. */
class Adapter {
  readonly #weight: string
  readonly #parameters: readonly string[]
  readonly #attributes: Attributes
  readonly #fresh: (base: string) => string
  #merged: string | undefined
  #rows: string | undefined

  constructor(
    weight: string,
    parameters: readonly string[],
    attributes: Attributes,
    fresh: (base: string) => string,
  ) {
    this.#weight = weight
    this.#parameters = parameters
    this.#attributes = attributes
    this.#fresh = fresh
  }

  adapt(node: Node): Node[] {
    const isLinear =
      node.domain === '' && (node.op === 'Gemm' || node.op === 'MatMul') && node.inputs[1] === this.#weight
    return isLinear ? this.#linear(node) : this.#other(node)
  }

  #linear(node: Node): Node[] {
    if (floatOf(node, 'alpha', 1) !== 1 || floatOf(node, 'beta', 1) !== 1 || intOf(node, 'transA', 0) !== 0) {
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${describeNode(node)}: alpha, beta and transA cannot have an adapter`,
      )
    }
    const added: Node[] = []
    let rows = this.#weight
    if (isTransposed(node)) {
      if (!this.#rows) {
        this.#rows = this.#fresh(`${this.#weight}/rows`)
        added.push(
          makeNode('Transpose', [this.#weight], [this.#rows], { attributes: { perm: ints([1, 0]) } }),
        )
      }
      rows = this.#rows
    }
    const inputs = [node.inputs[0]!, rows, ...this.#parameters, ...node.inputs.slice(2)]
    const { name, outputs } = node
    added.push(makeNode('DoRA', inputs, outputs, { domain: sparkDomain, name, attributes: this.#attributes }))
    return added
  }

  #other(node: Node): Node[] {
    const added: Node[] = []
    if (!this.#merged) {
      this.#merged = this.#fresh(`${this.#weight}/adapted`)
      const options = {
        domain: sparkDomain,
        name: `${this.#weight}/DoRAWeight`,
        attributes: this.#attributes,
      }
      added.push(makeNode('DoRAWeight', [this.#weight, ...this.#parameters], [this.#merged], options))
    }
    const inputs = node.inputs.map(name => (name === this.#weight ? this.#merged! : name))
    return [...added, { ...node, inputs }]
  }
}
