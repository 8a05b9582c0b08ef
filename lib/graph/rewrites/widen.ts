// widen.ts: a model of 16 bits that computes in f32, so that it can be differentiated.
import { isHalf } from '../../core/dtype.js'
import { int, intOf } from '../attributes.js'
import { GraphBuilder } from '../builder.js'
import { elementTypeOf, onnxNumbers } from '../element-types.js'
import { type Graph, makeNode, type Node } from '../graph.js'
import { type Fact, inferFacts } from '../shape-inference.js'

/**
 * Replaces values of f16 and bf16 by f32: inputs and initializers keep their types and are widened where they are read,
 * casts to 16 bits become casts to f32. Results are those of the model but for the rounding in between.
 */
export function widenHalves(graph: Graph): Graph {
  const facts = inferFacts(graph)
  if (![...facts.values()].some(holdsHalves)) return graph
  const widening = new Widening(graph, facts)
  for (const node of graph.nodes) widening.visit(node)
  return widening.build()
}

const holdsHalves = (fact: Fact | undefined): boolean =>
  fact?.type?.kind === 'tensor' && isHalf(fact.type.dtype)

class Widening {
  readonly #facts: ReadonlyMap<string, Fact>
  readonly #builder: GraphBuilder
  /** Names of what is widened, by the names of what is not. */
  readonly #wide = new Map<string, string>()

  constructor(graph: Graph, facts: ReadonlyMap<string, Fact>) {
    this.#facts = facts
    this.#builder = new GraphBuilder(graph, 'widened')
    const given = [...graph.inputs.map(({ name }) => name), ...graph.initializers.keys()]
    for (const name of given) if (this.#holdsHalves(name)) this.#widen(name)
  }

  visit(node: Node): void {
    const inputs = node.inputs.map(name => this.#wide.get(name) ?? name)
    this.#builder.append({ ...node, inputs, attributes: wideAttributes(node) })
    // What is made of nothing in 16 bits, such as a ConstantOfShape, has its type from an attribute.
    if (node.op === 'Cast' || node.inputs.some(name => this.#holdsHalves(name))) return
    for (const name of node.outputs) if (this.#holdsHalves(name)) this.#widen(name)
  }

  build(): Graph {
    const built = this.#builder.rebuild()
    return {
      ...built,
      outputs: built.outputs.map(({ name }) => ({ name: this.#wide.get(name) ?? name })),
      values: new Map(),
    }
  }

  #holdsHalves(name: string): boolean {
    return holdsHalves(this.#facts.get(name))
  }

  #widen(name: string): void {
    const wide = this.#builder.fresh(`${name}/wide`)
    this.#builder.append(makeNode('Cast', [name], [wide], { attributes: { to: int(onnxNumbers.f32) } }))
    this.#wide.set(name, wide)
  }
}

function wideAttributes(node: Node): Node['attributes'] {
  if (node.domain !== '' || node.op !== 'Cast') return node.attributes
  const isNarrowing = isHalf(elementTypeOf(intOf(node, 'to'), 'Cast: to'))
  return isNarrowing ? { ...node.attributes, to: int(onnxNumbers.f32) } : node.attributes
}
