// unroll.ts: recurrent layers as one cell after another, so that their gradients are those of products and functions.
import { SparkError } from '../../core/errors.js'
import { describeNode, int, intOf, stringOf, stringsOf } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { type Graph, makeNode, type Node } from '../graph.js'
import { inferFacts } from '../shape-inference.js'

/** Gates of each layer. */
const gatesOf: Readonly<Record<string, number>> = { LSTM: 4, GRU: 3, RNN: 1 }

/** Options of {@link unroll}. */
export interface UnrollOptions {
  /** Sizes of inputs at run time: the number of steps must be known. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
}

/**
 * Replaces `LSTM`, `GRU` and `RNN` by their cells.
 * @throws SparkError ERR_UNSUPPORTED where the number of steps is not known, and for lengths of sequences, peepholes,
 * clipping and functions other than the usual ones
 */
export function unroll(graph: Graph, options: UnrollOptions = {}): Graph {
  if (!graph.nodes.some(isRecurrent)) return graph
  const facts = inferFacts(graph, options)
  let whole: Graph = { ...graph, nodes: [] }
  for (const node of graph.nodes) {
    if (!isRecurrent(node)) {
      whole = { ...whole, nodes: [...whole.nodes, node] }
      continue
    }
    const type = facts.get(node.inputs[0]!)?.type
    const steps = type?.kind === 'tensor' ? type.shape?.[intOf(node, 'layout', 0) === 0 ? 0 : 1] : undefined
    if (typeof steps !== 'number') throw unsupported(node, 'the number of steps is not known')
    const builder = new GraphBuilder(whole, `${node.name || node.outputs.find(Boolean)}/unrolled`)
    new Layer(node, builder, steps).build()
    whole = builder.build()
  }
  return whole
}

/** Whether {@link unroll} replaces a node. */
export const isRecurrent = ({ domain, op }: Node): boolean => domain === '' && Object.hasOwn(gatesOf, op)

const unsupported = (node: Node, what: string): SparkError =>
  new SparkError('ERR_UNSUPPORTED', `${describeNode(node)} cannot be unrolled: ${what}`)

/** The operands of one direction. */
interface Direction {
  readonly w: string
  readonly r: string
  /** [gates · hidden] each; '' without biases. */
  readonly wb: string
  readonly rb: string
}

/** What goes from step to step, [B, H]. */
interface Carried {
  readonly h: string
  /** Of an LSTM. */
  readonly c: string
}

/** A recurrent layer that is replaced. */
class Layer {
  readonly #node: Node
  readonly #at: GraphBuilder
  readonly #steps: number
  readonly #gates: number
  readonly #batchFirst: boolean

  constructor(node: Node, at: GraphBuilder, steps: number) {
    this.#node = node
    this.#at = at
    this.#steps = steps
    this.#gates = gatesOf[node.op]!
    this.#batchFirst = intOf(node, 'layout', 0) !== 0
    const plain = !node.inputs[4] && !node.inputs[7] && intOf(node, 'input_forget', 0) === 0
    if (!plain) throw unsupported(node, 'lengths, peepholes and coupled gates are not supported')
    const odd = ['clip', 'activation_alpha', 'activation_beta'].some(name => name in node.attributes)
    const functions = stringsOf(node, 'activations')?.map(name => name.toLowerCase()) ?? []
    const usual =
      node.op === 'RNN' ? ['tanh'] : node.op === 'GRU' ? ['sigmoid', 'tanh'] : ['sigmoid', 'tanh', 'tanh']
    if (odd || functions.some((name, i) => name !== usual[i % usual.length])) {
      throw unsupported(node, 'only the usual functions without clipping are supported')
    }
  }

