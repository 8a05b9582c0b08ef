// inline-branches.ts: an If whose condition is known is the branch that it takes. Exporters write conditions on shapes.
import { atOnce, type Paced } from '../../core/paced.js'
import { graphOf } from '../attributes.js'
import type { Constant } from '../constant.js'
import { makeNode, type Node, type Subgraph } from '../graph.js'
import { type Fact, ShapeInference } from '../shape-inference.js'

/** Options of {@link inlineBranches}. */
export interface BranchOptions {
  /** Sizes of inputs at run time, by name, where they are not those of the graph. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
}

/**
 * The graph in which the nodes of a branch stand in the place of each If whose condition follows from the shapes of the
 * inputs and from constants. Bodies of loops and branches that stay are left as they are.
 * @param graph - a canonical graph, whose names are unique over its subgraphs
 */
export function inlineBranches<G extends Subgraph>(graph: G, options: BranchOptions = {}): G {
  return atOnce(inlineBranchesPaced(graph, options))
}

/** {@link inlineBranches} with pauses. */
export function* inlineBranchesPaced<G extends Subgraph>(
  graph: G,
  { shapes = {} }: BranchOptions = {},
): Paced<G> {
  if (!graph.nodes.some(isIf)) return graph
  const inference = new ShapeInference({ trustFile: true, strict: false })
  yield* inference.inferGraph(
    { ...graph, nodes: [], outputs: [] },
    graph.inputs.map(({ name, type }) => {
      const shape = Object.hasOwn(shapes, name) ? shapes[name] : undefined
      return { type: shape && type?.kind === 'tensor' ? { ...type, shape } : type }
    }),
  )
  const initializers = new Map(graph.initializers)
  const define = (name: string, constant: Constant): void => {
    initializers.set(name, constant)
    inference.defineConstant(name, constant)
  }
  const nodes: Node[] = []
  const inline = function* (node: Node, inside: Subgraph): Paced<void> {
    const branch = takenBranch(node, inference.facts)
    if (!branch) {
      yield* inference.inferNodePaced(node, inside)
      nodes.push(node)
      return
    }
    for (const [name, constant] of branch.initializers) define(name, constant)
    for (const inner of branch.nodes) yield* inline(inner, branch)
    const results = node.outputs.flatMap((name, i) =>
      name === '' ? [] : [makeNode('Identity', [branch.outputs[i]!.name], [name])],
    )
    for (const result of results) {
      inference.inferNode(result, inside)
      nodes.push(result)
    }
  }
  for (const node of graph.nodes) yield* inline(node, graph)
  return nodes.length === graph.nodes.length && nodes.every((node, i) => node === graph.nodes[i])
    ? graph
    : { ...graph, nodes, initializers }
}

/** Whether a node chooses between branches. */
export const isIf = ({ domain, op }: Node): boolean => domain === '' && op === 'If'

/** The branch that a node takes in every run; undefined where that is not known, and for other nodes. */
function takenBranch(node: Node, facts: ReadonlyMap<string, Fact>): Subgraph | undefined {
  if (!isIf(node)) return undefined
  const elements = facts.get(node.inputs[0] ?? '')?.known?.elements
  const [condition] = elements?.length === 1 ? elements : []
  if (typeof condition !== 'number') return undefined
  return graphOf(node, condition === 0 ? 'else_branch' : 'then_branch')
}
