// straight-through.ts: codes that only move between QuantizeLinear and DequantizeLinear move as the numbers that they stand
// for, which have gradients.
import { producersOf } from '../edit.js'
import { type Graph, makeNode, type Node } from '../graph.js'
import { removeDead } from './remove-dead.js'

/** Operators that choose or move elements of their first input, whatever these are; `Concat` those of all inputs. */
const moves = new Set([
  'Reshape',
  'Transpose',
  'Flatten',
  'Squeeze',
  'Unsqueeze',
  'Identity',
  'Expand',
  'Tile',
  'Slice',
  'Split',
  'Gather',
  'Concat',
  'MaxPool',
])

/**
 * The graph in which a `DequantizeLinear` directly follows each `QuantizeLinear` whose codes only move before they are
 * dequantized with the same scale and zero point, one for all of them; they move behind it. The results are the same.
 */
export function straightThrough(graph: Graph): Graph {
  const mover = new Mover(graph)
  const nodes = graph.nodes.map(node => {
    const number = node.op === 'DequantizeLinear' && node.domain === '' ? mover.numberOf(node) : undefined
    return number === undefined ? node : makeNode('Identity', [number], node.outputs, { name: node.name })
  })
  if (mover.added.size === 0) return graph
  return removeDead({ ...graph, nodes: nodes.flatMap(node => [node, ...(mover.added.get(node) ?? [])]) })
}

/** What codes are multiplied by and count from, as names of values. */
interface Steps {
  readonly scale: string
  readonly zero: string
}

class Mover {
  /** Nodes on numbers, by the node on codes that they come behind. */
  readonly added = new Map<Node, Node[]>()
  readonly #graph: Graph
  readonly #producers: ReadonlyMap<string, Node>
  /** Names of numbers by those of their codes and steps. */
  readonly #numbers = new Map<string, string>()

  constructor(graph: Graph) {
    this.#graph = graph
    this.#producers = producersOf(graph)
  }

  /** The name of what a node dequantizes, as numbers; undefined where its codes do not only move, or do not move at all. */
  numberOf({ inputs: [codes = '', scale = '', zero = ''] }: Node): string | undefined {
    const steps = { scale, zero }
    const isSingle = this.#graph.initializers.get(scale)?.count === 1
    const isDirect = this.#producers.get(codes)?.op === 'QuantizeLinear'
    return isSingle && !isDirect && this.#onlyMoves(codes, steps) ? this.#move(codes, steps) : undefined
  }

  #onlyMoves(codes: string, steps: Steps): boolean {
    const node = this.#producers.get(codes)
    if (node?.domain !== '') return false
    if (node.op === 'QuantizeLinear') {
      return this.#isSame(node.inputs[1]!, steps.scale) && this.#isSame(node.inputs[2] ?? '', steps.zero)
    }
    const isFirst = codes === node.outputs[0] || node.op === 'Split'
    return moves.has(node.op) && isFirst && movedInputs(node).every(name => this.#onlyMoves(name, steps))
  }

  /** Whether two values are one, or constants of the same bytes. */
  #isSame(a: string, b: string): boolean {
    const [one, two] = [this.#graph.initializers.get(a), this.#graph.initializers.get(b)]
    if (a === b || !one || !two) return a === b
    return one.dtype === two.dtype && Buffer.compare(one.bytes, two.bytes) === 0
  }

  /** The name of codes as numbers; adds the nodes that make them. */
  #move(codes: string, steps: Steps): string {
    const key = (name: string): string => JSON.stringify([name, steps.scale, steps.zero])
    const known = this.#numbers.get(key(codes))
    if (known !== undefined) return known
    const node = this.#producers.get(codes)!
    const numbers = node.outputs.map(name => name && `${name}/${steps.scale}/number`)
    node.outputs.forEach((name, i) => {
      if (name !== '') this.#numbers.set(key(name), numbers[i]!)
    })
    const made =
      node.op === 'QuantizeLinear'
        ? makeNode('DequantizeLinear', [codes, ...node.inputs.slice(1)], numbers)
        : { ...node, inputs: this.#movedOperands(node, steps), outputs: numbers }
    this.added.set(node, [...(this.added.get(node) ?? []), made])
    return this.#numbers.get(key(codes))!
  }

  #movedOperands(node: Node, steps: Steps): string[] {
    const moved = movedInputs(node).length
    return node.inputs.map((name, i) => (i < moved ? this.#move(name, steps) : name))
  }
}

const movedInputs = ({ op, inputs }: Node): readonly string[] =>
  op === 'Concat' ? inputs : inputs.slice(0, 1)
