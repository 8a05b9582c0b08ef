// remove-identities.ts: nodes that give back what they get, and moves that follow each other.
import { atOnce, mapPaced, type Paced } from '../../core/paced.js'
import { ints, intsOf } from '../attributes.js'
import { producersOfPaced, renameReadsPaced } from '../edit.js'
import type { Graph, Node } from '../graph.js'
import { removeDeadPaced } from './remove-dead.js'

/** Whether output 0 of a node has the elements and the shape of input 0. */
function isIdentity(node: Node): boolean {
  if (node.domain !== '') return false
  if (node.op === 'Identity') return true
  if (node.op === 'Dropout') return node.inputs.length < 3 && (node.outputs[1] ?? '') === ''
  return node.op === 'Transpose' && (intsOf(node, 'perm')?.every((axis, i) => axis === i) ?? false)
}

/**
 * Removes identities, dropout outside of training and transposes that move nothing; two transposes in a row become one.
 * Outputs keep their names.
 */
export function removeIdentities(graph: Graph): Graph {
  return atOnce(removeIdentitiesPaced(graph))
}

/** {@link removeIdentities} with pauses. */
export function* removeIdentitiesPaced(graph: Graph): Paced<Graph> {
  const joined = yield* joinTransposes(graph)
  const outputs = new Set([...joined.outputs.map(({ name }) => name), ...(joined.updates?.values() ?? [])])
  const names = new Map<string, string>()
  for (const node of joined.nodes) {
    const [from = '', to = ''] = [node.inputs[0], node.outputs[0]]
    if (isIdentity(node) && !outputs.has(to)) names.set(to, names.get(from) ?? from)
    yield
  }
  if (names.size === 0 && joined === graph) return graph
  return yield* removeDeadPaced(yield* renameReadsPaced(joined, names))
}

function* joinTransposes(graph: Graph): Paced<Graph> {
  const producers = yield* producersOfPaced(graph)
  let changed = false
  const nodes = yield* mapPaced(graph.nodes, node => {
    const first = producers.get(node.inputs[0] ?? '')
    const [inner, outer] = [first && permOf(first), permOf(node)]
    if (!first || !inner || !outer) return node
    changed = true
    const perm = outer.map(axis => inner[axis]!)
    const joined: Node = { ...node, inputs: first.inputs, attributes: { perm: ints(perm) } }
    producers.set(node.outputs[0]!, joined)
    return joined
  })
  return changed ? { ...graph, nodes } : graph
}

const permOf = (node: Node): number[] | undefined =>
  node.op === 'Transpose' && node.domain === '' ? intsOf(node, 'perm') : undefined
