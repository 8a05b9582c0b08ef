// decompose.ts: operators of our own domain as standard ones, for saving and for other runtimes.
import { SparkError } from '../../core/errors.js'
import { describeNode, floatOf, int, intOf, ints } from '../attributes.js'
import { freshNames, replaceNodes } from '../edit.js'
import { type Graph, makeNode, type Node, sparkDomain } from '../graph.js'
import { NodeBuilder, type NodeScope } from '../node-builder.js'
import { type Fact, inferFacts } from '../shape-inference.js'

/** Makes standard nodes with the outputs of a node of ours. */
type Rule = (parts: Parts) => void

/**
 * Replaces operators of our own domain by standard ones that compute the same, rounded in another order.
 * @throws SparkError ERR_UNSUPPORTED naming an operator that has no standard form: gradients and optimizers
 */
export function decompose(graph: Graph): Graph {
  if (!graph.opsets.has(sparkDomain)) return graph
  const facts = inferFacts(graph)
  const initializers = new Map(graph.initializers)
  const scope: NodeScope = {
    fresh: freshNames(graph),
    define: (name, value) => initializers.set(name, value),
  }
  const replaced = replaceNodes(graph, node => {
    if (node.domain !== sparkDomain) return undefined
    const rule = Object.hasOwn(rules, node.op) ? rules[node.op] : undefined
    if (!rule) {
      const why = 'it has no form in standard operators; save or run the model before it is trained'
      throw new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: ${why}`)
    }
    const parts = new Parts(node, facts, scope)
    rule(parts)
    return parts.nodes
  })
  const opsets = new Map([...graph.opsets].filter(([domain]) => domain !== sparkDomain))
  return { ...replaced, initializers, opsets }
}

/** A node that is taken apart, and the nodes it becomes. */
class Parts extends NodeBuilder {
  readonly node: Node
  readonly #facts: ReadonlyMap<string, Fact>

  constructor(node: Node, facts: ReadonlyMap<string, Fact>, scope: NodeScope) {
    super({ ...scope, base: op => `${node.outputs[0]}/${op}` })
    this.node = node
    this.#facts = facts
  }

  /** Name of input `i`. */
  input(i: number): string {
    return this.node.inputs[i] ?? ''
  }

  /** Number of dimensions of input `i`. */
  rank(i: number): number {
    const type = this.#facts.get(this.input(i))?.type
    if (type?.kind === 'tensor' && type.shape) return type.shape.length
    throw new SparkError('ERR_UNSUPPORTED', `${describeNode(this.node)}: the rank of input ${i} is not known`)
  }

  /** Output `o` is a value. */
  give(o: number, value: string): void {
    const name = this.node.outputs[o] ?? ''
    if (name !== '') this.append(makeNode('Identity', [value], [name]))
  }
}

/** V = W + scale · B·A with rows of W, its norms [O, 1], and what scales its rows, [O, 1]. */
function adapted(parts: Parts, w: number): { v: string; norm: string; gain: string } {
  const rows = (i: number): string => parts.add('Flatten', [parts.input(i)], { axis: int(1) })
  const product = parts.add('MatMul', [rows(w + 2), rows(w + 1)])
  const scale = parts.constant(floatOf(parts.node, 'scale'))
  const v = parts.add('Add', [rows(w), parts.add('Mul', [product, scale])])
  const squares = parts.add('ReduceSumSquare', [v, parts.constant([1])], { keepdims: int(1) })
  const norm = parts.add('Sqrt', [squares])
  const magnitude = parts.add('Reshape', [parts.input(w + 3), parts.constant([-1, 1])])
  return { v, norm, gain: parts.add('Div', [magnitude, norm]) }
}

const flat = (parts: Parts, value: string): string => parts.add('Reshape', [value, parts.constant([-1])])

/** x, W, A, B, magnitude, bias → y, xa, z, norm, gain */
const dora: Rule = parts => {
  if (parts.input(6) !== '') {
    const why = 'dropout has no form in standard operators; save or run the model before it is trained'
    throw new SparkError('ERR_UNSUPPORTED', `${describeNode(parts.node)}: ${why}`)
  }
  const { v, norm, gain } = adapted(parts, 1)
  const x = parts.input(0)
  const swapped = (value: string): string => parts.add('Transpose', [value], { perm: ints([1, 0]) })
  const z = parts.add('MatMul', [x, swapped(v)])
  const scaled = parts.add('Mul', [z, flat(parts, gain)])
  parts.give(0, parts.input(5) === '' ? scaled : parts.add('Add', [scaled, parts.input(5)]))
  if ((parts.node.outputs[1] ?? '') !== '') parts.give(1, parts.add('MatMul', [x, swapped(parts.input(2))]))
  parts.give(2, z)
  if ((parts.node.outputs[3] ?? '') !== '') parts.give(3, flat(parts, norm))
  if ((parts.node.outputs[4] ?? '') !== '') parts.give(4, flat(parts, gain))
}

/** W, A, B, magnitude → the weight, norm, gain */
const doraWeight: Rule = parts => {
  const { v, norm, gain } = adapted(parts, 0)
  const shape = parts.add('Shape', [parts.input(0)])
  parts.give(0, parts.add('Reshape', [parts.add('Mul', [v, gain]), shape]))
  if ((parts.node.outputs[1] ?? '') !== '') parts.give(1, flat(parts, norm))
  if ((parts.node.outputs[2] ?? '') !== '') parts.give(2, flat(parts, gain))
}

/** The product of matrices whose last two dimensions may be swapped. */
const fusedMatMul: Rule = parts => {
  const operand = (i: number, attribute: string): string => {
    if (intOf(parts.node, attribute) === 0) return parts.input(i)
    const rank = parts.rank(i)
    const order = Array.from({ length: rank }, (_, axis) => axis)
    return parts.add('Transpose', [parts.input(i)], {
      perm: ints([...order.slice(0, -2), rank - 1, rank - 2]),
    })
  }
  parts.give(0, parts.add('MatMul', [operand(0, 'transA'), operand(1, 'transB')]))
}

/** dy where x > 0, else 0. */
const reluGrad: Rule = parts => {
  const zero = parts.constant(0)
  parts.give(0, parts.add('Where', [parts.add('Greater', [parts.input(1), zero]), parts.input(0), zero]))
}

const rules: Readonly<Record<string, Rule>> = {
  DoRA: dora,
  DoRAWeight: doraWeight,
  FusedMatMul: fusedMatMul,
  ReluGrad: reluGrad,
}
