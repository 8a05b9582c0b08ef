// pattern.ts: how a fusion sees a graph, and how several nodes become one.

import { isHalf } from '../../../core/dtype.js'
import { eachPaced, type Paced } from '../../../core/paced.js'
import { isSize, type Size, sameSize, sameSizes } from '../../../core/size.js'
import { decode, encode } from '../../../precision/casts.js'
import type { Constant } from '../../constant.js'
import { freshNamesPaced, isRandom, readsOf } from '../../edit.js'
import { type Graph, type Node, type SymbolicDimension, sparkDomain, type ValueType } from '../../graph.js'
import { keepFacts, keptFacts } from '../../kept-facts.js'
import { inferFactsPaced, isStatic, ShapeInference } from '../../shape-inference.js'

import { removeDeadPaced } from '../remove-dead.js'

/** What takes the place of a node and of the nodes in front of it. */
export interface Fusion {
  /** They make what the node made. */
  readonly nodes: readonly Node[]
  /** Nodes whose values nobody else may read. */
  readonly absorbed: readonly Node[]
}

/** Looks whether `node` is the last one of a pattern. */
export type Match = (node: Node, view: GraphView) => Fusion | undefined

/** A graph while its nodes are fused. */
export class GraphView {
  /** A maker of names that no value has yet. */
  readonly fresh: (base: string) => string
  /** Constants, those that fusions added included. */
  readonly initializers = new Map<string, Constant>()
  /** What it sees. */
  readonly graph: Graph
  readonly #inference: ShapeInference
  readonly #trustFile: boolean
  readonly #producers = new Map<string, Node>()
  readonly #readers = new Map<string, Set<Node>>()
  readonly #outputs: ReadonlySet<string>
  readonly #constants = new Set<string>()

  private constructor(
    graph: Graph,
    inference: ShapeInference,
    trustFile: boolean,
    fresh: (base: string) => string,
  ) {
    this.graph = graph
    this.#inference = inference
    this.#trustFile = trustFile
    this.fresh = fresh
    this.#outputs = new Set([...graph.outputs.map(({ name }) => name), ...(graph.updates?.values() ?? [])])
  }

  /**
   * Looks at a canonical graph.
   * @param origin - a graph whose facts are those of `graph`
   */
  static *of(graph: Graph, origin = graph): Paced<GraphView> {
    const known = keptFacts(origin) ?? { facts: yield* inferFactsPaced(graph), trustFile: true }
    const inference = new ShapeInference({ ...known, strict: true })
    return yield* new GraphView(graph, inference, known.trustFile, yield* freshNamesPaced(graph)).#filled()
  }

