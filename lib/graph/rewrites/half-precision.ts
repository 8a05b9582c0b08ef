// half-precision.ts: what enters and leaves matrix products, convolutions and attention is rounded to 16 bits, in both passes.
import { int } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { onnxNumbers } from '../element-types.js'
import { type Graph, makeNode, type Node, sparkDomain } from '../graph.js'
import { type Fact, inferFacts } from '../shape-inference.js'

/** Inputs of operators that multiply: the operands that are multiplied. A DoRA layer's A, B and magnitude stay f32. */
const operandsOf: Readonly<Record<string, readonly number[]>> = {
  MatMul: [0, 1],
  Gemm: [0, 1],
  Conv: [0, 1],
  ConvTranspose: [0, 1],
  DoRA: [0, 1],
  Attention: [0, 1, 2],
}

/**
 * Rounds the f32 operands and results of products to `dtype`; sums are f32 as before. A rounded value is a cast there and
 * back, so that its gradient is rounded, too: what PyTorch's autocast computes. In f16 gradients below 6e-8 vanish and
 * numbers beyond 65504 become infinite.
 */
export function roundProducts(graph: Graph, dtype: 'f16' | 'bf16'): Graph {
  const rounding = new Rounding(graph, inferFacts(graph), dtype)
  for (const node of graph.nodes) rounding.visit(node)
  return rounding.build()
}

class Rounding {
  readonly #facts: ReadonlyMap<string, Fact>
  readonly #dtype: 'f16' | 'bf16'
  readonly #builder: GraphBuilder
  /** Rounded values by the names of the values. */
  readonly #rounded = new Map<string, string>()

  constructor(graph: Graph, facts: ReadonlyMap<string, Fact>, dtype: 'f16' | 'bf16') {
    this.#facts = facts
    this.#dtype = dtype
    this.#builder = new GraphBuilder(graph, 'rounded')
  }

  visit(node: Node): void {
    const own = node.domain === (node.op === 'DoRA' ? sparkDomain : '')
    const operands = own && Object.hasOwn(operandsOf, node.op) ? operandsOf[node.op]! : []
    const [y = '', ...others] = node.outputs
    if (operands.length === 0 || !this.#isF32(y)) {
      this.#builder.append(node)
      return
    }
    const inputs = node.inputs.map((name, i) => (operands.includes(i) ? this.#round(name) : name))
    const exact = this.#builder.fresh(`${y}/exact`)
    this.#builder.append({ ...node, inputs, outputs: [exact, ...others] })
    this.#cast(exact, y)
    this.#rounded.set(y, y)
  }

  build(): Graph {
    return this.#builder.rebuild()
  }

  #isF32(name: string): boolean {
    const type = this.#facts.get(name)?.type
    return type?.kind === 'tensor' && type.dtype === 'f32'
  }

  #round(name: string): string {
    const known = this.#rounded.get(name)
    if (known !== undefined || !this.#isF32(name)) return known ?? name
    const result = this.#builder.fresh(`${name}/rounded`)
    this.#cast(name, result)
    this.#rounded.set(name, result)
    return result
  }

  /** `to` = `from`, rounded. */
  #cast(from: string, to: string): void {
    const narrow = this.#builder.add('Cast', [from], { to: int(onnxNumbers[this.#dtype]) })
    this.#builder.append(makeNode('Cast', [narrow], [to], { attributes: { to: int(onnxNumbers.f32) } }))
  }
}
