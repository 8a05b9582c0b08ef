// canonicalise.ts: the first rewrite of every model. Whatever its version, afterwards it is one graph of operators of
// the canonical opset, without functions, without Constant nodes, with a name of its own for every value, and with weights
// as products read them.
import { atOnce, eachPaced, type Paced } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { namingNode } from '../attributes.js'
import type { Constant } from '../constant.js'
import { freshNamesPaced, mapSubgraphsPaced } from '../edit.js'
import { canonicalOpset, type Graph, type Node, type Subgraph } from '../graph.js'
import { carryFacts, keepFacts } from '../kept-facts.js'
import { ShapeInference } from '../shape-inference.js'
import { expectShallow } from '../validate.js'
import { reinterpret } from './canonicalise/block-codes.js'
import { UpgradeContext, type UpgradeEntry } from './canonicalise/context.js'
import { contribUpgrades } from './canonicalise/contrib.js'
import { decompositions } from './canonicalise/decomposed.js'
import { constantValue, inputUpgrades } from './canonicalise/inputs.js'
import { semanticUpgrades } from './canonicalise/semantics.js'
import { foldLayoutsPaced } from './fold-layouts.js'
import { inlineFunctionsPaced } from './inline-functions.js'
import { uniqueNamesPaced } from './unique-names.js'

const standardUpgrades: Readonly<Record<string, UpgradeEntry>> = {
  ...inputUpgrades,
  ...semanticUpgrades,
  ...decompositions,
}

const contribDomain = 'com.microsoft'

/**
 * Brings a graph of any opset to the canonical one. Operators that came after the canonical opset stay as they are;
 * contributed operators (com.microsoft) that have a standard form get it, others stay too.
 * @throws SparkError ERR_UNSUPPORTED naming the node that has no canonical form, ERR_FORMAT for broken functions
 */
export function canonicalise(graph: Graph): Graph {
  return atOnce(canonicalisePaced(graph))
}

/** {@link canonicalise} with pauses. */
export function* canonicalisePaced(graph: Graph): Paced<Graph> {
  yield* expectShallow(graph)
  const { graph: inlined, opsets } = yield* inlineFunctionsPaced(yield* uniqueNamesPaced(graph))
  const upgrader = new Upgrader(inlined, opsets, yield* freshNamesPaced(inlined))
  const upgraded = yield* upgrader.upgradeGraph(inlined)
  const domains = [...graph.opsets].filter(([domain]) => domain !== '' && domain !== contribDomain)
  const kept = upgrader.usesContrib ? [[contribDomain, 1] as const] : []
  const canonical = { ...upgraded, opsets: new Map([['', canonicalOpset], ...domains, ...kept]) }
  upgrader.keepFacts(canonical)
  return carryFacts(canonical, yield* foldLayoutsPaced(canonical, name => upgrader.shapeOf(name)))
}

class Upgrader {
  /** Whether a contributed operator had no standard form. */
  usesContrib = false
  readonly #opsets: ReadonlyMap<string, number>
  readonly #nodeOpsets: ReadonlyMap<Node, ReadonlyMap<string, number>>
  readonly #fresh: (base: string) => string
  readonly #inference = new ShapeInference({ trustFile: true, strict: false })
  readonly #constants = new Map<string, Constant>()

  constructor(
    graph: Graph,
    nodeOpsets: ReadonlyMap<Node, ReadonlyMap<string, number>>,
    fresh: (base: string) => string,
  ) {
    this.#opsets = graph.opsets
    this.#nodeOpsets = nodeOpsets
    this.#fresh = fresh
  }

  /** Sizes of a value of the outermost graph, where all are known. */
  shapeOf(name: string): readonly number[] | undefined {
    const type = this.#inference.facts.get(name)?.type
    const shape = type?.kind === 'tensor' ? type.shape : undefined
    return shape?.every(size => typeof size === 'number') ? (shape as readonly number[]) : undefined
  }

  /** Keeps what was inferred with the graph that was made, unless nodes have inputs that do not fit together. */
  keepFacts(graph: Graph): void {
    const { facts, fits } = this.#inference
    if (fits) keepFacts(graph, { facts, trustFile: true })
  }

  *upgradeGraph<G extends Subgraph>(graph: G): Paced<G> {
    const initializers = new Map<string, Constant>()
    const define = (name: string, value: Constant): void => {
      initializers.set(name, value)
      this.#constants.set(name, value)
      this.#inference.defineConstant(name, value)
    }
    yield* eachPaced(graph.initializers, ([name, constant]) => define(name, constant))
    for (const { name, type } of graph.inputs) this.#inference.facts.set(name, { type })
    const nodes: Node[] = []
    for (const node of graph.nodes) {
      const inner = yield* mapSubgraphsPaced(node, subgraph => this.upgradeGraph(subgraph))
      const context = this.#context(node, define)
      for (const made of namingNode(node, () => this.#upgradeNode(inner, context))) {
        yield* this.#inference.inferNodePaced(made, graph)
        this.#followReshape(made)
        nodes.push(made)
      }
    }
    return { ...graph, nodes, initializers }
  }

  #context(node: Node, define: UpgradeContext['define']): UpgradeContext {
    const opset = this.#nodeOpsets.get(node)?.get(node.domain) ?? this.#opsets.get(node.domain) ?? 1
    return new UpgradeContext(opset, this.#inference.facts, {
      fresh: this.#fresh,
      define,
      constantOf: name => this.#constants.get(name),
    })
  }

  /** Bytes of codes are constant in another shape, too: tables of tokens are often those of the last layer in another shape. */
  #followReshape({ domain, op, inputs, outputs: [name = ''] }: Node): void {
    const bytes = domain === '' && op === 'Reshape' ? this.#constants.get(inputs[0] ?? '') : undefined
    const shape = bytes?.dtype === 'u8' ? this.shapeOf(name) : undefined
    if (bytes && shape && numel(shape) === bytes.count)
      this.#constants.set(name, reinterpret(bytes, 'u8', shape))
  }

  #upgradeNode(inner: Node, context: UpgradeContext): readonly Node[] {
    if (inner.domain === '' && inner.op === 'Constant') {
      if (inner.outputs.length !== 1) throw context.unsupported(inner, 'it must have one output')
      const value = constantValue(inner, context)
      if (value) {
        context.define(inner.outputs[0]!, value)
        return []
      }
    }
    if (
      inner.domain === contribDomain ||
      (inner.domain === '' && inner.op === 'SimplifiedLayerNormalization')
    ) {
      const upgrade = Object.hasOwn(contribUpgrades, inner.op) ? contribUpgrades[inner.op] : undefined
      if (upgrade) return expectOutputs(inner, upgrade(inner, context), context)
      this.usesContrib = true
      return [inner]
    }
    const entry =
      inner.domain === '' && Object.hasOwn(standardUpgrades, inner.op)
        ? standardUpgrades[inner.op]
        : undefined
    return entry && context.opset < entry.before ? entry.upgrade(inner, context) : [inner]
  }
}

/** Contributed operators may have outputs that no standard operator has. */
function expectOutputs(node: Node, made: readonly Node[], context: UpgradeContext): readonly Node[] {
  const names = new Set(made.flatMap(({ outputs }) => outputs))
  const missing = node.outputs.findIndex(name => name !== '' && !names.has(name))
  if (missing >= 0) throw context.unsupported(node, `its output ${missing} has no standard form`)
  return made
}
