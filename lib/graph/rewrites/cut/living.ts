// living.ts: between which nodes the values of a graph are needed.
import type { Constant } from '../../constant.js'
import { isRandom, readsOf } from '../../edit.js'
import type { Graph, Node } from '../../graph.js'
import type { Fact } from '../../shape-inference.js'
import { removeDead } from '../remove-dead.js'
import { knownConstantOf } from './values.js'

/** Where the values of a graph are made and read. Numbers are those of nodes in their order. */
export interface Living {
  /** Constants of the graph, and values that shape inference knows. */
  readonly constants: ReadonlyMap<string, Constant>
  /** Nodes that an output or a state depends on, but for those that make known values only. */
  readonly needed: ReadonlySet<Node>
  /** Values that follow from initializers: each stage makes them for itself, at load. */
  readonly fixed: ReadonlySet<string>
  /** The node that makes a value, but for fixed ones. */
  readonly made: ReadonlyMap<string, number>
  /** The nodes that read a value and make ones that are not fixed, in their order. */
  readonly readers: ReadonlyMap<string, readonly number[]>
}

/** Finds them. */
export function livingOf(graph: Graph, facts: ReadonlyMap<string, Fact>): Living {
  const constants = new Map(graph.initializers)
  const unknown = graph.nodes.filter(node => {
    const known = isRandom(node) ? [] : node.outputs.map(name => knownConstantOf(facts.get(name)))
    for (const [i, constant] of known.entries()) if (constant) constants.set(node.outputs[i]!, constant)
    return !node.outputs.every(name => name === '' || constants.has(name))
  })
  const needed = new Set(removeDead({ ...graph, nodes: unknown, initializers: constants }).nodes)
  const fixed = new Set([...constants.keys()].filter(name => !graph.updates?.has(name)))
  const made = new Map<string, number>()
  const readers = new Map<string, number[]>()
  for (const [i, node] of graph.nodes.entries()) {
    if (!needed.has(node)) continue
    const reads = new Set(readsOf(node))
    const isFixed = !isRandom(node) && [...reads].every(read => fixed.has(read))
    for (const output of node.outputs)
      if (output === '' || constants.has(output)) continue
      else if (isFixed) fixed.add(output)
      else made.set(output, i)
    if (isFixed) continue
    for (const read of reads) {
      const list = readers.get(read)
      if (list) list.push(i)
      else readers.set(read, [i])
    }
  }
  return { constants, needed, fixed, made, readers }
}
