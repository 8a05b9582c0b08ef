// branches.ts: puts the branch that runs in the place of an If, where the sizes of the inputs decide which one that is.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import type { Constant } from '../constant.js'
import { type Graph, makeNode, type Node, type Subgraph } from '../graph.js'
import { type Fact, inferFacts } from '../shape-inference.js'

/** Options of {@link chooseBranches}. */
export interface BranchOptions {
  /** Sizes of inputs at run time. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
}

/**
 * Replaces every `If` whose condition follows from the sizes of the inputs by the nodes of its branch, also those inside
 * of branches. Others stay.
 */
export function chooseBranches(graph: Graph, options: BranchOptions = {}): Graph {
  if (!graph.nodes.some(isIf)) return graph
  const facts = inferFacts(graph, options)
  const initializers = new Map(graph.initializers)
  const nodes = graph.nodes.flatMap(node => (isIf(node) ? inlined(node, facts, initializers) : [node]))
  const changed = nodes.length !== graph.nodes.length || nodes.some((node, i) => node !== graph.nodes[i])
  return changed ? chooseBranches({ ...graph, nodes, initializers }, options) : graph
}

const isIf = ({ domain, op }: Node): boolean => domain === '' && op === 'If'

/** The nodes of the branch that runs, whose constants become those of the graph; the node itself when nobody knows. */
function inlined(node: Node, facts: ReadonlyMap<string, Fact>, initializers: Map<string, Constant>): Node[] {
  const condition = facts.get(node.inputs[0]!)?.known?.elements[0]
  if (typeof condition !== 'number') return [node]
  const branch = branchOf(node, condition !== 0 ? 'then_branch' : 'else_branch')
  for (const [name, constant] of branch.initializers) initializers.set(name, constant)
  const results = node.outputs.flatMap((name, i) =>
    name === '' ? [] : [makeNode('Identity', [branch.outputs[i]!.name], [name])],
  )
  return [...branch.nodes, ...results]
}

function branchOf(node: Node, name: string): Subgraph {
  const attribute = node.attributes[name]
  if (attribute?.type === 'graph') return attribute.value
  throw new SparkError('ERR_FORMAT', `${describeNode(node)}: attribute '${name}' is no graph`)
}
