// graph-runner.ts: runs a graph whatever its control flow and shapes: compiled segments, one after another, and
// operators of the host in between. What was compiled is kept for the next run with the same shapes.
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { type Paced, Pacer } from '../core/paced.js'
import { describeNode } from '../graph/attributes.js'
import { Constant, type NumericType } from '../graph/constant.js'
import { readsOf } from '../graph/edit.js'
import { type Graph, makeGraph, type Node, type Subgraph } from '../graph/graph.js'
import { isIf } from '../graph/rewrites/inline-branches.js'
import type { FloatCompute, Kernels } from '../kernels/kernels.js'
import { rewriteForInference } from '../pipeline.js'
import { unknownOperator } from '../plan/compile.js'
import { loweringOf } from '../plan/lower/index.js'
import { MissingElements } from '../plan/missing-elements.js'
import { Plan } from '../plan/plan.js'
import { hostOperatorOf } from './host/index.js'
import { cutSegment, decisiveInputs, readsOfAll, type Segment, type Start } from './segments.js'
import { type HostTensor, type HostValue, hostConstant, hostTensor, typeOf } from './values.js'

/** Shapes and decisive elements for which the part of a graph from one place on stays compiled at once. */
const maxVariants = 16

/** Values by name during a run; those of the graphs around it are seen, too. */
export class Scope {
  readonly #values = new Map<string, HostValue>()
  readonly #outer: Scope | undefined

  /** A scope inside of another one. */
  constructor(outer?: Scope) {
    this.#outer = outer
  }

  /** A value of this graph or of one around it. */
  get(name: string): HostValue | undefined {
    return this.#values.get(name) ?? this.#outer?.get(name)
  }

  /** Adds a value. */
  set(name: string, value: HostValue): void {
    this.#values.set(name, value)
  }
}

/** A segment that is ready to run. */
interface Compiled extends Segment {
  readonly plan: Plan | undefined
  /** Where the run goes on; undefined when nothing is left. */
  readonly next: Point | undefined
}

/** A place in the run of a graph: which nodes are left. */
class Point {
  readonly nodes: readonly Node[]
  /** Values that the nodes read and do not make themselves, but for constants. */
  readonly reads: readonly string[]
  /** Values whose elements, not only whose shapes, decide about what is compiled. */
  readonly pins = new Set<string>()
  /** By shapes and pinned elements, least recently used first. */
  readonly variants = new Map<string, Compiled>()
  /** The key of the last one that was used. */
  latest: string | undefined

  constructor(nodes: readonly Node[], reads: readonly string[]) {
    this.nodes = nodes
    this.reads = reads
  }
}

/** The place where these nodes are left; undefined when there are none. */
function* pointOf(
  nodes: readonly Node[],
  constants: ReadonlyMap<string, Constant>,
): Paced<Point | undefined> {
  if (nodes.length === 0) return undefined
  const reads = yield* readsOfAll(nodes)
  for (const { outputs } of nodes) {
    for (const name of outputs) reads.delete(name)
    yield
  }
  const own: string[] = []
  for (const name of reads) {
    if (!constants.has(name)) own.push(name)
    yield
  }
  return new Point(nodes, own)
}

/** Runs one graph, or one subgraph of it, on a backend. One run at a time. */
export class GraphRunner {
  /** What runs. */
  readonly graph: Subgraph
  readonly #kernels: Kernels
  readonly #compute: FloatCompute
  readonly #constants: Map<string, Constant>
  readonly #wanted: readonly string[]
  /** Where a run starts, once the first one has; its point is undefined when all outputs are inputs or constants. */
  #root: { readonly point: Point | undefined } | undefined
  readonly #inner = new Map<Subgraph, GraphRunner>()
  readonly #fusions = new Map<string, number>()
  #compileMs = 0

