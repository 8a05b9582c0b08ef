// plan-split.ts: which nodes of a graph ranks share, and how. It does not depend on the rank.
import { describeNode, givenInt } from '../../attributes.js'
import { namedStates } from '../../edit.js'
import type { Node } from '../../graph.js'
import { type Linear, linearOf } from './closers.js'
import type { SplitFacts } from './facts.js'
import { type Layout, plain, rangesOf, sameLayout, sizeOf, unevenRange } from './layout.js'
import type { Part } from './part.js'
import { partOf } from './rules.js'
import { whyWhole } from './slice-constant.js'

/** Weights with fewer elements than this stay whole: a sum over ranks costs more than they do. */
const smallWeight = 256

/** A weight whose results are gathered must be at least this share of all weights. */
const gatheredShare = 0.01

/** How ranks share a graph. */
export interface SplitPlan {
  /** Values of which each rank has a part. */
  readonly layouts: ReadonlyMap<string, Layout>
  /** Nodes of whose outputs each rank makes a part. */
  readonly parts: ReadonlyMap<Node, Part>
  /** Products that are summed over ranks. */
  readonly summed: ReadonlyMap<Node, Linear>
  /** Products by rows whose results are put together. */
  readonly gathered: ReadonlyMap<Node, Linear>
  /** Gathers of rows of a table. */
  readonly tables: ReadonlySet<Node>
  /** Why weights, and nodes of attention, stay whole, by their names. */
  readonly whole: ReadonlyMap<string, string>
}

/** Finds out how ranks share a graph. */
export function planSplit(facts: SplitFacts): SplitPlan {
  const planner = new Planner(facts)
  planner.sum()
  planner.gather()
  return planner
}

interface Region {
  readonly layouts: Map<string, Layout>
  readonly parts: Map<Node, Part>
  /** Values that are in parts because of what they are made of: they end in states. */
  readonly followed: Set<string>
}

class Planner implements SplitPlan {
  readonly layouts = new Map<string, Layout>()
  readonly parts = new Map<Node, Part>()
  readonly summed = new Map<Node, Linear>()
  readonly gathered = new Map<Node, Linear>()
  readonly tables = new Set<Node>()
  readonly whole = new Map<string, string>()
  readonly #facts: SplitFacts
  readonly #states: ReadonlyMap<string, string>
  readonly #outputs: ReadonlySet<string>

  constructor(facts: SplitFacts) {
    this.#facts = facts
    const { inputs, outputs } = facts.graph
    this.#states = namedStates(inputs, outputs)
    this.#outputs = new Set(outputs.map(({ name }) => name))
  }

