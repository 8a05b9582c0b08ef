// graph-runner.ts: execution of a graph with any control flow and shapes as compiled segments, one after another, and host
// operators in between. Segments are kept for the next run with the same shapes.
import type { Precision } from '../core/config.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { type Paced, Pacer } from '../core/paced.js'
import { describeNode } from '../graph/attributes.js'
import type { Constant } from '../graph/constant.js'
import { type Graph, makeGraph, type Node, type Subgraph } from '../graph/graph.js'
import { isIf } from '../graph/rewrites/inline-branches.js'
import type { Kernels } from '../kernels/kernels.js'
import { rewriteForInference } from '../pipeline.js'
import { unknownOperator } from '../plan/compile.js'
import { loweringOf } from '../plan/lower/index.js'
import { MissingElements } from '../plan/missing-elements.js'
import { Plan } from '../plan/plan.js'
import { type Compiled, type Cut, cutBefore, neededNodes } from './cuts.js'
import { hostOperatorOf } from './host/index.js'
import { cutSegment, decisiveInputs, type SegmentInput } from './segments.js'
import { type HostTensor, type HostValue, hostConstant, hostTensor, Scope, typeOf } from './values.js'

/** Runs one graph, or one subgraph of it, on a backend. One run at a time. */
export class GraphRunner {
  /** What runs. */
  readonly graph: Subgraph
  readonly #kernels: Kernels
  readonly #mode: Precision
  readonly #constants: Map<string, Constant>
  readonly #wanted: readonly string[]
  /** Where a run starts, once the first one has; the cut is undefined when all outputs are inputs or constants. */
  #root: { readonly cut: Cut | undefined } | undefined
  readonly #inner = new Map<Subgraph, GraphRunner>()
  /** Graphs with some of the outputs, by their indices. */
  readonly #selections = new Map<string, Subgraph>()
  readonly #fusions = new Map<string, number>()
  #compileMs = 0

  /**
   * @param mode - the mode that the weights are rounded in
   * @param outer - constants of the graphs around a subgraph
   */
  constructor(
    graph: Subgraph,
    kernels: Kernels,
    mode: Precision = 'fp32',
    outer: ReadonlyMap<string, Constant> = new Map(),
  ) {
    this.graph = graph
    this.#kernels = kernels
    this.#mode = mode
    this.#constants = new Map([...outer, ...graph.initializers])
    this.#wanted = graph.outputs.map(({ name }) => name)
  }

  /** The plans made so far, those of subgraphs included. */
  get plans(): Plan[] {
    const own: Plan[] = []
    const visit = (cut: Cut | undefined): void => {
      for (const { plan, next } of cut?.variants.values() ?? []) {
        if (plan) own.push(plan)
        visit(next)
      }
    }
    visit(this.#root?.cut)
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
    const runner = new GraphRunner(graph, this.#kernels, this.#mode, this.#constants)
    this.#inner.set(graph, runner)
    return runner
  }

  /** The runner of some of the outputs, by their indices, which computes only what they need; by default of all. */
  withOutputs(indices?: readonly number[]): GraphRunner {
    if (!indices) return this
    const key = indices.join()
    const outputs = indices.map(index => this.graph.outputs[index]!)
    const graph = this.#selections.get(key) ?? { ...this.graph, outputs }
    this.#selections.set(key, graph)
    return this.inner(graph)
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
    for (let cut = await this.#start(pacer); cut; ) {
      await pacer.pause()
      const segment: Compiled = await this.#segment(cut, scope, pacer)
      if (segment.plan) await runPlan(segment.plan, scope, pacer)
      for (const node of segment.hostNodes) await this.#runOnHost(node, scope, pacer)
      cut = segment.next
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
    const start: SegmentInput = {
      nodes,
      wanted: this.#wanted,
      values,
      pinned: new Map(),
      constants: this.#constants,
      deferred: new Set(),
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
    return Plan.create(optimized, this.#kernels, { buffers, mode: this.#mode }, pacer)
  }

  /** Frees all plans. */
  dispose(): void {
    for (const plan of this.plans) plan.dispose()
    this.#root = undefined
    this.#inner.clear()
    this.#selections.clear()
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

  async #start(pacer: Pacer): Promise<Cut | undefined> {
    const constants = this.#constants
    const find = function* (graph: Subgraph): Paced<Cut | undefined> {
      return yield* cutBefore(yield* neededNodes(graph), constants)
    }
    this.#root ??= { cut: await pacer.do(find(this.graph)) }
    return this.#root.cut
  }

  async #segment(cut: Cut, scope: Scope, pacer: Pacer): Promise<Compiled> {
    const values = new Map<string, HostValue>()
    for (const name of cut.reads) {
      const value = scope.get(name)
      if (value) values.set(name, value)
    }
    const known = cut.variantFor(values)
    if (known) return known
    const segment = await this.#compileTimed(cut, values, pacer)
    cut.keep(segment, values)
    return segment
  }

  async #compileTimed(cut: Cut, values: ReadonlyMap<string, HostValue>, pacer: Pacer): Promise<Compiled> {
    const start = performance.now()
    try {
      return await this.#compile(cut, values, pacer)
    } finally {
      this.#compileMs += performance.now() - start
    }
  }

  async #plan(segment: Subgraph, pacer: Pacer): Promise<Plan> {
    const onFusions = (counts: ReadonlyMap<string, number>): void => addCounts(this.#fusions, counts)
    const graph = await rewriteForInference('compile', segment as Graph, { onFusions }, pacer)
    return Plan.create(graph, this.#kernels, { mode: this.#mode }, pacer)
  }

  async #compile(cut: Cut, values: ReadonlyMap<string, HostValue>, pacer: Pacer): Promise<Compiled> {
    const deferred = new Set<string>()
    for (;;) {
      const learned = cut.pins.size + deferred.size
      const made = await this.#attempt(cut, values, deferred, pacer)
      if (!(made instanceof SparkError)) return made
      if (cut.pins.size + deferred.size === learned) throw made
    }
  }

  /**
   * Compiles what comes first at a cut. Where elements are missing that a run can give, it adds to the pins of the cut
   * or to `deferred` what the next attempt has to know.
   * @returns what was compiled, or why it was not
   */
  async #attempt(
    cut: Cut,
    values: ReadonlyMap<string, HostValue>,
    deferred: Set<string>,
    pacer: Pacer,
  ): Promise<Compiled | SparkError> {
    const pinned = cut.pinned(values)
    const nodes = await this.#specialised(cut.nodes, values, pinned, pacer)
    const start: SegmentInput = {
      nodes,
      wanted: this.#wanted,
      values,
      pinned,
      constants: this.#constants,
      deferred,
    }
    const segment = await pacer.do(cutSegment(start))
    const decisive = await pacer.do(decisiveInputs(segment, start))
    for (const name of decisive) cut.pins.add(name)
    if (decisive.length > 0) return unsupported(segment.rest[0]!)
    if (!segment.graph && segment.hostNodes.length === 0) return unsupported(segment.rest[0]!)
    try {
      const next = await pacer.do(cutBefore(segment.rest, this.#constants))
      const plan = segment.graph && (await this.#plan(segment.graph, pacer))
      return { ...segment, plan, next }
    } catch (error) {
      if (!(error instanceof MissingElements)) throw error
      if (values.has(error.value)) cut.pins.add(error.value)
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

function unsupported(node: Node): SparkError {
  if (!loweringOf(node)) return unknownOperator(node)
  return new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: the shape of its output depends on data`)
}
