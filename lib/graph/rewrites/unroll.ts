// unroll.ts: recurrent layers as one cell after another, so that their gradients are those of products and functions.
import { SparkError } from '../../core/errors.js'
import { describeNode, float, floatOf, int, intOf } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { Constant } from '../constant.js'
import { type Graph, makeNode, type Node } from '../graph.js'
import {
  directionsOf,
  isRecurrent,
  type RecurrentFunction,
  recurrentFunctions,
  recurrentGates,
} from '../recurrent.js'
import { inferFacts } from '../shape-inference.js'

/** Options of {@link unroll}. */
export interface UnrollOptions {
  /** Sizes of inputs at run time: the number of steps must be known. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
}

/**
 * Replaces `LSTM`, `GRU` and `RNN` by their cells.
 * @throws SparkError ERR_UNSUPPORTED where the number of steps is not known, and for functions that no kernel knows
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
    const steps = type?.kind === 'tensor' ? type.shape?.[intOf(node, 'layout') === 0 ? 0 : 1] : undefined
    if (typeof steps !== 'number') {
      const what = 'cannot be unrolled: the number of steps is not known'
      throw new SparkError('ERR_UNSUPPORTED', `${describeNode(node)} ${what}`)
    }
    const builder = new GraphBuilder(whole, `${node.name || node.outputs.find(Boolean)}/unrolled`)
    new Layer(node, builder, steps).build()
    whole = builder.build()
  }
  return whole
}

/** The operands of one direction. */
interface Direction {
  readonly w: string
  readonly r: string
  /** [gates · hidden] each; '' without biases. */
  readonly wb: string
  readonly rb: string
  /** [hidden] each, of i, o and f; empty without them. */
  readonly peepholes: readonly string[]
  readonly functions: readonly RecurrentFunction[]
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
  readonly #clip: number
  /** For each step, which sequences have not ended, [B, 1]; empty without lengths. */
  readonly #masks: readonly string[]

  constructor(node: Node, at: GraphBuilder, steps: number) {
    this.#node = node
    this.#at = at
    this.#steps = steps
    this.#gates = recurrentGates[node.op]!
    this.#batchFirst = intOf(node, 'layout') !== 0
    this.#clip = floatOf(node, 'clip')
    const lengths = node.inputs[4]
    this.#masks = lengths ? Array.from({ length: steps }, (_, t) => this.#longerThan(lengths, t)) : []
  }

  #longerThan(lengths: string, t: number): string {
    const at = this.#at
    const step = at.initializer('step', Constant.from('i32', [], Int32Array.of(t)))
    return at.add('Unsqueeze', [at.add('Greater', [lengths, step]), at.constant([1])])
  }

  /** Adds the cells, and nodes that make the outputs of the layer. */
  build(): void {
    const turns = directionsOf(this.#node)
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
      const next = this.#cell(direction, x, carried)
      all[t] = this.#within(t, next.h, () => this.#at.constant(0))
      const { h, c } = carried
      carried = { h: this.#within(t, next.h, () => h), c: c && this.#within(t, next.c, () => c) }
    }
    return { all, last: carried }
  }

  /** Behind the end of a sequence another value. */
  #within(t: number, value: string, otherwise: () => string): string {
    const mask = this.#masks[t]
    return mask ? this.#at.add('Where', [mask, value, otherwise()]) : value
  }

  /** The part `index` along an axis, which goes. */
  #pick(value: string, index: number, axis: number): string {
    const at = this.#at
    const [start, end, axes] = [[index], [index + 1], [axis]].map(list => at.constant(list))
    return at.add('Squeeze', [at.add('Slice', [value, start!, end!, axes!]), axes!])
  }

  #direction(d: number): Direction {
    const [, w, r, b, , , , p] = this.#node.inputs
    const [wb = '', rb = ''] = b ? this.#split(this.#pick(b, d, 0), 2, 0) : []
    return {
      w: this.#pick(w!, d, 0),
      r: this.#pick(r!, d, 0),
      wb,
      rb,
      peepholes: p ? this.#split(this.#pick(p, d, 0), 3, 0) : [],
      functions: recurrentFunctions(this.#node)[d]!,
    }
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
      const hidden = intOf(this.#node, 'hidden_size')
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

  #function({ op, alpha, beta }: RecurrentFunction, x: string): string {
    return this.#at.add(op, [x], {
      ...(alpha !== undefined && { alpha: float(alpha) }),
      ...(beta !== undefined && { beta: float(beta) }),
    })
  }

  /** A function of what is clipped first. */
  #clipped(by: RecurrentFunction, x: string): string {
    if (this.#clip === 0) return this.#function(by, x)
    const limits = [this.#at.constant(-this.#clip), this.#at.constant(this.#clip)]
    return this.#function(by, this.#at.add('Clip', [x, ...limits]))
  }

  #cell(direction: Direction, x: string, carried: Carried): Carried {
    const input = this.#product(x, direction.w, direction.wb)
    if (this.#node.op === 'GRU') return { h: this.#gru(direction, input, carried.h), c: '' }
    const sum = this.#at.add('Add', [input, this.#product(carried.h, direction.r, direction.rb)])
    if (this.#node.op === 'RNN') return { h: this.#clipped(direction.functions[0]!, sum), c: '' }
    return this.#lstm(direction, sum, carried.c)
  }

  /** i, o, f, c: C = f ∘ C + i ∘ g(c), H = o ∘ h(C); C before the step is seen by i and f, the new one by o. */
  #lstm({ peepholes, functions: [gateBy, by, last] }: Direction, sum: string, before: string): Carried {
    const at = this.#at
    const [i, o, f, c] = this.#split(sum, this.#gates, 1)
    const gate = (value: string, n: number, state: string): string => {
      const seen = peepholes[n]
      return this.#clipped(gateBy!, seen ? at.add('Add', [value, at.add('Mul', [seen, state])]) : value)
    }
    const input = gate(i!, 0, before)
    const coupled = intOf(this.#node, 'input_forget') !== 0
    const forget = coupled ? at.add('Sub', [at.constant(1), input]) : gate(f!, 2, before)
    const fresh = at.add('Mul', [input, this.#clipped(by!, c!)])
    const next = at.add('Add', [at.add('Mul', [forget, before]), fresh])
    return { c: next, h: at.add('Mul', [gate(o!, 1, next), this.#function(last!, next)]) }
  }

  /** z, r, h: H = (1 − z) ∘ g(h) + z ∘ H; r weighs H before the product, or the product after it. */
  #gru({ r, rb, functions: [gateBy, by] }: Direction, input: string, before: string): string {
    const at = this.#at
    const after = intOf(this.#node, 'linear_before_reset') !== 0
    const [xz, xr, xh] = this.#split(input, 3, 1)
    const [rz, rr, rh] = this.#split(r, 3, 0)
    const [bz, br, bh] = rb ? this.#split(rb, 3, 0) : ['', '', '']
    const gate = (x: string, weight: string, bias: string): string =>
      this.#clipped(gateBy!, at.add('Add', [x, this.#product(before, weight, bias)]))
    const [z, reset] = [gate(xz!, rz!, bz!), gate(xr!, rr!, br!)]
    const recurrent = after
      ? at.add('Mul', [reset, this.#product(before, rh!, bh!)])
      : this.#product(at.add('Mul', [reset, before]), rh!, bh!)
    const candidate = this.#clipped(by!, at.add('Add', [xh!, recurrent]))
    const fresh = at.add('Mul', [at.add('Sub', [at.constant(1), z]), candidate])
    return at.add('Add', [fresh, at.add('Mul', [z, before])])
  }
}
