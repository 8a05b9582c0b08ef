// dropout.ts: dropout in front of adapters, for training.
import { float, int } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { type Graph, makeNode, type Node, sparkDomain, tensorType } from '../graph.js'
import type { DropoutSites } from './insert-lora.js'

/** Input that {@link addDropout} adds: u32 [3], the seed, the number of the step, and that of the part of the step. */
export const dropoutState = 'dropout/state'

/** A weight with an adapter, taken apart: adapted = frozen + change. */
interface Parts {
  readonly frozen: string
  readonly change: string
}

/** Operators that are linear in their first two inputs, the second one being the weight. */
const products = ['Conv', 'ConvTranspose', 'Gemm', 'MatMul']

/**
 * Lets adapters see d = mask ∘ x in the place of their input x, as PEFT does in training: y = x·Wᵀ + bias + d·(W' − W)ᵀ,
 * W' being the adapted weight. An element of the mask is 0 with probability `ratio` and else 1 / (1 − ratio), a function of
 * {@link dropoutState} and its place. A `DoRA` node reads the mask; a product with the weight of a `DoRAWeight` node
 * becomes two. Tables of embeddings are not changed.
 * @param sites - of LoRA adapters, which are standard nodes
 */
export function addDropout(graph: Graph, ratio: number, sites?: DropoutSites): Graph {
  const dropout = new Dropout(graph, ratio, sites)
  for (const node of graph.nodes) dropout.visit(node)
  return dropout.build()
}

class Dropout {
  readonly #builder: GraphBuilder
  readonly #ratio: number
  readonly #parts: Map<string, Parts>
  readonly #products: ReadonlySet<string>
  #masks = 0

  constructor(graph: Graph, ratio: number, sites?: DropoutSites) {
    this.#builder = new GraphBuilder(graph, 'dropout')
    this.#ratio = ratio
    this.#parts = new Map(sites?.weights)
    this.#products = sites?.products ?? new Set()
  }

  visit(node: Node): void {
    const [first = '', second = ''] = node.inputs
    if (node.domain === sparkDomain && node.op === 'DoRA') {
      const operands = Array.from({ length: 6 }, (_, i) => node.inputs[i] ?? '')
      this.#builder.append({ ...node, inputs: [...operands, this.#mask(first)] })
    } else if (this.#products.has(node.outputs[0]!)) {
      this.#builder.append({ ...node, inputs: [this.#dropped(first), second] })
    } else if (node.domain === '' && products.includes(node.op) && this.#parts.has(second)) {
      this.#split(node, this.#parts.get(second)!)
    } else {
      this.#builder.append(node)
      if (node.domain === sparkDomain && node.op === 'DoRAWeight') {
        const change = this.#builder.add('Sub', [node.outputs[0]!, first])
        this.#parts.set(node.outputs[0]!, { frozen: first, change })
      } else if (['Cast', 'Transpose'].includes(node.op) && this.#parts.has(first)) {
        const again = (name: string): string => this.#builder.add(node.op, [name], node.attributes)
        const { frozen, change } = this.#parts.get(first)!
        this.#parts.set(node.outputs[0]!, { frozen: again(frozen), change: again(change) })
      }
    }
  }

  build(): Graph {
    if (this.#masks > 0) this.#builder.input({ name: dropoutState, type: tensorType('u32', [3]) })
    return this.#builder.rebuild()
  }

  /** A mask of the shape of `x`. */
  #mask(x: string): string {
    const attributes = { ratio: float(this.#ratio), stream: int(this.#masks++) }
    return this.#builder.add('DropoutMask', [x, dropoutState], attributes, sparkDomain)
  }

  #dropped(x: string): string {
    return this.#builder.add('Mul', [x, this.#mask(x)])
  }

  #split(node: Node, { frozen, change }: Parts): void {
    const [x = '', , ...rest] = node.inputs
    const [base, learned] = ['frozen', 'change'].map(part =>
      this.#builder.fresh(`${node.outputs[0]}/${part}`),
    )
    this.#builder.append({ ...node, inputs: [x, frozen, ...rest], outputs: [base!] })
    this.#builder.append({ ...node, name: '', inputs: [this.#dropped(x), change], outputs: [learned!] })
    this.#builder.append(makeNode('Add', [base!, learned!], node.outputs))
  }
}