  /** From the last product to the first: what makes its in features is cut by out features, heads or channels. */
  sum(): void {
    for (const node of this.#facts.graph.nodes.toReversed()) {
      const linear = this.parts.has(node) ? undefined : this.#linearOf(node)
      if (!linear || this.#elements(node.inputs[1]!) < smallWeight) continue
      const { summed } = linear
      const why = summed ? this.#whyUncut(node.inputs[1]!, summed[1]) : 'ranks do not divide its in features'
      const region = why === undefined ? this.#region(node, summed![0]) : undefined
      if (!region) continue
      this.summed.set(node, linear)
      for (const [name, layout] of region.layouts) this.layouts.set(name, layout)
      for (const [made, part] of region.parts) this.parts.set(made, part)
    }
  }

  /** What is left, where it is large. */
  gather(): void {
    const { graph } = this.#facts
    const names = new Set(graph.nodes.flatMap(({ inputs }) => inputs))
    let total = 0
    for (const name of names) total += graph.initializers.get(name)?.count ?? 0
    for (const node of graph.nodes) {
      if (this.parts.has(node) || this.summed.has(node)) continue
      if (/^(Paged)?Attention$/.test(node.op)) this.whole.set(describeNode(node), this.#whyHeads(node))
      const linear = this.#linearOf(node)
      const isTable = node.op === 'Gather' && node.domain === '' && this.#isTable(node)
      const weight = linear ? node.inputs[1]! : isTable ? node.inputs[0]! : undefined
      if (weight === undefined || this.#elements(weight) < Math.max(smallWeight, gatheredShare * total))
        continue
      const axis = linear ? linear.out.weight : 0
      const why = this.#whyRows(weight, axis) ?? (linear && this.#whyBias(node, linear))
      if (why !== undefined) this.whole.set(weight, why)
      else if (linear) this.gathered.set(node, linear)
      else this.tables.add(node)
    }
  }

  /** A product of f32, which is what ranks can sum. */
  #linearOf(node: Node): Linear | undefined {
    return this.#facts.dtype(node.outputs[0]!) === 'f32' ? linearOf(node, this.#facts) : undefined
  }

  #isTable(node: Node): boolean {
    const axis = node.attributes.axis
    const isRows = !axis || (axis.type === 'int' && Number(axis.value) === 0)
    const constant = this.#facts.graph.initializers.get(node.inputs[0]!)
    return (
      isRows &&
      constant?.shape.length === 2 &&
      constant.dtype === 'f32' &&
      this.#facts.isFixed(node.inputs[0])
    )
  }

  #whyHeads(node: Node): string {
    const isPaged = node.op === 'PagedAttention'
    const count = (name: string, input: number): number | undefined =>
      givenInt(node, name) ?? this.#facts.size(node.inputs[input] ?? '', 1)
    const heads = count(isPaged ? 'num_heads' : 'q_num_heads', 0)
    const kvHeads = count('kv_num_heads', 1)
    const odd = [heads, kvHeads].find(size => !this.#facts.divides(size))
    return odd === undefined
      ? 'no product behind it sums over its heads'
      : `${heads} heads with ${kvHeads} of keys: ${odd} is not divisible by ${this.#facts.world}`
  }

  #elements(name: string): number {
    const shape = this.#facts.shape(name)
    return shape?.every(size => typeof size === 'number') ? (shape as number[]).reduce((a, b) => a * b, 1) : 0
  }

  #whyRows(name: string, axis: number): string | undefined {
    const { world, graph } = this.#facts
    const [size, constant] = [this.#facts.size(name, axis), graph.initializers.get(name)]
    if (size === undefined || size < world) return `its ${size} rows are less than ${world} ranks`
    if (this.#facts.divides(size)) return this.#whyUncut(name, plain(axis, size))
    if (!constant) return `${size} rows are not divisible by ${world}`
    return whyWhole(constant, axis, [unevenRange(size, { rank: 0, world })])
  }

  /** Why the bias of a product cannot be cut with its rows; undefined where it can, and where there is none. */
  #whyBias(node: Node, { bias }: Linear): string | undefined {
    const name = node.inputs[bias]
    if (!name) return undefined
    const shape = this.#facts.shape(name)
    const size = shape?.at(-1)
    if (shape?.length === 0 || size === 1) return undefined
    if (typeof size !== 'number') return 'the size of its bias is not known'
    if (this.#facts.divides(size) && !this.#facts.isFixed(name)) return undefined
    const why = this.#whyRows(name, shape!.length - 1)
    return why && `its bias ${name}: ${why}`
  }

  /** Why a fixed value cannot be cut; undefined where it can. */
  #whyUncut(name: string, layout: Layout): string | undefined {
    const { world, graph, producers } = this.#facts
    const odd = layout.segments.find(size => !this.#facts.divides(size))
    if (odd !== undefined) return `${odd} is not divisible by ${world}`
    const constant = graph.initializers.get(name)
    if (constant) {
      for (let rank = 0; rank < world; rank++) {
        const why = whyWhole(constant, layout.axis, rangesOf(layout, { rank, world }))
        if (why !== undefined) return why
      }
      return undefined
    }
    const producer = producers.get(name)
    const part = producer && partOf(producer, producer.outputs.indexOf(name), layout, this.#facts)
    if (!part) return `${producer?.op ?? 'it'} cannot be computed in parts`
    return this.#whyInputsUncut(producer, part)
  }

  #whyInputsUncut({ inputs }: Node, part: Part): string | undefined {
    for (const [i, layout] of part.inputs.entries()) {
      const name = inputs[i] ?? ''
      const why =
        layout && name !== '' && this.#facts.isFixed(name) ? this.#whyUncut(name, layout) : undefined
      if (why !== undefined) return why
    }
    return undefined
  }

  /** What must be in parts so that a product can be summed; undefined where that is nothing worth it. */
  #region(closer: Node, layout: Layout): Region | undefined {
    const whole = new Set<string>()
    for (;;) {
      const region: Region = { layouts: new Map(), parts: new Map(), followed: new Set() }
      const known = whole.size
      this.#need(closer.inputs[0]!, layout, region, whole)
      if (whole.size === known) this.#expectReaders(region, closer, whole)
      if (whole.size > known) continue
      return [...region.parts.values()].some(({ isGain }) => isGain) ? region : undefined
    }
  }

