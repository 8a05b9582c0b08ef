// insert-lora.ts: puts LoRA adapters into a graph, as operators that have gradients.
import { SparkError } from '../../core/errors.js'
import { floatOf, int, intOf, ints } from '../attributes.js'
import type { Constant } from '../constant.js'
import { consumersOf, freshNames } from '../edit.js'
import { onnxNumbers } from '../element-types.js'
import { type Graph, makeNode, type Node, sparkDomain } from '../graph.js'
import { NodeBuilder } from '../node-builder.js'
import {
  type DoraTarget,
  doraParameters,
  expectFit,
  isLinear,
  isTransposed,
  layoutOf,
} from './insert-dora.js'

/** The adapter of one weight, W' = W + scale · B·A. */
export type LoraTarget = Omit<DoraTarget, 'magnitude' | 'normGradient'>

/** Names of the parameters of a target. */
export const loraParameters = (module: string): readonly [a: string, b: string] => {
  const [a, b] = doraParameters(module)
  return [a, b]
}

/** Where dropout belongs: adapters see a dropped input in the place of their own. */
export interface DropoutSites {
  /** Values that products of an input with A make. */
  readonly products: ReadonlySet<string>
  /** Adapted weights, taken apart: adapted = frozen + change. */
  readonly weights: ReadonlyMap<string, { readonly frozen: string; readonly change: string }>
}

/**
 * Puts an adapter beside each given weight. A `MatMul` or `Gemm` stays as it is, and scale · (x·Aᵀ)·Bᵀ is added to its
 * result; the weight of any other operator, such as `Conv`, is replaced by W + scale · B·A. A and B are read by
 * `FusedMatMul` nodes, so that precision modes, which round weights of products, leave them in f32.
 *
 * @throws SparkError ERR_ARGUMENT for a weight that is no initializer or is read by no node, or ERR_SHAPE when an
 * adapter does not fit its weight
 */
export function insertLora(
  graph: Graph,
  targets: readonly LoraTarget[],
): { readonly graph: Graph; readonly dropout: DropoutSites } {
  const scope = { fresh: freshNames(graph), initializers: new Map(graph.initializers) }
  const dropout = {
    products: new Set<string>(),
    weights: new Map<string, { frozen: string; change: string }>(),
  }
  const consumers = consumersOf(graph)
  let { nodes } = graph
  for (const target of targets) {
    const weight = graph.initializers.get(target.weight) ?? target.type
    const first = consumers.get(target.weight)?.find(({ inputs }) => inputs.includes(target.weight))
    if (!weight || !first) {
      throw new SparkError('ERR_ARGUMENT', `'${target.weight}' is no weight that a node reads`)
    }
    const inColumns = target.inColumns ?? isTransposed(first, target.weight)
    const { rows, cols } = layoutOf(inColumns, weight)
    expectFit(target, { rows, cols })
    const [a, b] = loraParameters(target.module)
    scope.initializers.set(a, target.a)
    scope.initializers.set(b, target.b)
    const insertion = new Insertion(
      { ...target, ...weight, weight: target.weight, inColumns, rows },
      scope,
      dropout,
    )
    nodes = nodes.flatMap(node => (node.inputs.includes(target.weight) ? insertion.adapt(node) : [node]))
  }
  const opsets = new Map([...graph.opsets, [sparkDomain, 1]])
  return { graph: { ...graph, nodes, initializers: scope.initializers, opsets }, dropout }
}

/** A target and what is known of its weight. */
interface Adapted extends LoraTarget {
  readonly dtype: Constant['dtype']
  readonly shape: readonly number[]
  readonly inColumns: boolean
  readonly rows: number
}

/** What an {@link Insertion} adds to. */
interface Scope {
  readonly fresh: (base: string) => string
  readonly initializers: Map<string, Constant>
}

