// apply-split.ts: the graph of one rank.

import type { Range } from '../../../weights/range.js'
import { int } from '../../attributes.js'
import { GraphBuilder } from '../../builder.js'
import { Constant } from '../../constant.js'
import { type Graph, makeNode, type Node, sparkDomain, type ValueInfo } from '../../graph.js'
import { carriedValues } from './carriers.js'
import type { Linear } from './closers.js'
import type { SplitFacts } from './facts.js'
import { type Layout, plain, rangesOf, type Seat, unevenRange } from './layout.js'
import type { Part } from './part.js'
import type { SplitPlan } from './plan-split.js'
import { partOf } from './rules.js'
import { sliceConstant } from './slice-constant.js'

/** The graph of a rank. */
export function applySplit(plan: SplitPlan, facts: SplitFacts, seat: Seat): Graph {
  return new RankBuilder(plan, facts, seat).build()
}

class RankBuilder {
  readonly #plan: SplitPlan
  readonly #facts: SplitFacts
  readonly #seat: Seat
  readonly #graph: GraphBuilder
  readonly #carried: ReadonlySet<string>
  /** Names of parts of whole values and constants. */
  readonly #cut = new Map<string, string>()

  constructor(plan: SplitPlan, facts: SplitFacts, seat: Seat) {
    this.#plan = plan
    this.#facts = facts
    this.#seat = seat
    this.#graph = new GraphBuilder(facts.graph, 'rank')
    this.#carried = carriedValues(plan, facts)
  }

  build(): Graph {
    const { graph } = this.#facts
    const { parts, summed, gathered, tables } = this.#plan
    for (const node of graph.nodes) {
      const part = parts.get(node)
      const [sum, rows] = [summed.get(node), gathered.get(node)]
      if (part) this.#graph.append(this.#partNode(node, part, node.outputs))
      else if (sum) this.#sum(node, sum)
      else if (rows) this.#gather(node, rows)
      else if (tables.has(node)) this.#lookUp(node)
      else if (node.inputs.some(name => this.#carried.has(name))) this.#reduced(node, node, node.outputs[0]!)
      else this.#graph.append(node)
    }
    const built = this.#graph.rebuild()
    return {
      ...built,
      inputs: graph.inputs.map(info => this.#typed(info)),
      outputs: graph.outputs.map(info => this.#typed(info)),
      values: new Map([...graph.values].filter(([name]) => !this.#plan.layouts.has(name))),
    }
  }

  /** The type of a state of which a rank has a part. */
  #typed(info: ValueInfo): ValueInfo {
    const layout = this.#plan.layouts.get(info.name)
    if (!layout || info.type?.kind !== 'tensor' || !info.type.shape) return info
    const shape = info.type.shape.map((size, axis) =>
      axis === layout.axis && typeof size === 'number' ? size / this.#seat.world : size,
    )
    return { name: info.name, type: { ...info.type, shape } }
  }

  #partNode(node: Node, part: Part, outputs: readonly string[]): Node {
    const inputs = node.inputs.map((name, i) => {
      const numbers = part.constants?.get(i)
      if (numbers) return this.#graph.constant(numbers)
      if (part.element?.input === i) return this.#replaced(name, part.element)
      const layout = part.inputs[i]
      return layout && name !== '' ? this.#part(name, layout) : name
    })
    return { ...node, inputs, outputs, attributes: part.attributes ?? node.attributes }
  }

  /** A list of integers with another element. */
  #replaced(name: string, { at, value }: NonNullable<Part['element']>): string {
    const g = this.#graph
    const size = this.#facts.size(name, 0)!
    const slice = (begin: number, end: number): string[] =>
      begin < end ? [g.add('Slice', [name, g.constant([begin]), g.constant([end])])] : []
    return g.add('Concat', [...slice(0, at), g.constant([value]), ...slice(at + 1, size)], { axis: int(0) })
  }

  /** The name of a part of a value: that of the value itself where it is in parts. */
  #part(name: string, layout: Layout): string {
    if (this.#plan.layouts.has(name)) return name
    const key = `${name} ${layout.axis} ${layout.segments}`
    const known = this.#cut.get(key)
    if (known !== undefined) return known
    const made = this.#facts.isFixed(name) ? this.#fixedPart(name, layout) : this.#slices(name, layout)
    this.#cut.set(key, made)
    return made
  }

  #fixedPart(name: string, layout: Layout): string {
    const constant = this.#facts.graph.initializers.get(name)
    if (constant)
      return this.#graph.initializer(
        `${name}/part`,
        sliceConstant(constant, layout.axis, rangesOf(layout, this.#seat)),
      )
    const producer = this.#facts.producers.get(name)!
    const part = partOf(producer, producer.outputs.indexOf(name), layout, this.#facts)!
    const outputs = producer.outputs.map(output => (output === '' ? '' : this.#graph.fresh(`${output}/part`)))
    this.#graph.append(this.#partNode(producer, part, outputs))
    return outputs[producer.outputs.indexOf(name)]!
  }

  #slices(name: string, layout: Layout): string {
    const g = this.#graph
    const slices = rangesOf(layout, this.#seat).map(({ begin, end }) =>
      g.add('Slice', [name, g.constant([begin]), g.constant([end]), g.constant([layout.axis])]),
    )
    return slices.length === 1 ? slices[0]! : g.add('Concat', slices, { axis: int(layout.axis) })
  }

  /** A product over the in features of the rank. Its bias is added once: behind the sum, or by the first rank. */
  #sum(node: Node, { summed, bias }: Linear): void {
    const [x, weight] = summed!
    const inputs = [...node.inputs]
    inputs[0] = this.#part(inputs[0]!, x)
    inputs[1] = this.#part(inputs[1]!, weight)
    const given = inputs[bias] || undefined
    const output = node.outputs[0]!
    const isLate = this.#carried.has(output) || node.op === 'ExpertLinear'
    const keepsBias = given === undefined || (isLate && this.#seat.rank === 0)
    const product = { ...node, inputs: keepsBias ? inputs : inputs.filter((_, i) => i !== bias) }
    if (given === undefined || isLate) {
      this.#reduced(node, product, output)
      return
    }
    const sum = this.#graph.fresh(`${output}/sum`)
    this.#reduced(node, product, sum)
    this.#graph.append(makeNode('Add', [sum, this.#biasOf(node, given)], [output]))
  }

  /** The bias of a convolution along its channels. */
  #biasOf(node: Node, bias: string): string {
    if (node.op !== 'Conv') return bias
    const rank = this.#facts.shape(node.inputs[0]!)!.length
    return this.#graph.add('Reshape', [
      bias,
      this.#graph.constant([1, -1, ...Array<number>(rank - 2).fill(1)]),
    ])
  }

  /** A node whose output is a summand of each rank, and the sum, unless that is taken later. */
  #reduced(node: Node, own: Node, output: string): void {
    if (this.#carried.has(node.outputs[0]!)) {
      this.#graph.append({ ...own, outputs: node.outputs })
      return
    }
    const summand = this.#graph.fresh(`${output}/summand`)
    this.#graph.append({ ...own, outputs: [summand, ...node.outputs.slice(1)] })
    this.#graph.append(makeNode('AllReduce', [summand], [output], { domain: sparkDomain }))
  }

  /** Results by out features, with zeros in the place of those of other ranks: their sum is exact. */
  #gather(node: Node, { out, bias }: Linear): void {
    const size = this.#facts.size(node.inputs[1]!, out.weight)!
    const inputs = [...node.inputs]
    inputs[1] = this.#rows(inputs[1]!, out.weight, size)
    if (inputs[bias]) {
      const shape = this.#facts.shape(inputs[bias]!)!
      const isOne = shape.length === 0 || shape.at(-1) === 1
      if (!isOne) inputs[bias] = this.#rows(inputs[bias]!, shape.length - 1, size)
    }
    const g = this.#graph
    const part = g.fresh(`${node.outputs[0]!}/part`)
    g.append({ ...node, inputs, outputs: [part] })
    const { begin, end } = this.#rangeOf(size)
    const pads = g.constant([begin, size - end])
    const padded = g.add('Pad', [part, pads, g.constant(0), g.constant([out.output])])
    g.append(makeNode('AllReduce', [padded], [node.outputs[0]!], { domain: sparkDomain }))
  }

