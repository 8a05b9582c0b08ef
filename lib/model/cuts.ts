// cuts.ts: cuts between the segments of a graph, and what was compiled for each of them.
import type { Paced } from '../core/paced.js'
import { Constant, type NumericType } from '../graph/constant.js'
import { readsOf } from '../graph/edit.js'
import type { Node, Subgraph } from '../graph/graph.js'
import type { Plan } from '../plan/plan.js'
import { readsOfAll, type Segment } from './segments.js'
import type { HostValue } from './values.js'

/** Shapes and decisive elements for which the part of a graph from one cut on stays compiled at once. */
const maxVariants = 16

/** A segment that is ready to run. */
export interface Compiled extends Segment {
  readonly plan: Plan | undefined
  /** Where the run goes on; undefined when nothing is left. */
  readonly next: Cut | undefined
}

/** A cut in the run of a graph, where a segment begins, and what was compiled for it. */
export class Cut {
  readonly nodes: readonly Node[]
  /** Values that the nodes read and do not make themselves, but for constants. */
  readonly reads: readonly string[]
  /** Values whose elements, not only whose shapes, decide about what is compiled. */
  readonly pins = new Set<string>()
  /** By shapes and pinned elements, least recently used first. */
  readonly variants = new Map<string, Compiled>()
  #latest: string | undefined

  constructor(nodes: readonly Node[], reads: readonly string[]) {
    this.nodes = nodes
    this.reads = reads
  }

  /** What was compiled for such values, if it was. */
  variantFor(values: ReadonlyMap<string, HostValue>): Compiled | undefined {
    const key = this.#keyOf(values)
    const variant = this.variants.get(key)
    if (variant && key !== this.#latest) this.#use(key, variant)
    return variant
  }

  /** Keeps what was compiled for such values; frees what was not used for the longest time. */
  keep(variant: Compiled, values: ReadonlyMap<string, HostValue>): void {
    this.#use(this.#keyOf(values), variant)
    if (this.variants.size <= maxVariants) return
    const [oldest] = this.variants.keys()
    disposeFrom(this.variants.get(oldest!))
    this.variants.delete(oldest!)
  }

  /** Those of the values whose elements are pinned, as constants. */
  pinned(values: ReadonlyMap<string, HostValue>): Map<string, Constant> {
    const constants = new Map<string, Constant>()
    for (const name of this.pins) {
      const value = values.get(name)
      if (value?.kind !== 'tensor') continue
      const data = value.data.slice() as Float32Array
      constants.set(name, Constant.from(value.dtype as NumericType, value.shape, data))
    }
    return constants
  }

  #use(key: string, variant: Compiled): void {
    this.#latest = key
    this.variants.delete(key)
    this.variants.set(key, variant)
  }

  /** What a compiled segment depends on. */
  #keyOf(values: ReadonlyMap<string, HostValue>): string {
    let key = ''
    for (const [name, value] of values) {
      if (value.kind !== 'tensor') key += `${value.kind};`
      else key += `${value.dtype}[${value.shape}]${this.pins.has(name) ? `=${value.data}` : ''};`
    }
    return key
  }
}

/** The cut before these nodes; undefined when there are none. */
export function* cutBefore(
  nodes: readonly Node[],
  constants: ReadonlyMap<string, Constant>,
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
  return new Cut(nodes, own)
}

/** Frees a segment and those that were compiled behind it. */
export function disposeFrom(segment: Compiled | undefined): void {
  segment?.plan?.dispose()
  for (const inner of segment?.next?.variants.values() ?? []) disposeFrom(inner)
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