  /**
   * @param compute - what products of two values are formed of
   * @param outer - constants of the graphs around a subgraph
   */
  constructor(
    graph: Subgraph,
    kernels: Kernels,
    compute: FloatCompute = 'f32',
    outer: ReadonlyMap<string, Constant> = new Map(),
  ) {
    this.graph = graph
    this.#kernels = kernels
    this.#compute = compute
    this.#constants = new Map([...outer, ...graph.initializers])
    this.#wanted = graph.outputs.map(({ name }) => name)
  }

  /** The plans made so far, those of subgraphs included. */
  get plans(): Plan[] {
    const own: Plan[] = []
    const visit = (point: Point | undefined): void => {
      for (const { plan, next } of point?.variants.values() ?? []) {
        if (plan) own.push(plan)
        visit(next)
      }
    }
    visit(this.#root?.point)
    return [...own, ...[...this.#inner.values()].flatMap(runner => runner.plans)]
  }

  /** Milliseconds that compilation has taken so far, that of subgraphs included. */
  get compileMs(): number {
    return [...this.#inner.values()].reduce((sum, { compileMs }) => sum + compileMs, this.#compileMs)
  }

  /** How often each fusion was made, those in subgraphs included. */
  get fusions(): Map<string, number> {
    const all = new Map(this.#fusions)
    for (const { fusions } of this.#inner.values()) addCounts(all, fusions)
    return all
  }

  /** The runner of a subgraph of one of the nodes. */
  inner(graph: Subgraph): GraphRunner {
    const known = this.#inner.get(graph)
    if (known) return known
    const runner = new GraphRunner(graph, this.#kernels, this.#compute, this.#constants)
    this.#inner.set(graph, runner)
    return runner
  }

  /**
   * Runs the graph.
   * @param inputs - as many as the graph has
   * @param pacer - lets the event loop turn, and ends the run when its signal is aborted
   * @param outer - values of the graphs around a subgraph
   * @returns the outputs; tensors may lie in memory that the next run overwrites
   * @throws SparkError as {@link Plan.create} and {@link Plan.run}; the reason of the signal when it is aborted
   */
  async run(inputs: readonly HostValue[], pacer = new Pacer(), outer?: Scope): Promise<HostValue[]> {
    const scope = new Scope(outer)
    this.graph.inputs.forEach(({ name }, i) => {
      scope.set(name, inputs[i]!)
    })
    for (let point = await this.#start(pacer); point; ) {
      await pacer.pause()
      const segment: Compiled = await this.#segment(point, scope, pacer)
      if (segment.plan) await runPlan(segment.plan, scope, pacer)
      for (const node of segment.hostNodes) await this.#runOnHost(node, scope, pacer)
      point = segment.next
    }
    return this.graph.outputs.map(({ name }) => this.#value(name, scope)!)
  }

  /**
   * A plan of the whole graph on arrays of the caller.
   * @param inputs - as many as the graph has
   * @param buffers - arrays for inputs and outputs by name; without one an input or output gets new memory
   * @throws SparkError ERR_UNSUPPORTED when the graph is more than one plan, and as {@link Plan.create}
   */
  async bind(inputs: readonly HostTensor[], buffers: ReadonlyMap<string, ElementArray>): Promise<Plan> {
    const pacer = new Pacer()
    const values = new Map(this.graph.inputs.map(({ name }, i) => [name, inputs[i]!]))
    const root = await this.#start(pacer)
    const nodes = await this.#specialised(root?.nodes ?? [], values, new Map(), pacer)
    const start: Start = {
      ...{ nodes, wanted: this.#wanted, values, pinned: new Map() },
      ...{ constants: this.#constants, deferred: new Set() },
    }
    const { graph, rest, hostNodes } = await pacer.do(cutSegment(start))
    const [left] = [...hostNodes, ...rest]
    if (left) {
      const why = 'it runs between plans, and only a model of one plan can be bound: use run'
      throw new SparkError('ERR_UNSUPPORTED', `${describeNode(left)}: ${why}`)
    }
    const made = new Set(graph?.outputs.map(({ name }) => name))
    const unmade = this.#wanted.find(name => !made.has(name))
    if (!graph || unmade !== undefined) {
      const why = 'is an input or a constant, and has no memory of its own: use run'
      throw new SparkError('ERR_UNSUPPORTED', `output '${unmade}' ${why}`)
    }
    const optimized = await rewriteForInference('compile', graph as Graph, {}, pacer)
    return Plan.create(optimized, this.#kernels, { buffers, compute: this.#compute }, pacer)
  }

  /** Frees all plans. */
  dispose(): void {
    for (const plan of this.plans) plan.dispose()
    this.#root = undefined
    this.#inner.clear()
  }

  #value(name: string, scope: Scope): HostValue | undefined {
    const constant = this.#constants.get(name)
    return constant ? hostConstant(constant) : scope.get(name)
  }

  async #runOnHost(node: Node, scope: Scope, pacer: Pacer): Promise<void> {
    const inputs = node.inputs.map(name => (name === '' ? undefined : this.#value(name, scope)))
    const run = (graph: Subgraph, values: readonly HostValue[]): Promise<HostValue[]> =>
      this.inner(graph).run(values, pacer, scope)
    const outputs = await hostOperatorOf(node)!({ node, inputs, run })
    node.outputs.forEach((name, i) => {
      if (name === '') return
      const value = outputs[i]
      if (!value) throw new SparkError('ERR_FORMAT', `${describeNode(node)}: it makes no output ${i}`)
      scope.set(name, value)
    })
  }

  async #start(pacer: Pacer): Promise<Point | undefined> {
    const constants = this.#constants
    const find = function* (graph: Subgraph): Paced<Point | undefined> {
      return yield* pointOf(yield* neededNodes(graph), constants)
    }
    this.#root ??= { point: await pacer.do(find(this.graph)) }
    return this.#root.point
  }

  async #segment(point: Point, scope: Scope, pacer: Pacer): Promise<Compiled> {
    const values = new Map<string, HostValue>()
    for (const name of point.reads) {
      const value = scope.get(name)
      if (value) values.set(name, value)
    }
    const known = keyOf(values, point.pins)
    if (known === point.latest) return point.variants.get(known)!
    const segment = point.variants.get(known) ?? (await this.#compileTimed(point, values, pacer))
    const key = keyOf(values, point.pins)
    point.latest = key
    point.variants.delete(key)
    point.variants.set(key, segment)
    if (point.variants.size > maxVariants) {
      const [oldest] = point.variants.keys()
      disposeFrom(point.variants.get(oldest!))
      point.variants.delete(oldest!)
    }
    return segment
  }

  async #compileTimed(point: Point, values: ReadonlyMap<string, HostValue>, pacer: Pacer): Promise<Compiled> {
    const start = performance.now()
    try {
      return await this.#compile(point, values, pacer)
    } finally {
      this.#compileMs += performance.now() - start
    }
  }

  async #plan(segment: Subgraph, pacer: Pacer): Promise<Plan> {
    const onFusions = (counts: ReadonlyMap<string, number>): void => addCounts(this.#fusions, counts)
    const graph = await rewriteForInference('compile', segment as Graph, { onFusions }, pacer)
    return Plan.create(graph, this.#kernels, { compute: this.#compute }, pacer)
  }

  async #compile(point: Point, values: ReadonlyMap<string, HostValue>, pacer: Pacer): Promise<Compiled> {
    const deferred = new Set<string>()
    for (;;) {
      const learned = point.pins.size + deferred.size
      const made = await this.#attempt(point, values, deferred, pacer)
      if (!(made instanceof SparkError)) return made
      if (point.pins.size + deferred.size === learned) throw made
    }
  }

  /**
   * Compiles what comes first at a point. Where elements are missing that a run can give, it adds to the pins of the point
   * or to `deferred` what the next attempt has to know.
   * @returns what was compiled, or why it was not
   */
  async #attempt(
    point: Point,
    values: ReadonlyMap<string, HostValue>,
    deferred: Set<string>,
    pacer: Pacer,
  ): Promise<Compiled | SparkError> {
    const pinned = pinnedConstants(values, point.pins)
    const nodes = await this.#specialised(point.nodes, values, pinned, pacer)
    const start: Start = {
      ...{ nodes, wanted: this.#wanted, values, pinned },
      ...{ constants: this.#constants, deferred },
    }
    const segment = await pacer.do(cutSegment(start))
    const decisive = await pacer.do(decisiveInputs(segment, start))
    for (const name of decisive) point.pins.add(name)
    if (decisive.length > 0) return stuck(segment.rest[0]!)
    if (!segment.graph && segment.hostNodes.length === 0) return stuck(segment.rest[0]!)
    try {
      const next = await pacer.do(pointOf(segment.rest, this.#constants))
      const plan = segment.graph && (await this.#plan(segment.graph, pacer))
      return { ...segment, plan, next }
    } catch (error) {
      if (!(error instanceof MissingElements)) throw error
      if (values.has(error.value)) point.pins.add(error.value)
      else for (const name of error.node.outputs) if (name !== '') deferred.add(name)
      return error
    }
  }

  /** The nodes that are left of these for the given values. */
  async #specialised(
    nodes: readonly Node[],
    values: ReadonlyMap<string, HostValue>,
    pinned: ReadonlyMap<string, Constant>,
    pacer: Pacer,
  ): Promise<readonly Node[]> {
    if (!nodes.some(isIf)) return nodes
    const inputs = [...values].flatMap(([name, value]) => {
      const type = pinned.has(name) ? undefined : typeOf(value)
      return type ? [{ name, type }] : []
    })
    const constants = new Map([...this.#constants, ...pinned])
    const graph = makeGraph({ inputs, nodes, initializers: constants })
    const specialised = await rewriteForInference('specialise', graph, {}, pacer)
    for (const [name, constant] of specialised.initializers)
      if (!constants.has(name)) this.#constants.set(name, constant)
    return specialised.nodes
  }
}

function addCounts(counts: Map<string, number>, more: ReadonlyMap<string, number>): void {
  for (const [name, count] of more) counts.set(name, (counts.get(name) ?? 0) + count)
}

async function runPlan(plan: Plan, scope: Scope, { signal }: Pacer): Promise<void> {
  const feeds = plan.inputs.map(({ name }) => [name, (scope.get(name) as HostTensor).data as never] as const)
  const results = await plan.run(Object.fromEntries(feeds), signal)
  for (const { name, dtype, shape } of plan.outputs) scope.set(name, hostTensor(dtype, shape, results[name]!))
}

function pinnedConstants(
  values: ReadonlyMap<string, HostValue>,
  pins: ReadonlySet<string>,
): Map<string, Constant> {
  const constants = new Map<string, Constant>()
  for (const name of pins) {
    const value = values.get(name)
    if (value?.kind !== 'tensor') continue
    const data = value.data.slice() as Float32Array
    constants.set(name, Constant.from(value.dtype as NumericType, value.shape, data))
  }
  return constants
}

/** What a compiled segment depends on. */
function keyOf(values: ReadonlyMap<string, HostValue>, pins: ReadonlySet<string>): string {
  let key = ''
  for (const [name, value] of values) {
    if (value.kind !== 'tensor') key += `${value.kind};`
    else key += `${value.dtype}[${value.shape}]${pins.has(name) ? `=${value.data}` : ''};`
  }
  return key
}

function disposeFrom(segment: Compiled | undefined): void {
  segment?.plan?.dispose()
  for (const inner of segment?.next?.variants.values() ?? []) disposeFrom(inner)
}

/** The nodes that an output depends on. */
function* neededNodes({ nodes, outputs }: Subgraph): Paced<Node[]> {
  const needed = new Set(outputs.map(({ name }) => name))
  const kept: Node[] = []
  for (let i = nodes.length - 1; i >= 0; i--) {
    yield
    const node = nodes[i]!
    if (!node.outputs.some(name => needed.has(name))) continue
    for (const name of readsOf(node)) needed.add(name)
    kept.push(node)
  }
  return kept.reverse()
}

function stuck(node: Node): SparkError {
  if (!loweringOf(node)) return unknownOperator(node)
  return new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: the shape of its output depends on data`)
}