  #rangeOf(size: number): Range {
    return unevenRange(size, this.#seat)
  }

  #rows(name: string, axis: number, size: number): string {
    if (this.#facts.divides(size)) return this.#part(name, plain(axis, size))
    const key = `${name} ${axis} rows`
    const known = this.#cut.get(key)
    if (known !== undefined) return known
    const constant = this.#facts.graph.initializers.get(name)!
    const made = this.#graph.initializer(`${name}/part`, sliceConstant(constant, axis, [this.#rangeOf(size)]))
    this.#cut.set(key, made)
    return made
  }

  /** Rows that a rank has of a table, and zeros for others. */
  #lookUp(node: Node): void {
    const g = this.#graph
    const [table, indices] = node.inputs as [string, string]
    const size = this.#facts.size(table, 0)!
    const { begin, end } = this.#rangeOf(size)
    const dtype = this.#facts.dtype(indices)
    const scalar = (value: number): string =>
      g.constant(dtype === 'i64' ? Constant.i64(value) : Constant.from('i32', [], Int32Array.of(value)))
    const isBelow = g.add('Less', [indices, scalar(0)])
    const index = g.add('Where', [isBelow, g.add('Add', [indices, scalar(size)]), indices])
    const own = g.add('Sub', [index, scalar(begin)])
    const nearest = g.add('Clip', [own, scalar(0), scalar(end - begin - 1)])
    const isHere = g.add('Equal', [own, nearest])
    const rows = g.add('Gather', [this.#rows(table, 0, size), nearest], node.attributes)
    const mask = g.add('Unsqueeze', [isHere, g.constant([-1])])
    const summand = g.add('Where', [mask, rows, g.constant(0)])
    g.append(makeNode('AllReduce', [summand], [node.outputs[0]!], { domain: sparkDomain }))
  }
}
