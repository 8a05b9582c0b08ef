// inline-functions.ts: replaces calls of a model's own functions by the nodes of their bodies.
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced } from '../../core/paced.js'
import { describeNode } from '../attributes.js'
import { freshNamesPaced, mapSubgraphs, mapSubgraphsPaced, subgraphsOf } from '../edit.js'
import {
  type Attribute,
  type Attributes,
  type Graph,
  type GraphFunction,
  makeGraph,
  type Node,
  type Subgraph,
} from '../graph.js'
import { maxNesting, nestingError } from '../validate.js'
import { uniqueNames } from './unique-names.js'

/** Functions may call each other this deep; a function that calls itself goes deeper. */
const maxDepth = 64

/** Nodes a model may have after inlining: functions that call each other twice grow without bounds. */
const maxNodes = 1_000_000

/** A graph without functions. */
export interface Inlined {
  readonly graph: Graph
  /** Opsets of nodes whose function is written in other versions than the model. */
  readonly opsets: ReadonlyMap<Node, ReadonlyMap<string, number>>
}

/** How many functions and graphs a node lies in. */
interface Depth {
  readonly calls: number
  readonly graphs: number
}

/**
 * Inlines all functions of a model, functions in functions too.
 * @throws SparkError ERR_FORMAT for a function that calls itself, or a call that lacks an attribute
 */
export function inlineFunctions(graph: Graph): Inlined {
  return atOnce(inlineFunctionsPaced(graph))
}

/** {@link inlineFunctions} with pauses. */
export function* inlineFunctionsPaced(graph: Graph): Paced<Inlined> {
  if (graph.functions.length === 0) return { graph, opsets: new Map() }
  const inliner = new Inliner(graph, yield* freshNamesPaced(graph))
  const inlined = { ...(yield* inliner.expandGraph(graph)), functions: [] }
  return { graph: inlined, opsets: inliner.opsets }
}

const keyOf = ({ domain, overload = '' }: { domain: string; overload?: string }, name: string): string =>
  JSON.stringify([domain, name, overload])

class Inliner {
  readonly opsets = new Map<Node, ReadonlyMap<string, number>>()
  readonly #functions: ReadonlyMap<string, GraphFunction>
  readonly #fresh: (base: string) => string
  readonly #sizes = new Map<GraphFunction, number>()
  #count = 0