/** Adapts the readers of one weight; they share the adapted weight. */
class Insertion {
  readonly #target: Adapted
  readonly #scope: Scope
  readonly #dropout: { products: Set<string>; weights: Map<string, { frozen: string; change: string }> }
  #adapted: string | undefined

  constructor(
    target: Adapted,
    scope: Scope,
    dropout: { products: Set<string>; weights: Map<string, { frozen: string; change: string }> },
  ) {
    this.#target = target
    this.#scope = scope
    this.#dropout = dropout
  }

  adapt(node: Node): Node[] {
    const { weight, inColumns } = this.#target
    const direct = isLinear(node, weight) && isTransposed(node, weight) === inColumns
    return direct ? this.#linear(node) : this.#other(node)
  }

  /** y = the node's own result + alpha · scale · (x·Aᵀ)·Bᵀ */
  #linear(node: Node): Node[] {
    const build = this.#builder(node)
    const [a, b] = loraParameters(this.#target.module)
    const [x = ''] = node.inputs
    const frozen = build.fresh(`${node.outputs[0]}/frozen`)
    build.append({ ...node, outputs: [frozen] })
    const wide = this.#cast(build, x, 'f32')
    const read = intOf(node, 'transA') === 0 ? wide : build.add('Transpose', [wide], { perm: ints([1, 0]) })
    const down = build.add('FusedMatMul', [read, a], { transB: int(1) }, sparkDomain)
    this.#dropout.products.add(down)
    const up = build.add('FusedMatMul', [down, b], { transB: int(1) }, sparkDomain)
    const change = this.#scaled(build, up, this.#target.scale * floatOf(node, 'alpha'))
    const narrow = this.#cast(build, change, this.#target.dtype)
    build.append(makeNode('Add', [frozen, narrow], node.outputs))
    return build.nodes
  }

  #other(node: Node): Node[] {
    const build = this.#builder(node)
    this.#adapted ??= this.#adaptedWeight(build)
    const { weight } = this.#target
    const inputs = node.inputs.map(name => (name === weight ? this.#adapted! : name))
    return [...build.nodes, { ...node, inputs }]
  }

  /** W + scale · B·A in the layout of W. */
  #adaptedWeight(build: NodeBuilder): string {
    const { weight, module, scale, shape, rows, inColumns, a: first, b: second } = this.#target
    const [a, b] = loraParameters(module)
    const rank = first.shape[0]!
    const matrix = (name: string, { shape }: Constant, sizes: readonly number[]): string =>
      shape.length === 2 ? name : build.add('Reshape', [name, build.constant(sizes)])
    const operands = [matrix(b, second, [rows, rank]), matrix(a, first, [rank, first.count / rank])]
    const product = build.add('FusedMatMul', operands, {}, sparkDomain)
    const scaled = this.#scaled(build, product, scale)
    const ordered = inColumns ? build.add('Transpose', [scaled], { perm: ints([1, 0]) }) : scaled
    const change = shape.length === 2 ? ordered : build.add('Reshape', [ordered, build.constant(shape)])
    const frozen = this.#cast(build, weight, 'f32')
    const adapted = build.add('Add', [frozen, change])
    this.#dropout.weights.set(adapted, { frozen, change })
    return this.#cast(build, adapted, this.#target.dtype)
  }

  #scaled(build: NodeBuilder, name: string, factor: number): string {
    return factor === 1
      ? name
      : build.add('Mul', [name, build.constant(factor, `${this.#target.weight}/factor`)])
  }

  #cast(build: NodeBuilder, name: string, to: Constant['dtype']): string {
    if (this.#target.dtype === 'f32') return name
    return build.add('Cast', [name], { to: int(onnxNumbers[to]) })
  }

  #builder(node: Node): NodeBuilder {
    const { fresh, initializers } = this.#scope
    const define = (name: string, value: Constant) => initializers.set(name, value)
    return new NodeBuilder({ fresh, define, base: op => `${node.outputs[0]}/LoRA/${op}` })
  }
}
