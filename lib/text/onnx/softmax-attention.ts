// softmax-attention.ts: attention whose exporter puts new keys and values behind those of the past: as products and a softmax, or as
// Attention without a past. It is found by where it begins, at the past, and ends, at the product of probabilities and values.
import { SparkError } from '../../core/errors.js'
import { describeNode, givenInt } from '../../graph/attributes.js'
import { consumersOf, producersOf } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import type { DecoderPorts } from './decoder-ports.js'

/** Attention of a layer. */
export interface SoftmaxSite {
  readonly layer: number
  /** The product of probabilities and values, or Attention: gives [1, heads, tokens, size]. */
  readonly node: Node
  /** Names of [1, heads, tokens, size]: queries, new keys, new values. */
  readonly query: string
  readonly key: string
  readonly value: string
  /** Keys and values of the past. */
  readonly pastKey: string
  readonly pastValue: string
  /** What the softmax reads, [1, heads, tokens, keys]; undefined for Attention. */
  readonly scores: string | undefined
  /** What is added to scores, or says which ones count. */
  readonly masks: readonly string[]
  /** Whether scores go through tanh. */
  readonly isCapped: boolean
}

/** Operators that keys and values go through on their way to a product; scores on theirs to a softmax; and probabilities. */
const moves = new Set([
  'Transpose',
  'Reshape',
  'Unsqueeze',
  'Squeeze',
  'Expand',
  'Tile',
  'Identity',
  'Cast',
  'Concat',
  'Mul',
  'Div',
])
const scoring = new Set(['Mul', 'Div', 'Add', 'Where', 'Tanh', 'Cast', 'Identity', 'Reshape'])
const afterwards = new Set(['Cast', 'Identity', 'Where', 'Dropout', 'Reshape'])

/**
 * Finds the attention of layers.
 * @param isVarying - whether a value depends on more than shapes
 * @throws SparkError ERR_UNSUPPORTED naming a node where attention has another form
 */
export function softmaxAttention(
  graph: Graph,
  ports: DecoderPorts,
  isVarying: (name: string) => boolean,
): SoftmaxSite[] {
  const search = new Search(graph, isVarying)
  return ports.layers.flatMap(({ keys, values }, layer) => {
    const [key, value] = [
      search.grown(keys, keys === values ? 0 : undefined),
      search.grown(values, keys === values ? 1 : undefined),
    ]
    return key && value ? [search.site(layer, key, value)] : []
  })
}

class Search {
  readonly #isVarying: (name: string) => boolean
  readonly #consumers: ReadonlyMap<string, readonly Node[]>
  readonly #producers: ReadonlyMap<string, Node>
  readonly #graph: Graph

  constructor(graph: Graph, isVarying: (name: string) => boolean) {
    this.#graph = graph
    this.#isVarying = isVarying
    this.#consumers = consumersOf(graph)
    this.#producers = producersOf(graph)
  }

  /** The node that puts new keys or values behind those of a past; `half` says which part of an input they are. */
  grown(past: string, half?: number): Node | undefined {
    const nodes = this.#graph.nodes.filter(({ op, inputs }) => op === 'Concat' && inputs.length === 2)
    return nodes.find(({ inputs: [first] }) => this.#isPast(first!, past, half))
  }

  #isPast(name: string, past: string, half: number | undefined): boolean {
    if (name === past) return half === undefined
    const node = this.#producers.get(name)
    if (!node) return false
    const isTrivial =
      node.op === 'Identity' || node.op === 'Cast' || (node.op === 'Concat' && node.inputs.length === 1)
    if (isTrivial) return this.#isPast(node.inputs[0]!, past, half)
    if (half === undefined || node.inputs[0] !== past) return false
    const index = this.#graph.initializers.get(node.inputs[1] ?? '')
    return (
      node.op === 'Gather' &&
      (givenInt(node, 'axis') ?? 0) === 0 &&
      index?.count === 1 &&
      index.integers()[0] === half
    )
  }

  site(layer: number, key: Node, value: Node): SoftmaxSite {
    const scored = this.#follow(key, moves, ['MatMul', 'Attention'])
    if (scored.end.op === 'Attention') return this.#operatorSite(layer, key, value, scored)
    const softmax = this.#follow(scored.end, scoring, ['Softmax'])
    const attended = this.#follow(softmax.end, afterwards, ['MatMul'])
    const fromValues = this.#follow(value, moves, ['MatMul'])
    if (fromValues.end !== attended.end)
      throw unknown(attended.end, 'its values are others than those of the past')
    if (scored.end.inputs[1] !== scored.value || attended.end.inputs[0] !== attended.value)
      throw unknown(scored.end, 'its operands are in another order')
    return {
      layer,
      node: attended.end,
      query: this.#unscaled(scored.end.inputs[0]!),
      key: key.inputs[1]!,
      value: value.inputs[1]!,
      pastKey: key.inputs[0]!,
      pastValue: value.inputs[0]!,
      scores: softmax.end.inputs[0]!,
      masks: softmax.way.flatMap(step => this.#masksOf(step)),
      isCapped: softmax.way.some(({ node }) => node.op === 'Tanh'),
    }
  }

  #operatorSite(layer: number, key: Node, value: Node, { end: node, value: own }: Way): SoftmaxSite {
    const fromValues = this.#follow(value, moves, ['Attention'])
    if (fromValues.end !== node || node.inputs[1] !== own || node.inputs[2] !== fromValues.value)
      throw unknown(node, 'its keys and values are others than those of the past')
    const [query = '', , , mask = '', ...others] = node.inputs
    if (others.some(name => name !== '')) throw unknown(node, 'it has a past beside that of its keys')
    return {
      ...{ layer, node, query, key: key.inputs[1]!, value: value.inputs[1]! },
      ...{ pastKey: key.inputs[0]!, pastValue: value.inputs[0]!, scores: undefined },
      masks: mask === '' ? [] : [mask],
      isCapped: false,
    }
  }

  /** The first node of one of `ends` behind `from`, over nodes of `through`. */
  #follow(from: Node, through: ReadonlySet<string>, ends: readonly string[]): Way {
    const queue: Way[] = [{ end: from, value: '', way: [] }]
    for (const { end, way } of queue) {
      const value = end.outputs[0]!
      for (const node of this.#consumers.get(value) ?? []) {
        if (ends.includes(node.op)) return { end: node, value, way }
        if (through.has(node.op)) queue.push({ end: node, value, way: [...way, { node, value }] })
      }
    }
    throw unknown(from, `no ${ends.join(' or ')} follows from what it gives`)
  }

  /** Operands of a step between the scores and their softmax that depend on lengths. */
  #masksOf({ node, value }: Step): string[] {
    if (node.op === 'Where') {
      if (node.inputs[1] !== value) throw unknown(node, 'it hides scores where its condition holds')
      return [node.inputs[0]!]
    }
    return node.op === 'Add' ? node.inputs.filter(name => name !== value) : []
  }

  /** Queries in front of a factor. */
  #unscaled(name: string): string {
    const node = this.#producers.get(name)
    if (node?.op !== 'Mul' && node?.op !== 'Div') return name
    const [first, second] = node.inputs
    if (!this.#isVarying(second!)) return first!
    return node.op === 'Mul' && !this.#isVarying(first!) ? second! : name
  }
}

/** A node on a way, and which of its inputs the way comes from. */
interface Step {
  readonly node: Node
  readonly value: string
}

interface Way {
  readonly end: Node
  /** The input of `end` that the way comes from. */
  readonly value: string
  readonly way: readonly Step[]
}

const unknown = (node: Node, why: string): SparkError =>
  new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: its attention has no form that is known: ${why}`)