  *#filled(): Paced<GraphView> {
    for (const [name, constant] of this.graph.initializers) {
      this.initializers.set(name, constant)
      if (!this.graph.updates?.has(name)) this.#constants.add(name)
      yield
    }
    yield* eachPaced(this.graph.nodes, node => this.add(node))
    return this
  }

  /** The graph, which keeps the facts that are known here; it is looked at no more. */
  done(): Graph {
    keepFacts(this.graph, { facts: this.#inference.facts, trustFile: this.#trustFile })
    return this.graph
  }

  /** The node of the ONNX standard that makes a value, where it is one of `ops`. */
  producer(name: string | undefined, ...ops: readonly string[]): Node | undefined {
    const node = this.#producers.get(name ?? '')
    return node?.domain === '' && ops.includes(node.op) ? node : undefined
  }

  /** The node of our own that makes a value, where it is `op`. */
  fused(name: string | undefined, op: string): Node | undefined {
    const node = this.#producers.get(name ?? '')
    return node?.domain === sparkDomain && node.op === op ? node : undefined
  }

  /** The sizes of a value, where all are known. */
  shape(name: string | undefined): readonly Size[] | undefined {
    const constant = this.initializers.get(name ?? '')
    if (constant) return constant.shape
    const type = this.#inference.facts.get(name ?? '')?.type
    return type?.kind === 'tensor' && isStatic(type) ? (type.shape as readonly Size[]) : undefined
  }

  /** Whether a value depends on constants only. */
  isConstant(name: string | undefined): boolean {
    return this.#constants.has(name ?? '')
  }

  /** The only element of a constant of f32, f16 or bf16. */
  scalar(name: string | undefined): number | undefined {
    const constant = this.isConstant(name) ? this.initializers.get(name!) : undefined
    if (constant?.count !== 1) return undefined
    const { dtype, data } = constant
    if (isHalf(dtype)) return decode(data as Uint16Array, dtype)[0]
    return dtype === 'f32' ? (data[0] as number) : undefined
  }

  /** Whether a value is the constant `value`, as f32, f16 or bf16 would round it. */
  isScalar(name: string | undefined, value: number): boolean {
    const given = this.scalar(name)
    if (given === undefined) return false
    const exact = Float32Array.of(value)
    const rounded = (['f16', 'bf16'] as const).some(dtype => decode(encode(exact, dtype), dtype)[0] === given)
    return rounded || Math.abs(given - value) <= 1e-6 * Math.abs(value)
  }

  /** The elements of a constant of integers. */
  integers(name: string | undefined): number[] | undefined {
    const constant = this.isConstant(name) ? this.initializers.get(name!) : undefined
    return constant?.dtype === 'i64' ? constant.integers() : undefined
  }

  /** Whether only `node` and the absorbed ones read what the absorbed ones make. */
  allows(node: Node, { absorbed }: Fusion): boolean {
    const inside = new Set([node, ...absorbed])
    return absorbed.every(({ outputs }) =>
      outputs.every(
        name =>
          !this.#outputs.has(name) &&
          [...(this.#readers.get(name) ?? [])].every(reader => inside.has(reader)),
      ),
    )
  }

  /**
   * Infers the types of what a fusion makes; whether `node` made the same. A constant of one element may have given it
   * more dimensions than the fused operator knows of.
   */
  keepsShapes({ outputs }: Node, { nodes }: Fusion): boolean {
    const { facts } = this.#inference
    const before = outputs.map(name => facts.get(name) ?? {})
    for (const next of nodes) this.#infer(next)
    const same = outputs.every((name, i) => mayBeEqual(before[i]!.type, facts.get(name)?.type))
    if (!same) for (const [i, name] of outputs.entries()) facts.set(name, before[i]!)
    return same
  }

  #infer(node: Node): void {
    for (const name of node.inputs) {
      const constant = this.#inference.facts.has(name) ? undefined : this.initializers.get(name)
      if (constant) this.#inference.defineConstant(name, constant)
    }
    this.#inference.inferNode(node, this.graph)
  }

  /** Adds a constant that a fusion made. */
  define(name: string, value: Constant): void {
    this.initializers.set(name, value)
    this.#constants.add(name)
  }

  /** Adds a node of the graph, or one that a fusion made. */
  add(node: Node): void {
    const reads = readsOf(node)
    for (const name of node.outputs) if (name !== '') this.#producers.set(name, node)
    for (const name of reads) {
      const readers = this.#readers.get(name)
      if (readers) readers.add(node)
      else this.#readers.set(name, new Set([node]))
    }
    const fixed = reads.length > 0 && !isRandom(node)
    if (!fixed || !reads.every(name => this.#constants.has(name))) return
    for (const name of node.outputs) this.#constants.add(name)
  }

  /** Takes a node off that a fusion replaced. */
  remove(node: Node): void {
    for (const name of readsOf(node)) this.#readers.get(name)?.delete(node)
  }

  /** A look at the graph with other nodes, whose types this one has inferred. */
  *withNodes(nodes: readonly Node[]): Paced<GraphView> {
    const { opsets } = this.graph
    const own = nodes.some(({ domain }) => domain === sparkDomain)
    const graph = yield* removeDeadPaced({
      ...this.graph,
      nodes,
      initializers: this.initializers,
      opsets: own ? new Map([...opsets, [sparkDomain, 1]]) : opsets,
    })
    return yield* new GraphView(graph, this.#inference, this.#trustFile, this.fresh).#filled()
  }
}

/**
 * Replaces each node that `match` takes for the last one of a pattern, from the first to the last; what one fusion made
 * may be a part of the next.
 * @param view - looks at the graph
 * @returns a look at the new graph; the same where nothing fits
 */
export function* fuse(view: GraphView, match: Match): Paced<{ view: GraphView; count: number }> {
  const gone = new Set<Node>()
  let count = 0
  const nodes: Node[] = []
  for (const node of view.graph.nodes) {
    yield
    const fusion = match(node, view)
    if (!fusion || !view.allows(node, fusion) || !view.keepsShapes(node, fusion)) {
      nodes.push(node)
      continue
    }
    for (const old of [node, ...fusion.absorbed]) {
      gone.add(old)
      view.remove(old)
    }
    for (const next of fusion.nodes) view.add(next)
    for (const made of fusion.nodes) nodes.push(made)
    count++
  }
  if (count === 0) return { view, count }
  return { view: yield* view.withNodes(nodes.filter(node => !gone.has(node))), count }
}

/** Whether two types have no dimension in which they are known to differ. */
function mayBeEqual(a: ValueType | undefined, b: ValueType | undefined): boolean {
  if (a?.kind !== 'tensor' || b?.kind !== 'tensor' || !a.shape || !b.shape) return true
  const sizes = b.shape
  const differs = (size: SymbolicDimension, i: number): boolean =>
    isSize(size) && isSize(sizes[i]) && !sameSize(size, sizes[i])
  return a.shape.length === sizes.length && !a.shape.some(differs)
}

/** The two inputs of a node in both orders. */
export function pairs(node: Node | undefined): (readonly [string, string])[] {
  const [a, b] = node?.inputs ?? []
  return a === undefined || b === undefined
    ? []
    : [
        [a, b],
        [b, a],
      ]
}

/** Whether two shapes are known and equal. */
export function sameShape(a: readonly Size[] | undefined, b: readonly Size[] | undefined): boolean {
  return a !== undefined && b !== undefined && sameSizes(a, b)
}
