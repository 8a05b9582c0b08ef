// graph-runner.ts: execution of a graph with any control flow and shapes as compiled segments, one after another, and host
// operators in between. Segments are kept for the next run with the same shapes.
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { type Paced, Pacer } from '../core/paced.js'
import { fixedSizes, type SizeValues } from '../core/size-scope.js'
import { describeNode } from '../graph/attributes.js'
import type { Constant } from '../graph/constant.js'
import { type Graph, makeGraph, type Node, type Subgraph } from '../graph/graph.js'
import { isIf } from '../graph/rewrites/inline-branches.js'
import { type Fact, inferFactsPaced } from '../graph/shape-inference.js'
import type { Kernels } from '../kernels/kernels.js'
import { rewriteForInference } from '../pipeline.js'
import { unknownOperator } from '../plan/compile.js'
import { loweringOf } from '../plan/lower/index.js'
import { MissingElements } from '../plan/missing-elements.js'
import { Plan, type PlanOptions, PlanTemplate } from '../plan/plan.js'
import { type Bound, type Compiled, type Cut, cutBefore, neededNodes } from './cuts.js'
import { hostOperatorOf } from './host/index.js'
import { ModelState } from './model-state.js'
import { PlanCache } from './plan-cache.js'
import { cutSegment, decisiveInputs, type SegmentInput } from './segments.js'
import { statePlan, statesIn } from './state-plans.js'
import { SymbolicValues } from './symbolic-values.js'
import { type HostTensor, type HostValue, hostConstant, hostTensor, Scope, typeOf } from './values.js'

/** How segments are compiled. */
export type CompileSettings = Pick<PlanOptions, 'mode' | 'memory' | 'store'>

/** Runs one graph, or one subgraph of it, on a backend. One run at a time. */
export class GraphRunner {
  /** What runs. */
  readonly graph: Subgraph
  readonly #kernels: Kernels
  readonly #settings: CompileSettings
  readonly #constants: Map<string, Constant>
  readonly #wanted: readonly string[]
  /** Where a run starts, once the first one has; the cut is undefined when all outputs are inputs or constants. */
  #root: { readonly cut: Cut | undefined } | undefined
  readonly #inner = new Map<Subgraph, GraphRunner>()
  /** Graphs with some of the outputs, by their indices. */
  readonly #selections = new Map<string, Subgraph>()
  readonly #fusions = new Map<string, number>()
  readonly #cache: PlanCache
  #facts: ReadonlyMap<string, Fact> | undefined
  #compileMs = 0

  /**
   * @param settings - the mode that the weights are rounded in, how much memory they may take, and where they are kept
   * @param outer - constants of the graphs around a subgraph
   * @param cache - what keeps the plans
   */
  constructor(
    graph: Subgraph,
    kernels: Kernels,
    settings: CompileSettings = {},
    outer: ReadonlyMap<string, Constant> = new Map(),
    cache = new PlanCache(),
  ) {
    this.graph = graph
    this.#kernels = kernels
    this.#settings = settings
    this.#cache = cache
    this.#constants = new Map([...outer, ...graph.initializers])
    this.#wanted = graph.outputs.map(({ name }) => name)
  }

