// common-subexpressions.ts: elimination of nodes that repeat another one.
import { atOnce, type Paced } from '../../core/paced.js'
import { isRandom, renameReadsPaced, subgraphsOf } from '../edit.js'
import type { Attribute, Graph, Node } from '../graph.js'
import { removeDeadPaced } from './remove-dead.js'

/** The graph in which nodes with the same operator, attributes and inputs are one. Outputs keep their names. */
export function mergeCommonSubexpressions(graph: Graph): Graph {
  return atOnce(mergeCommonSubexpressionsPaced(graph))
}

/** {@link mergeCommonSubexpressions} with pauses. */
export function* mergeCommonSubexpressionsPaced(graph: Graph): Paced<Graph> {
  const kept = new Set([...graph.outputs.map(({ name }) => name), ...(graph.updates?.values() ?? [])])
  const names = new Map<string, string>()
  const seen = new Map<string, Node>()
  for (const node of graph.nodes) {
    yield
    if (isRandom(node) || subgraphsOf(node).length > 0 || node.outputs.some(name => kept.has(name))) continue
    const inputs = node.inputs.map(name => names.get(name) ?? name)
    const key = keyOf(node, inputs)
    const first = key === undefined ? undefined : seen.get(key)
    if (first && first.outputs.length === node.outputs.length) {
      node.outputs.forEach((name, i) => {
        if (name !== '' && first.outputs[i] !== '') names.set(name, first.outputs[i]!)
      })
    } else if (key !== undefined) seen.set(key, node)
  }
  return names.size === 0 ? graph : yield* removeDeadPaced(yield* renameReadsPaced(graph, names))
}

/** What two nodes that compute the same share; undefined for a node with tensors or types as attributes. */
function keyOf(node: Node, inputs: readonly string[]): string | undefined {
  const plain = ({ type }: Attribute): boolean => /^(float|int|string)s?$/.test(type)
  const attributes = Object.entries(node.attributes).sort(([a], [b]) => (a < b ? -1 : 1))
  if (!attributes.every(([, attribute]) => plain(attribute))) return undefined
  const bits = (_: string, value: unknown): unknown =>
    typeof value === 'bigint'
      ? `${value}n`
      : Object.is(value, -0)
        ? '-0'
        : typeof value === 'number'
          ? String(value)
          : value
  return JSON.stringify([node.domain, node.op, inputs, attributes], bits)
}