  constructor(graph: Graph, fresh: (base: string) => string) {
    this.#functions = new Map(
      graph.functions.map(definition => [keyOf(definition, definition.name), withUniqueNames(definition)]),
    )
    this.#fresh = fresh
  }

  *expandGraph<G extends Subgraph>(graph: G): Paced<G> {
    // Functions that call each other twice are counted before they fill the memory.
    this.#expectFew(this.#sizeOf(graph.nodes, 0))
    const nodes: Node[] = []
    for (const node of graph.nodes) yield* this.#expand(node, nodes, undefined, { calls: 0, graphs: 0 })
    return { ...graph, nodes }
  }

  #expectFew(count: number): void {
    if (count <= maxNodes) return
    throw new SparkError('ERR_FORMAT', `the functions of the model expand to more than ${maxNodes} nodes`)
  }

  /** Nodes that these expand to, without those of graphs that a call hands to its function; all beyond the limit are one. */
  #sizeOf(nodes: readonly Node[], calls: number): number {
    let size = 0
    for (const node of nodes) {
      if (size > maxNodes) return size
      const definition = this.#functions.get(keyOf(node, node.op))
      if (!definition) {
        size++
        for (const graph of subgraphsOf(node)) size += this.#sizeOf(graph.nodes, calls)
        continue
      }
      expectShallowCalls(node, calls)
      const known = this.#sizes.get(definition) ?? this.#sizeOf(definition.nodes, calls + 1)
      this.#sizes.set(definition, known)
      size += known
    }
    return size
  }

  /** Adds what a node expands to to `nodes`. */
  *#expand(
    node: Node,
    nodes: Node[],
    opsets: ReadonlyMap<string, number> | undefined,
    depth: Depth,
  ): Paced<void> {
    yield
    const definition = this.#functions.get(keyOf(node, node.op))
    if (definition) {
      expectShallowCalls(node, depth.calls)
      const within = { ...depth, calls: depth.calls + 1 }
      for (const it of instantiate(node, definition, this.#fresh))
        yield* this.#expand(it, nodes, definition.opsets, within)
      return
    }
    const inner = yield* mapSubgraphsPaced(node, graph => this.#expandInner(node, graph, opsets, depth))
    if (opsets) this.opsets.set(inner, opsets)
    this.#expectFew(++this.#count)
    nodes.push(inner)
  }

  *#expandInner(
    node: Node,
    graph: Subgraph,
    opsets: ReadonlyMap<string, number> | undefined,
    depth: Depth,
  ): Paced<Subgraph> {
    const within = { ...depth, graphs: depth.graphs + 1 }
    if (within.graphs > maxNesting) throw nestingError(node)
    const nodes: Node[] = []
    for (const it of graph.nodes) yield* this.#expand(it, nodes, opsets, within)
    return { ...graph, nodes }
  }
}

function expectShallowCalls(node: Node, calls: number): void {
  if (calls < maxDepth) return
  const message = `the function calls itself, or functions call each other deeper than ${maxDepth}`
  throw new SparkError('ERR_FORMAT', `${describeNode(node)}: ${message}`)
}

/** A function whose branches share no names: those of a call are then unique, too. */
function withUniqueNames(definition: GraphFunction): GraphFunction {
  const { inputs, nodes } = definition
  return {
    ...definition,
    nodes: uniqueNames(makeGraph({ inputs: inputs.map(name => ({ name })), nodes })).nodes,
  }
}

/** The nodes of a function with the names and attributes of a call. */
function instantiate(call: Node, definition: GraphFunction, fresh: (base: string) => string): Node[] {
  const names = new Map<string, string>([['', '']])
  for (const [i, name] of definition.inputs.entries()) names.set(name, call.inputs[i] ?? '')
  const passed: Node[] = []
  for (const [i, name] of definition.outputs.entries()) {
    const target = call.outputs[i] ?? ''
    if (target === '') continue
    // An output that is an input as it is needs a node of its own.
    if (definition.inputs.includes(name)) {
      passed.push({
        op: 'Identity',
        domain: '',
        name: '',
        inputs: [names.get(name)!],
        outputs: [target],
        attributes: {},
      })
    } else names.set(name, target)
  }
  const given: Attributes = { ...definition.defaults, ...call.attributes }
  for (const name of definition.attributes) {
    if (!Object.hasOwn(given, name)) {
      throw new SparkError(
        'ERR_FORMAT',
        `${describeNode(call)} lacks the attribute '${name}' of its function`,
      )
    }
  }
  const prefix = call.name || call.outputs[0] || definition.name
  const rename = (name: string): string => {
    const known = names.get(name)
    if (known !== undefined) return known
    const made = fresh(`${prefix}/${name}`)
    names.set(name, made)
    return made
  }
  return [...definition.nodes.map(node => bind(node, rename, given, prefix)), ...passed]
}

function bind(node: Node, rename: (name: string) => string, given: Attributes, prefix: string): Node {
  const bindGraph = (graph: Subgraph): Subgraph => ({
    ...graph,
    inputs: graph.inputs.map(info => ({ ...info, name: rename(info.name) })),
    outputs: graph.outputs.map(info => ({ ...info, name: rename(info.name) })),
    nodes: graph.nodes.map(inner => bind(inner, rename, given, prefix)),
    initializers: new Map(Array.from(graph.initializers, ([name, constant]) => [rename(name), constant])),
    values: new Map(),
  })
  const attributes: [string, Attribute][] = Object.entries(node.attributes).flatMap(([name, attribute]) => {
    if (attribute.type !== 'reference') return [[name, attribute]]
    // A reference to an attribute that the call leaves out is as if it were not there.
    const value = Object.hasOwn(given, attribute.value) ? given[attribute.value] : undefined
    return value ? [[name, value]] : []
  })
  const bound = {
    ...node,
    name: node.name && `${prefix}/${node.name}`,
    inputs: node.inputs.map(rename),
    outputs: node.outputs.map(rename),
    attributes: Object.fromEntries(attributes),
  }
  return mapSubgraphs(bound, bindGraph)
}
