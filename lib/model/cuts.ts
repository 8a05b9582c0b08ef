// cuts.ts: cuts between the segments of a graph, and what was compiled for each of them.
import type { Paced } from '../core/paced.js'
import type { SizeValues } from '../core/size-scope.js'
import type { Constant } from '../graph/constant.js'
import { readsOf } from '../graph/edit.js'
import type { Node, Subgraph } from '../graph/graph.js'
import type { Plan, PlanTemplate } from '../plan/plan.js'
import { ModelState } from './model-state.js'
import type { PlanCache } from './plan-cache.js'
import { readsOfAll, type Segment } from './segments.js'
import type { SymbolicValues } from './symbolic-values.js'
import type { HostValue } from './values.js'

/** Compilations of the part of a graph from one cut on that are kept: guards fail where sizes behave in another way. */
const maxVariants = 16

/** A segment that is compiled for all sizes for which its guards hold. */
export interface Compiled extends Segment {
  /** What it was compiled for. */
  readonly symbols: SymbolicValues
  /** Undefined when only the host runs. */
  readonly template: PlanTemplate | undefined
  /** Where the run goes on; undefined when nothing is left. */
  readonly next: Cut | undefined
}

/** A segment that is ready to run. */
export interface Bound extends Compiled {
  readonly plan: Plan | undefined
}

/** A cut in the run of a graph, where a segment begins, and what was compiled for it. */
export class Cut {
  readonly nodes: readonly Node[]
  /** Values that the nodes read and do not make themselves, but for constants. */
  readonly reads: readonly string[]
  /** Values whose elements, not only whose shapes, decide about what is compiled. */
  readonly pins = new Set<string>()
  /** What was compiled, least recently used first. */
  readonly #variants = new Set<Compiled>()
  /** What is bound, by shapes and pinned elements. */
  readonly #bound = new Map<string, Bound>()
  readonly #cache: PlanCache

  constructor(nodes: readonly Node[], reads: readonly string[], cache: PlanCache) {
    this.nodes = nodes
    this.reads = reads
    this.#cache = cache
  }

  /** What was compiled. */
  get variants(): ReadonlySet<Compiled> {
    return this.#variants
  }

  /** What is bound. */
  get bound(): Iterable<Bound> {
    return this.#bound.values()
  }

  /** What is bound to such values, if something is. */
  boundTo(values: ReadonlyMap<string, HostValue>): Bound | undefined {
    const bound = this.#bound.get(this.#keyOf(values))
    if (bound?.plan) this.#cache.use(bound.plan)
    return bound
  }

  /** What was compiled that holds for such values, and their sizes; undefined when nothing does. */
  variantFor(values: ReadonlyMap<string, HostValue>): { compiled: Compiled; sizes: SizeValues } | undefined {
    for (const compiled of [...this.#variants].reverse()) {
      const sizes = compiled.symbols.match(values)
      if (sizes) return { compiled, sizes }
    }
    return undefined
  }

  /** Keeps what was compiled; frees what was compiled first of too much. */
  keep(compiled: Compiled): void {
    this.#variants.add(compiled)
    if (this.#variants.size <= maxVariants) return
    const [oldest] = this.#variants
    this.#variants.delete(oldest!)
    for (const [key, bound] of this.#bound)
      if (bound.template === oldest!.template && bound.next === oldest!.next) this.#forget(key, bound)
    oldest!.template?.dispose()
    oldest!.next?.dispose()
  }

  /** Keeps what is bound to such values. */
  keepBound(bound: Bound, values: ReadonlyMap<string, HostValue>): void {
    const key = this.#keyOf(values)
    this.#bound.set(key, bound)
    const { plan, template } = bound
    if (plan && template) this.#cache.add(plan, template, () => this.#bound.delete(key))
  }

  /** Frees everything from here on. */
  dispose(): void {
    for (const [key, bound] of this.#bound) this.#forget(key, bound)
    for (const { template, next } of this.#variants) {
      template?.dispose()
      next?.dispose()
    }
    this.#variants.clear()
  }

  #forget(key: string, { plan }: Bound): void {
    this.#bound.delete(key)
    if (plan) this.#cache.delete(plan)
  }

  /** What a bound segment depends on. */
  #keyOf(values: ReadonlyMap<string, HostValue>): string {
    let key = ''
    for (const [name, value] of values) {
      if (value.kind !== 'tensor') key += `${value.kind};`
      else
        key += `${value instanceof ModelState ? 'state ' : ''}${value.dtype}[${value.shape}]${this.pins.has(name) ? `=${value.data}` : ''};`
    }
    return key
  }
}

/** The cut before these nodes; undefined when there are none. */
export function* cutBefore(
  nodes: readonly Node[],
  constants: ReadonlyMap<string, Constant>,
  cache: PlanCache,
): Paced<Cut | undefined> {
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
  return new Cut(nodes, own, cache)
}

/** The nodes that an output depends on. */
export function* neededNodes({ nodes, outputs }: Subgraph): Paced<Node[]> {
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
