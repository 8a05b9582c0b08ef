// insert-dora.ts: puts DoRA adapters into a graph.

import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { float, floatOf, int, intOf, ints, string } from '../attributes.js'
import type { Constant } from '../constant.js'
import { consumersOf, freshNames } from '../edit.js'
import { onnxNumbers } from '../element-types.js'
import { type Attributes, type Graph, makeNode, type Node, sparkDomain } from '../graph.js'
import { NodeBuilder } from '../node-builder.js'

/** The adapter of one weight, V = W + scale · B·A with rows scaled to the length that `magnitude` says. */
export interface DoraTarget {
  /** Name of the weight: an initializer, or a value that a node makes of initializers. */
  readonly weight: string
  /** Element type and sizes of a weight that is no initializer. */
  readonly type?: Pick<Constant, 'dtype' | 'shape'>
  /**
   * Whether the weight lies [I, O], as that of a `MatMul` or the table of a `Gather`, whose in features are its entries.
   * Default: what the first node that reads it says.
   */
  readonly inColumns?: boolean
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
 * operator, such as `Conv`, is replaced by that of a `DoRAWeight` node: its first dimension counts the rows, or with
 * `inColumns` its second. Weights of 16 bits are widened, and so is what a `DoRA` node reads; its result is rounded.
 *
 * @throws SparkError ERR_ARGUMENT for a weight that is no initializer or is read by no node, or ERR_SHAPE when an
 * adapter does not fit its weight
 */
export function insertDora(graph: Graph, targets: readonly DoraTarget[]): Graph {
  const fresh = freshNames(graph)
  const initializers = new Map(graph.initializers)
  const consumers = consumersOf(graph)
  let { nodes } = graph
  for (const target of targets) {
    const weight = graph.initializers.get(target.weight) ?? target.type
    const first = consumers.get(target.weight)?.find(({ inputs }) => inputs.includes(target.weight))
    if (!weight || !first) {
      throw new SparkError('ERR_ARGUMENT', `'${target.weight}' is no weight that a node reads`)
    }
    const inColumns = target.inColumns ?? isTransposed(first, target.weight)
    const { rows, cols } = layoutOf(inColumns, weight)
    expectFit(target, { rows, cols })
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
    const { dtype } = weight
    const made = new Adapter(
      { ...target, dtype, inColumns, rows, attributes, parameters: [a, b, magnitude] },
      { fresh, initializers },
    )
    nodes = nodes.flatMap(node => (node.inputs.includes(target.weight) ? made.adapt(node) : [node]))
  }
  return { ...graph, nodes, initializers, opsets: new Map([...graph.opsets, [sparkDomain, 1]]) }
}

/** Rows and columns of a weight. */
export function layoutOf(
  inColumns: boolean,
  { shape }: Pick<Constant, 'shape'>,
): { rows: number; cols: number } {
  const [first = 1, ...rest] = shape
  const others = numel(rest)
  return inColumns ? { rows: others, cols: first } : { rows: first, cols: others }
}

/** Whether `node` is a product with the weight on the right. */
export const isLinear = ({ domain, op, inputs }: Node, weight: string): boolean =>
  domain === '' && (op === 'Gemm' || op === 'MatMul') && inputs[1] === weight && inputs[0] !== weight

/** Whether it is one that reads the rows of the weight as in features. */
export const isTransposed = (node: Node, weight: string): boolean =>
  isLinear(node, weight) && (node.op === 'MatMul' || intOf(node, 'transB') === 0)

/** Throws ERR_SHAPE when an adapter does not fit its weight. */
export function expectFit(
  { module, a, b, magnitude }: Omit<DoraTarget, 'magnitude'> & { readonly magnitude?: Constant },
  { rows, cols }: { rows: number; cols: number },
): void {
  const rank = a.shape[0] ?? 0
  const lengths = magnitude?.count ?? rows
  if (a.count !== rank * cols || b.count !== rows * rank || lengths !== rows || rank === 0) {
    const given = [a, b, ...(magnitude ? [magnitude] : [])]
    const shapes = given.map(({ shape }) => `[${shape.join(', ')}]`).join(', ')
    throw new SparkError(
      'ERR_SHAPE',
      `${module}: A, B${magnitude ? ' and magnitude' : ''} are ${shapes}; the weight has ${rows} rows of ${cols}`,
    )
  }
}

/** A target and what is known of its weight. */
interface Adapted {
  readonly weight: string
  readonly dtype: Constant['dtype']
  readonly inColumns: boolean
  readonly rows: number
  readonly parameters: readonly string[]
  readonly attributes: Attributes
}

/** What an {@link Adapter} adds to. */
interface Scope {
  readonly fresh: (base: string) => string
  readonly initializers: Map<string, Constant>
}

/** Adapts the readers of one weight; they share what is computed from the adapter. */
class Adapter {
  readonly #target: Adapted
  readonly #fresh: (base: string) => string
  readonly #initializers: Map<string, Constant>
  #merged: string | undefined
  #rows: string | undefined

