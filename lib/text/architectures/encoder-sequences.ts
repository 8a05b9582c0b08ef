// encoder-sequences.ts: the nodes of an encoder that know which tokens belong together: padding, masks, pooling.
import { int } from '../../graph/attributes.js'
import type { GraphBuilder } from '../../graph/builder.js'
import { Constant } from '../../graph/constant.js'
import { tensorType } from '../../graph/graph.js'

/** Sequences of a batch, padded to one length. */
export class EncoderSequences {
  /** Name of i64 [length]: 0, 1, 2 … */
  readonly positions: string
  readonly #graph: GraphBuilder
  readonly #hiddenSize: number
  /** Name of bool [sequences, length]: whether a token is used. */
  readonly #isUsed: string
  /** Names of i64 scalars. */
  readonly #count: string
  readonly #length: string
  readonly #masks = new Map<number, string>()
  #paddedShape: string | undefined
  #grid: string | undefined

  /** Adds the inputs `tokens` and `lengths`. */
  constructor(graph: GraphBuilder, hiddenSize: number) {
    this.#graph = graph
    this.#hiddenSize = hiddenSize
    graph.input({ name: 'tokens', type: tensorType('i32', ['sequences', 'length']) })
    graph.input({ name: 'lengths', type: tensorType('i32', ['sequences']) })
    const shape = graph.add('Shape', ['tokens'])
    const size = (axis: number): string => graph.add('Gather', [shape, this.#scalar(axis)], { axis: int(0) })
    this.#count = size(0)
    this.#length = size(1)
    this.positions = this.#range(this.#length)
    this.#isUsed = graph.add('Less', [this.positions, this.#column(this.#lengths)])
  }

  /** Rows [sequences · length, hidden size] as [sequences, length, hidden size]. */
  padded(rows: string): string {
    const g = this.#graph
    this.#paddedShape ??= g.add('Concat', [g.add('Shape', ['tokens']), g.constant([this.#hiddenSize])], {
      axis: int(0),
    })
    return g.add('Reshape', [rows, this.#paddedShape])
  }

  /** The inverse of {@link EncoderSequences.padded}. */
  rows(padded: string): string {
    return this.#graph.add('Reshape', [padded, this.#graph.constant([-1, this.#hiddenSize])])
  }

  /** Positions of all tokens, i64 [sequences, length]. */
  get positionGrid(): string {
    const g = this.#graph
    this.#grid ??= g.add('Expand', [this.positions, g.add('Shape', ['tokens'])])
    return this.#grid
  }

  /**
   * What is added to scores: 0, or −∞ for keys that are not used or too far away.
   * @returns the name of f32 [sequences, 1, 1 or length, length]
   */
  mask(distance: number): string {
    const made = this.#masks.get(distance) ?? this.#makeMask(distance)
    this.#masks.set(distance, made)
    return made
  }

  /** The mean of the states of the tokens that are used, [sequences, hidden size]. */
  mean(padded: string): string {
    const g = this.#graph
    const weights = g.add('Unsqueeze', [this.#cast(this.#isUsed, 1), g.constant([2])])
    const used = g.add('Mul', [padded, weights])
    const sum = g.add('ReduceSum', [used, g.constant([1])], { keepdims: int(0) })
    return g.add('Div', [sum, this.#column(this.#cast('lengths', 1))])
  }

  /** The state of the first token of each sequence, [sequences, hidden size]. */
  first(padded: string): string {
    return this.#graph.add('Gather', [padded, this.#scalar(0)], { axis: int(1) })
  }

  /** The state of the last token of each sequence, [sequences, hidden size]. */
  last(rows: string): string {
    const g = this.#graph
    const starts = g.add('Mul', [this.#range(this.#count), this.#length])
    const ends = g.add('Sub', [g.add('Add', [starts, this.#lengths]), this.#scalar(1)])
    return g.add('Gather', [rows, ends], { axis: int(0) })
  }

  #makeMask(distance: number): string {
    const g = this.#graph
    const [zero, low] = [g.constant(0), g.constant(Number.NEGATIVE_INFINITY)]
    if (distance === Number.POSITIVE_INFINITY) {
      const isSeen = g.add('Unsqueeze', [this.#isUsed, g.constant([1, 2])])
      return g.add('Where', [isSeen, zero, low])
    }
    const apart = g.add('Abs', [g.add('Sub', [this.positions, this.#column(this.positions)])])
    const isNear = g.add('LessOrEqual', [apart, this.#scalar(distance)])
    const isSeen = g.add('And', [g.add('Unsqueeze', [this.#isUsed, g.constant([1])]), isNear])
    // Tokens that are not used see themselves: without any key there would be no state, and a mean would have none either.
    const isOwn = g.add('Equal', [apart, this.#scalar(0)])
    const whole = g.add('Unsqueeze', [g.add('Or', [isSeen, isOwn]), g.constant([1])])
    return g.add('Where', [whole, zero, low])
  }

  get #lengths(): string {
    return this.#cast('lengths', 7)
  }

  /** As a type of ONNX: 1 is f32, 7 is i64. */
  #cast(value: string, type: 1 | 7): string {
    return this.#graph.add('Cast', [value], { to: int(type) })
  }

  #range(end: string): string {
    return this.#graph.add('Range', [this.#scalar(0), end, this.#scalar(1)])
  }

  #column(list: string): string {
    return this.#graph.add('Unsqueeze', [list, this.#graph.constant([1])])
  }

  #scalar(value: number): string {
    return this.#graph.constant(Constant.i64(value))
  }
}