  /** Adds the cells, and nodes that make the outputs of the layer. */
  build(): void {
    const direction = stringOf(this.#node, 'direction', 'forward')
    const turns = direction === 'bidirectional' ? [false, true] : [direction === 'reverse']
    const ends = turns.map((reverse, d) => this.#run(d, reverse))
    const [y, lastH, lastC] = this.#node.outputs
    const at = this.#at
    const stack = (values: readonly string[], output: string | undefined): void => {
      if (!output) return
      const lone = values.map(value => at.add('Unsqueeze', [value, at.constant([this.#batchFirst ? 1 : 0])]))
      at.append(makeNode('Concat', lone, [output], { attributes: { axis: int(this.#batchFirst ? 1 : 0) } }))
    }
    stack(
      ends.map(({ last }) => last.h),
      lastH,
    )
    stack(
      ends.map(({ last }) => last.c),
      lastC,
    )
    if (!y) return
    // [T, D, B, H], or [B, T, D, H]
    const whole = ends.map(({ all }) => {
      const rows = all.map(h => at.add('Unsqueeze', [h, at.constant(this.#batchFirst ? [1, 2] : [0, 1])]))
      return at.add('Concat', rows, { axis: int(this.#batchFirst ? 1 : 0) })
    })
    at.append(makeNode('Concat', whole, [y], { attributes: { axis: int(this.#batchFirst ? 2 : 1) } }))
  }

  #run(d: number, reverse: boolean): { all: string[]; last: Carried } {
    const direction = this.#direction(d)
    let carried = this.#start(d)
    const all: string[] = []
    for (let i = 0; i < this.#steps; i++) {
      const t = reverse ? this.#steps - 1 - i : i
      const x = this.#pick(this.#node.inputs[0]!, t, this.#batchFirst ? 1 : 0)
      carried = this.#cell(direction, x, carried)
      all[t] = carried.h
    }
    return { all, last: carried }
  }

  /** The part `index` along an axis, which goes. */
  #pick(value: string, index: number, axis: number): string {
    const at = this.#at
    const [start, end, axes] = [[index], [index + 1], [axis]].map(list => at.constant(list))
    return at.add('Squeeze', [at.add('Slice', [value, start!, end!, axes!]), axes!])
  }

  #direction(d: number): Direction {
    const [, w, r, b] = this.#node.inputs
    if (!b) return { w: this.#pick(w!, d, 0), r: this.#pick(r!, d, 0), wb: '', rb: '' }
    const [wb, rb] = this.#split(this.#pick(b, d, 0), 2, 0)
    return { w: this.#pick(w!, d, 0), r: this.#pick(r!, d, 0), wb: wb!, rb: rb! }
  }

  /** The state before the first step; 0 where the node gives none: a row of x without elements, summed up. */
  #start(d: number): Carried {
    const axis = this.#batchFirst ? 1 : 0
    const [, , , , , h0, c0] = this.#node.inputs
    const zero = (): string => {
      const at = this.#at
      const x = this.#pick(this.#node.inputs[0]!, 0, axis)
      const none = at.add('ReduceSum', [at.add('Mul', [x, at.constant(0)]), at.constant([1])], {
        keepdims: int(1),
      })
      const hidden = intOf(this.#node, 'hidden_size', 0)
      return at.add('Expand', [none, at.constant([1, hidden])])
    }
    const h = h0 ? this.#pick(h0, d, axis) : zero()
    return { h, c: this.#node.op !== 'LSTM' ? '' : c0 ? this.#pick(c0, d, axis) : zero() }
  }

  #split(value: string, parts: number, axis: number): string[] {
    const outputs = Array.from({ length: parts }, (_, i) => this.#at.fresh(`${value}/${i}`))
    const attributes = { axis: int(axis), num_outputs: int(parts) }
    this.#at.append(makeNode('Split', [value], outputs, { attributes }))
    return outputs
  }

  #product(x: string, w: string, bias: string): string {
    return this.#at.add('Gemm', bias ? [x, w, bias] : [x, w], { transB: int(1) })
  }

  #cell(direction: Direction, x: string, carried: Carried): Carried {
    const input = this.#product(x, direction.w, direction.wb)
    if (this.#node.op === 'GRU') return { h: this.#gru(direction, input, carried.h), c: '' }
    const sum = this.#at.add('Add', [input, this.#product(carried.h, direction.r, direction.rb)])
    if (this.#node.op === 'RNN') return { h: this.#at.add('Tanh', [sum]), c: '' }
    return this.#lstm(sum, carried.c)
  }

  /** i, o, f, c: C = f ∘ C + i ∘ tanh(c), H = o ∘ tanh(C) */
  #lstm(sum: string, before: string): Carried {
    const at = this.#at
    const [i, o, f, c] = this.#split(sum, this.#gates, 1)
    const gate = (value: string): string => at.add('Sigmoid', [value])
    const kept = at.add('Mul', [gate(f!), before])
    const next = at.add('Add', [kept, at.add('Mul', [gate(i!), at.add('Tanh', [c!])])])
    return { c: next, h: at.add('Mul', [gate(o!), at.add('Tanh', [next])]) }
  }

  /** z, r, h: H = (1 − z) ∘ tanh(h) + z ∘ H; r weighs H before the product, or the product after it. */
  #gru({ r, rb }: Direction, input: string, before: string): string {
    const at = this.#at
    const after = intOf(this.#node, 'linear_before_reset', 0) !== 0
    const [xz, xr, xh] = this.#split(input, 3, 1)
    const [rz, rr, rh] = this.#split(r, 3, 0)
    const [bz, br, bh] = rb ? this.#split(rb, 3, 0) : ['', '', '']
    const gate = (x: string, weight: string, bias: string): string =>
      at.add('Sigmoid', [at.add('Add', [x, this.#product(before, weight, bias)])])
    const [z, reset] = [gate(xz!, rz!, bz!), gate(xr!, rr!, br!)]
    const recurrent = after
      ? at.add('Mul', [reset, this.#product(before, rh!, bh!)])
      : this.#product(at.add('Mul', [reset, before]), rh!, bh!)
    const candidate = at.add('Tanh', [at.add('Add', [xh!, recurrent])])
    const fresh = at.add('Mul', [at.add('Sub', [at.constant(1), z]), candidate])
    return at.add('Add', [fresh, at.add('Mul', [z, before])])
  }
}