  /** Adds what makes a part of a value; values that conflict become whole: their readers take a slice. */
  #need(name: string, layout: Layout, region: Region, whole: Set<string>): void {
    const facts = this.#facts
    if (facts.isFixed(name) || whole.has(name)) return
    const known = region.layouts.get(name)
    if (known) {
      if (!sameLayout(known, layout)) whole.add(name)
      return
    }
    const producer = facts.producers.get(name)
    if (!producer) {
      if (this.#states.has(name)) region.layouts.set(name, layout)
      return
    }
    const part = this.#partOf(producer, name, layout, region, whole)
    if (!part) return
    region.parts.set(producer, part)
    for (const [i, output] of part.outputs.entries())
      if (output && producer.outputs[i]) {
        region.layouts.set(producer.outputs[i]!, output)
        if (producer.outputs[i] !== name) region.followed.add(producer.outputs[i]!)
      }
    for (const [i, input] of part.inputs.entries())
      if (input && producer.inputs[i]) this.#need(producer.inputs[i]!, input, region, whole)
  }

  #partOf(
    producer: Node,
    name: string,
    layout: Layout,
    region: Region,
    whole: ReadonlySet<string>,
  ): Part | undefined {
    const isTaken = [this.parts, this.summed, region.parts].some(nodes => nodes.has(producer))
    if (isTaken || producer.outputs.some(output => whole.has(output))) return undefined
    if (layout.segments.some(size => !this.#facts.divides(size))) return undefined
    const part = partOf(producer, producer.outputs.indexOf(name), layout, this.#facts)
    if (!part || this.#whyInputsUncut(producer, part) !== undefined) return undefined
    const isEven = part.inputs.every(
      input => !input || input.segments.every(size => this.#facts.divides(size)),
    )
    return isEven ? part : undefined
  }

  /** Lets a reader of a followed value make a part, where it reads the same part of that. */
  #follow(reader: Node, name: string, layout: Layout, region: Region, whole: Set<string>): void {
    const output = reader.outputs[0]!
    if (!region.followed.has(name) || region.parts.has(reader) || whole.has(output)) return
    for (const axis of (this.#facts.shape(output) ?? []).keys()) {
      if (this.#facts.size(output, axis) !== sizeOf(layout)) continue
      const part = partOf(reader, 0, { ...layout, axis }, this.#facts)
      const own = part?.inputs[reader.inputs.indexOf(name)]
      if (!own || !sameLayout(own, layout)) continue
      region.followed.add(output)
      this.#need(output, { ...layout, axis }, region, whole)
      return
    }
  }

  /** What is in parts must be read in these parts only. */
  #expectReaders(region: Region, closer: Node, whole: Set<string>): void {
    const { layouts, parts } = region
    // Those that are added are visited, too.
    for (const [name, layout] of layouts)
      for (const reader of this.#facts.consumers.get(name) ?? [])
        this.#follow(reader, name, layout, region, whole)
    for (const [name, layout] of layouts) {
      const fits = (this.#facts.consumers.get(name) ?? []).every(reader => {
        if (reader === closer) return reader.inputs.indexOf(name) === reader.inputs.lastIndexOf(name)
        const part = parts.get(reader)
        return (
          reader.inputs.every((input, i) => {
            const own = input === name ? part?.inputs[i] : layout
            return own !== undefined && sameLayout(own, layout)
          }) &&
          part !== undefined &&
          reader.inputs.includes(name)
        )
      })
      const next = this.#states.get(name)
      const isState = next !== undefined && layouts.has(next) && sameLayout(layouts.get(next)!, layout)
      const isNext = [...this.#states].some(([from, to]) => to === name && layouts.has(from))
      if (!fits || (next !== undefined && !isState) || (this.#outputs.has(name) && !isNext)) whole.add(name)
    }
  }
}
