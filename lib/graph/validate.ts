// validate.ts: whether the nodes of a graph fit together, and in which order they can run.
import { SparkError } from '../core/errors.js'
import { atOnce, eachPaced, type Paced } from '../core/paced.js'
import { describeNode } from './attributes.js'
import { mapSubgraphsPaced, readsOf, subgraphsOf } from './edit.js'
import type { Graph, GraphFunction, Node, Subgraph } from './graph.js'

/**
 * Checks that every value is made once, before it is read. Nodes that stand in another order are sorted.
 * @param label - names the model in errors
 * @returns the graph, sorted
 * @throws SparkError ERR_FORMAT naming the node and the value, or the nodes of a cycle
 */
export function checkGraph(graph: Graph, label: string): Graph {
  return atOnce(checkGraphPaced(graph, label))
}

/** {@link checkGraph}, with pauses. */
export function* checkGraphPaced(graph: Graph, label: string): Paced<Graph> {
  for (const definition of graph.functions) yield* checkFunction(definition, label)
  return yield* checkScope(graph, undefined, label)
}

/** Names that the nodes of a graph may read, those of the graphs around it among them. */
class Scope {
  readonly #names = new Set<string>()
  readonly #outer: Scope | undefined

  constructor(outer: Scope | undefined) {
    this.#outer = outer
  }

  add(name: string): void {
    this.#names.add(name)
  }

  has(name: string): boolean {
    for (let scope: Scope | undefined = this; scope; scope = scope.#outer)
      if (scope.#names.has(name)) return true
    return false
  }
}

function* checkFunction({ name, inputs, outputs, nodes }: GraphFunction, label: string): Paced<void> {
  const body: Subgraph = {
    name,
    inputs: inputs.map(input => ({ name: input })),
    outputs: outputs.map(output => ({ name: output })),
    nodes,
    initializers: new Map(),
    values: new Map(),
    metadata: new Map(),
  }
  yield* checkScope(body, undefined, `${label}: function '${name}'`)
}

function* checkScope<G extends Subgraph>(graph: G, outer: Scope | undefined, label: string): Paced<G> {
  const known = new Scope(outer)
  for (const { name } of graph.inputs) known.add(name)
  yield* eachPaced(graph.initializers.keys(), name => known.add(name))
  yield* expectSingleAssignment(graph, label)
  const sorted = yield* sortNodes(graph.nodes, known, label)
  const nodes: Node[] = []
  for (const node of sorted) {
    nodes.push(yield* mapSubgraphsPaced(node, inner => checkScope(inner, known, label)))
    for (const name of node.outputs) known.add(name)
    yield
  }
  for (const { name } of graph.outputs) {
    // A node may leave an output out by an empty name, which then is no value.
    if (name === '' || !known.has(name)) {
      throw new SparkError(
        'ERR_FORMAT',
        `${label}: nothing makes the output '${name}' of graph '${graph.name}'`,
      )
    }
  }
  return nodes.every((node, i) => node === graph.nodes[i]) ? graph : { ...graph, nodes }
}

function* expectSingleAssignment(graph: Subgraph, label: string): Paced<void> {
  const made = new Map<string, 'an input' | 'an initializer' | Node>()
  for (const { name } of graph.inputs) {
    if (made.has(name)) throw new SparkError('ERR_FORMAT', `${label}: the input '${name}' occurs twice`)
    made.set(name, 'an input')
  }
  yield* eachPaced(graph.initializers.keys(), name => made.set(name, 'an initializer'))
  for (const node of graph.nodes) {
    yield
    for (const name of node.outputs) {
      if (name === '') continue
      const other = made.get(name)
      if (other) {
        const maker = typeof other === 'string' ? other : `made by ${describeNode(other)}`
        throw new SparkError(
          'ERR_FORMAT',
          `${label}: ${describeNode(node)} makes '${name}', which is ${maker} already`,
        )
      }
      made.set(name, node)
    }
  }
}

/** The nodes in an order in which each reads what is known or made before it; the given order where that is one. */
function* sortNodes(nodes: readonly Node[], known: Scope, label: string): Paced<readonly Node[]> {
  const makers = new Map<string, Node>()
  for (const node of nodes) {
    for (const name of node.outputs) makers.set(name, node)
    yield
  }
  const done = new Set<Node>()
  const open = new Set<Node>()
  const sorted: Node[] = []
  // A chain of thousands of nodes would overflow the stack of a recursive visit.
  for (const first of nodes) {
    const stack = [first]
    while (stack.length > 0) {
      yield
      const node = stack[stack.length - 1]!
      if (done.has(node)) {
        stack.pop()
        continue
      }
      const waiting = open.has(node)
        ? []
        : dependencies(node, makers, known, label).filter(it => !done.has(it))
      const cycle = waiting.find(it => open.has(it) || it === node)
      if (cycle) throw cycleError(stack, cycle, label)
      open.add(node)
      if (waiting.length > 0) {
        for (const maker of waiting) stack.push(maker)
        continue
      }
      stack.pop()
      open.delete(node)
      done.add(node)
      sorted.push(node)
    }
  }
  return sorted
}

function dependencies(node: Node, makers: ReadonlyMap<string, Node>, known: Scope, label: string): Node[] {
  return readsOf(node).flatMap(name => {
    const maker = makers.get(name)
    if (maker) return [maker]
    if (known.has(name)) return []
    const where = subgraphsOf(node).length > 0 && !node.inputs.includes(name) ? ' in a subgraph' : ''
    throw new SparkError(
      'ERR_FORMAT',
      `${label}: ${describeNode(node)} reads '${name}'${where}, which is no input, no initializer, and made by no node`,
    )
  })
}

function cycleError(stack: readonly Node[], node: Node, label: string): SparkError {
  const cycle = stack.slice(Math.max(0, stack.indexOf(node))).slice(0, 8)
  return new SparkError(
    'ERR_FORMAT',
    `${label}: the graph has a cycle: ${[...cycle, node].map(describeNode).join(' > ')}`,
  )
}

/** Graphs may lie inside each other this deep. */
export const maxNesting = 200

/**
 * Checks how deep the graphs of nodes lie inside each other, functions included: rewrites visit them recursively.
 * @param limit - how deep they may lie
 * @throws SparkError ERR_UNSUPPORTED naming a node that lies too deep
 */
export function* expectShallow(graph: Graph, limit = maxNesting): Paced<void> {
  const open = [graph, ...graph.functions].map(({ nodes }) => ({ nodes, depth: 0 }))
  for (let next = open.pop(); next; next = open.pop()) {
    for (const node of next.nodes) {
      yield
      for (const { nodes } of subgraphsOf(node)) {
        if (next.depth >= limit) throw nestingError(node, limit)
        open.push({ nodes, depth: next.depth + 1 })
      }
    }
  }
}

/** An error about a node whose graphs lie too deep inside of others. */
export function nestingError(node: Node, limit = maxNesting): SparkError {
  const message = `graphs lie inside each other deeper than ${limit}`
  return new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: ${message}`)
}
