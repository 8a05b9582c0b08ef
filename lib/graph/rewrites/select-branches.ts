// select-branches.ts: an If whose condition depends on data becomes both of its branches and a choice between what they
// give, so that it has a gradient.
import { elementArrayOf, isWideFloat } from '../../core/dtype.js'
import { graphOf } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { Constant, type NumericType } from '../constant.js'
import { capturesOf, renameReads } from '../edit.js'
import { type Graph, makeNode, type Node, type Subgraph, type TensorType } from '../graph.js'
import { type Fact, inferFacts, isStatic } from '../shape-inference.js'
import { isIf } from './inline-branches.js'

/** Options of {@link selectBranches}. */
export interface SelectOptions {
  /** Sizes of inputs at run time, by name, where they are not those of the graph. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
  /** Initializers that vary: they are trained. */
  readonly parameters?: readonly string[]
}

/**
 * Replaces each If both of whose branches give tensors of the same known shapes: both are computed. A branch that is not
 * taken reads zeros in the place of what varies outside of it, behind a `Where` that hands no gradient on: whatever it
 * computes of them, infinities and NaN too, changes neither results nor gradients. Other Ifs stay.
 * @param graph - a canonical graph, whose names are unique over its subgraphs
 */
export function selectBranches(graph: Graph, { shapes = {}, parameters = [] }: SelectOptions = {}): Graph {
  if (!graph.nodes.some(isIf)) return graph
  const selection = new Selection(graph, inferFacts(graph, { shapes }), parameters)
  for (const node of graph.nodes) selection.visit(node)
  return selection.build()
}

class Selection {
  readonly #graph: Graph
  readonly #facts: Map<string, Fact>
  readonly #builder: GraphBuilder
  readonly #fixed: ReadonlySet<string>
  /** Initializers of branches. */
  readonly #constants = new Map<string, Constant>()

  constructor(graph: Graph, facts: ReadonlyMap<string, Fact>, parameters: readonly string[]) {
    this.#graph = graph
    this.#facts = new Map(facts)
    this.#builder = new GraphBuilder(graph, 'selected')
    this.#fixed = new Set([...graph.initializers.keys()].filter(name => !parameters.includes(name)))
  }

  build(): Graph {
    const { nodes, initializers, ...rest } = this.#builder.build()
    const added = nodes.slice(this.#graph.nodes.length)
    return { ...rest, nodes: added, initializers: new Map([...initializers, ...this.#constants]) }
  }

  visit(node: Node): void {
    const [yes, no] = [graphOf(node, 'then_branch'), graphOf(node, 'else_branch')]
    if (!isIf(node) || !yes || !no || !this.#alike(yes, no)) {
      this.#builder.append(node)
      return
    }
    const condition = this.#builder.add('Reshape', [node.inputs[0]!, this.#builder.constant([])])
    const [taken, other] = [this.#branch(yes, condition, true), this.#branch(no, condition, false)]
    node.outputs.forEach((name, i) => {
      if (name !== '') this.#builder.append(makeNode('Where', [condition, taken[i]!, other[i]!], [name]))
    })
  }

  #typeOf(name: string): TensorType | undefined {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' ? type : undefined
  }

  /** Whether the outputs of two branches have the same types and known shapes. */
  #alike(yes: Subgraph, no: Subgraph): boolean {
    return yes.outputs.every(({ name }, i) => {
      const [a, b] = [this.#typeOf(name), this.#typeOf(no.outputs[i]?.name ?? '')]
      return isStatic(a) && isStatic(b) && a?.dtype === b?.dtype && String(a?.shape) === String(b?.shape)
    })
  }

  /** Adds the nodes of a branch; returns the names of its outputs. */
  #branch(branch: Subgraph, condition: string, taken: boolean): string[] {
    for (const [name, constant] of branch.initializers) this.#constants.set(name, constant)
    const names = new Map<string, string>()
    for (const name of capturesOf(branch)) {
      const dtype = this.#typeOf(name)?.dtype
      if (!dtype || !isWideFloat(dtype) || this.#fixed.has(name)) continue
      const zero = Constant.from(dtype as NumericType, [], new (elementArrayOf(dtype))(1) as never)
      const zeros = this.#builder.initializer('selected/zero', zero)
      const seen = this.#builder.add('Where', [condition, ...(taken ? [name, zeros] : [zeros, name])])
      names.set(name, seen)
      this.#facts.set(seen, this.#facts.get(name)!)
    }
    for (const node of renameReads(branch, names).nodes) this.visit(node)
    return branch.outputs.map(({ name }) => names.get(name) ?? name)
  }
}