  constructor(target: Adapted, { fresh, initializers }: Scope) {
    this.#target = target
    this.#fresh = fresh
    this.#initializers = initializers
  }

  adapt(node: Node): Node[] {
    const { weight, inColumns } = this.#target
    const direct = isLinear(node, weight) && isTransposed(node, weight) === inColumns
    return direct ? this.#linear(node) : this.#other(node)
  }

  /** alpha · DoRA(x, or its transpose) + beta · C; a C with a number for each row is the bias of the DoRA node. */
  #linear(node: Node): Node[] {
    const { parameters, attributes, dtype } = this.#target
    const [alpha, beta] = [floatOf(node, 'alpha'), floatOf(node, 'beta')]
    const added: Node[] = []
    const rows = this.#weightRows(added)
    const [x = '', , c = ''] = node.inputs
    const [input, term] = [x, c].map(name => this.#cast(added, name, 'f32')) as [string, string]
    const read = intOf(node, 'transA') === 0 ? input : this.#transpose(added, input)
    const isBias = alpha === 1 && beta === 1 && this.#isBias(c)
    const inputs = [read, rows, ...parameters, ...(isBias ? [term] : [])]
    const build = this.#builder(node, added)
    let y = build.fresh(`${node.outputs[0]}/DoRA`)
    build.append(makeNode('DoRA', inputs, [y], { domain: sparkDomain, name: node.name, attributes }))
    const factor = (value: number): string => build.constant(value, `${this.#target.weight}/factor`)
    if (alpha !== 1) y = build.add('Mul', [y, factor(alpha)])
    if (term !== '' && !isBias)
      y = build.add('Add', [y, beta === 1 ? term : build.add('Mul', [term, factor(beta)])])
    if (dtype !== 'f32') y = build.add('Cast', [y], { to: int(onnxNumbers[dtype]) })
    const last = added.pop()!
    return [...added, { ...last, outputs: node.outputs }]
  }

  #other(node: Node): Node[] {
    const { weight, inColumns, parameters, attributes, dtype } = this.#target
    const added: Node[] = []
    if (!this.#merged) {
      const rows = this.#weightRows(added)
      const options = { domain: sparkDomain, name: `${weight}/DoRAWeight`, attributes }
      const adapted = this.#fresh(`${weight}/adapted`)
      added.push(makeNode('DoRAWeight', [rows, ...parameters], [adapted], options))
      this.#merged = this.#cast(added, inColumns ? this.#transpose(added, adapted) : adapted, dtype)
    }
    const inputs = node.inputs.map(name => (name === weight ? this.#merged! : name))
    return [...added, { ...node, inputs }]
  }

  #isBias(name: string): boolean {
    const { rows } = this.#target
    const constant = this.#initializers.get(name)
    return constant?.count === rows && constant.shape.at(-1) === rows
  }

  #builder(node: Node, nodes: Node[]): NodeBuilder {
    const define = (name: string, value: Constant) => this.#initializers.set(name, value)
    return new NodeBuilder({ fresh: this.#fresh, define, base: op => `${node.outputs[0]}/${op}` }, nodes)
  }

  /** The weight as f32, rows first. */
  #weightRows(added: Node[]): string {
    const { weight, inColumns } = this.#target
    this.#rows ??= inColumns
      ? this.#transpose(added, this.#cast(added, weight, 'f32'))
      : this.#cast(added, weight, 'f32')
    return this.#rows
  }

  #transpose(added: Node[], name: string): string {
    const transposed = this.#fresh(`${name}/transposed`)
    added.push(makeNode('Transpose', [name], [transposed], { attributes: { perm: ints([1, 0]) } }))
    return transposed
  }

  #cast(added: Node[], name: string, to: Constant['dtype']): string {
    if (this.#target.dtype === 'f32' || name === '') return name
    const cast = this.#fresh(`${name}/${to}`)
    added.push(makeNode('Cast', [name], [cast], { attributes: { to: int(onnxNumbers[to]) } }))
    return cast
  }
}