  /** The plans made so far, those of subgraphs included. */
  get plans(): Plan[] {
    const own: Plan[] = []
    const visit = (cut: Cut | undefined): void => {
      for (const { plan } of cut?.bound ?? []) if (plan) own.push(plan)
      for (const { next } of cut?.variants ?? []) visit(next)
    }
    visit(this.#root?.cut)
    return [...own, ...[...this.#inner.values()].flatMap(runner => runner.plans)]
  }

  /** The plans that the last run used, those of subgraphs included. */
  get ran(): readonly Plan[] {
    return this.#cache.ran
  }

  /** How many compilations are kept, those of subgraphs included. */
  get compilations(): number {
    const count = (cut: Cut | undefined): number =>
      [...(cut?.variants ?? [])].reduce((sum, { next }) => sum + 1 + count(next), 0)
    const inner = [...this.#inner.values()].reduce((sum, { compilations }) => sum + compilations, 0)
    return count(this.#root?.cut) + inner
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
    const runner = new GraphRunner(graph, this.#kernels, this.#settings, this.#constants, this.#cache)
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
    if (!outer) this.#cache.startRun()
    const scope = new Scope(outer)
    this.graph.inputs.forEach(({ name }, i) => {
      scope.set(name, inputs[i]!)
    })
    for (let cut = await this.#start(pacer); cut; ) {
      await pacer.pause()
      const segment: Bound = await this.#segment(cut, scope, pacer)
      if (segment.plan) {
        this.#cache.noteRun(segment.plan)
        await runPlan(segment.plan, scope, pacer)
      }
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
    const facts = new Map([...values].map(([name, value]) => [name, { type: typeOf(value) }]))
    const nodes = await this.#specialised(root?.nodes ?? [], facts, new Map(), pacer)
    const start: SegmentInput = {
      nodes,
      wanted: this.#wanted,
      values,
      facts,
      pinned: new Map(),
      states: new Map(),
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
    const optimized = await rewriteForInference('compile', graph, {}, pacer)
    return Plan.create(optimized, this.#kernels, { ...this.#settings, buffers }, pacer)
  }

  /** Frees the plans that are bound and their arena; what was compiled stays. */
  trim(): void {
    this.#cache.trim()
  }

  /** Frees all plans. */
  dispose(): void {
    for (const runner of this.#inner.values()) runner.dispose()
    this.#root?.cut?.dispose()
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
    const [constants, cache] = [this.#constants, this.#cache]
    const find = function* (graph: Subgraph): Paced<Cut | undefined> {
      return yield* cutBefore(yield* neededNodes(graph), constants, cache)
    }
    this.#root ??= { cut: await pacer.do(find(this.graph)) }
    return this.#root.cut
  }

  /** What comes first at a cut, for the values of this run. */
  async #segment(cut: Cut, scope: Scope, pacer: Pacer): Promise<Bound> {
    const values = new Map<string, HostValue>()
    for (const name of cut.reads) {
      const value = scope.get(name)
      if (value) values.set(name, value)
    }
    const hasStates = [...values.values()].some(value => value instanceof ModelState)
    const known = hasStates ? undefined : cut.boundTo(values)
    if (known) return known
    const { compiled, sizes } = cut.variantFor(values) ?? (await this.#compileTimed(cut, values, pacer))
    const { arena } = this.#cache
    const states = statesIn(compiled, values)
    if (states.size > 0) {
      const plan = await statePlan(compiled, values, states, sizes, arena, pacer)
      for (const state of states.values()) scope.set(state.pair.output, state)
      return { ...compiled, plan }
    }
    const copied = hasStates ? cut.boundTo(values) : undefined
    if (copied) return copied
    const used = compiled.symbols.isOpen ? sizes : fixedSizes
    const { template } = compiled
    const over = template && this.#cache.take(template)
    const bound = { ...compiled, plan: await template?.bind(used, pacer, { arena, over }) }
    cut.keepBound(bound, values)
    return bound
  }

  async #compileTimed(
    cut: Cut,
    values: ReadonlyMap<string, HostValue>,
    pacer: Pacer,
  ): Promise<{ compiled: Compiled; sizes: SizeValues }> {
    const start = performance.now()
    try {
      const compiled = await this.#compile(cut, values, pacer)
      cut.keep(compiled)
      return { compiled, sizes: compiled.symbols.match(values)! }
    } finally {
      this.#compileMs += performance.now() - start
    }
  }

  async #template(
    segment: Graph,
    symbolicStates: SymbolicValues['states'],
    pacer: Pacer,
  ): Promise<PlanTemplate> {
    const onFusions = (counts: ReadonlyMap<string, number>): void => addCounts(this.#fusions, counts)
    const graph = await rewriteForInference('compile', segment, { onFusions }, pacer)
    const states = new Map([...symbolicStates].filter(([name]) => graph.updates?.has(name)))
    return PlanTemplate.compile(graph, this.#kernels, { ...this.#settings, states }, pacer)
  }

  /** Whether the graph itself says how large a value is along an axis. */
  async #fixedSizes(pacer: Pacer): Promise<(name: string, axis: number, size: number) => boolean> {
    this.#facts ??= await pacer.do(inferFactsPaced(this.graph))
    const facts = this.#facts
    return (name, axis, size) => {
      const type = facts.get(name)?.type
      return type?.kind === 'tensor' && type.shape?.[axis] === size
    }
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
    const symbols = new SymbolicValues(values, cut.pins, await this.#fixedSizes(pacer))
    const { facts, states, constants: pinned } = symbols
    const outputs = [...states.keys()].map(
      name => [name, (values.get(name) as ModelState).pair.output] as const,
    )
    const nodes = await this.#specialised(cut.nodes, facts, pinned, pacer)
    const start: SegmentInput = {
      nodes,
      wanted: this.#wanted,
      values,
      facts,
      pinned,
      states: new Map(outputs),
      constants: this.#constants,
      deferred,
    }
    const segment = await pacer.do(cutSegment(start))
    const decisive = await pacer.do(decisiveInputs(segment, start))
    for (const name of decisive) cut.pins.add(name)
    if (decisive.length > 0) return unsupported(segment.rest[0]!)
    if (!segment.graph && segment.hostNodes.length === 0) return unsupported(segment.rest[0]!)
    try {
      const next = await pacer.do(cutBefore(segment.rest, this.#constants, this.#cache))
      const template = segment.graph && (await this.#template(segment.graph, states, pacer))
      return { ...segment, symbols, template, next }
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
    facts: ReadonlyMap<string, Fact>,
    pinned: ReadonlyMap<string, Constant>,
    pacer: Pacer,
  ): Promise<readonly Node[]> {
    if (!nodes.some(isIf)) return nodes
    const inputs = [...facts].flatMap(([name, { type }]) =>
      type && !pinned.has(name) ? [{ name, type }] : [],
    )
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
