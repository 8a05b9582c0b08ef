// inline-functions.ts: replaces calls of a model's own functions by the nodes of their bodies.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import { freshNames, mapSubgraphs } from '../edit.js'
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
  if (graph.functions.length === 0) return { graph, opsets: new Map() }
  const inliner = new Inliner(graph)
  const inlined = { ...inliner.expandGraph(graph), functions: [] }
  return { graph: inlined, opsets: inliner.opsets }
}

const keyOf = ({ domain, overload = '' }: { domain: string; overload?: string }, name: string): string =>
  JSON.stringify([domain, name, overload])

class Inliner {
  readonly opsets = new Map<Node, ReadonlyMap<string, number>>()
  readonly #functions: ReadonlyMap<string, GraphFunction>
  readonly #fresh: (base: string) => string
  #count = 0

  constructor(graph: Graph) {
    this.#functions = new Map(
      graph.functions.map(definition => [keyOf(definition, definition.name), withUniqueNames(definition)]),
    )
    this.#fresh = freshNames(graph)
  }

  expandGraph<G extends Subgraph>(graph: G): G {
    return {
      ...graph,
      nodes: graph.nodes.flatMap(node => this.#expandNode(node, undefined, { calls: 0, graphs: 0 })),
    }
  }

  #expandNode(node: Node, opsets: ReadonlyMap<string, number> | undefined, depth: Depth): Node[] {
    const definition = this.#functions.get(keyOf(node, node.op))
    if (!definition) {
      const within = { ...depth, graphs: depth.graphs + 1 }
      const inner = mapSubgraphs(node, graph => {
        if (within.graphs > maxNesting) throw nestingError(node)
        return { ...graph, nodes: graph.nodes.flatMap(it => this.#expandNode(it, opsets, within)) }
      })
      if (opsets) this.opsets.set(inner, opsets)
      if (++this.#count > maxNodes) {
        throw new SparkError('ERR_FORMAT', `the functions of the model expand to more than ${maxNodes} nodes`)
      }
      return [inner]
    }
    if (depth.calls >= maxDepth) {
      const message = `the function calls itself, or functions call each other deeper than ${maxDepth}`
      throw new SparkError('ERR_FORMAT', `${describeNode(node)}: ${message}`)
    }
    const body = instantiate(node, definition, this.#fresh)
    return body.flatMap(it => this.#expandNode(it, definition.opsets, { ...depth, calls: depth.calls + 1 }))
  }
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
