// statistics.ts: counts of operations and bytes of a graph.
import { elementBytes } from '../core/dtype.js'
import { numel } from '../core/shape.js'
import { intOf } from './attributes.js'
import { subgraphsOf } from './edit.js'
import type { Node, Subgraph } from './graph.js'
import { isRecurrent } from './recurrent.js'
import type { Fact } from './shape-inference.js'

/** Numbers about a graph, its subgraphs included. */
export interface GraphStatistics {
  /** Nodes of each operator, the most frequent first. */
  readonly operators: readonly (readonly [operator: string, count: number])[]
  /** Elements of all weights and constants, and their bytes as they are stored. */
  readonly parameters: number
  readonly parameterBytes: number
  /** Multiplications and additions of a run: two for each term of a product, one for each element elsewhere. */
  readonly flops: number
  /** Bytes of all values that nodes make. */
  readonly activationBytes: number
  /** Nodes whose sizes are not known and which are therefore missing in `flops` and `activationBytes`. */
  readonly unknown: number
}

/** Counts; a branch counts as if it ran, a loop as if it ran once. */
export function graphStatistics(graph: Subgraph, facts: ReadonlyMap<string, Fact>): GraphStatistics {
  const operators = new Map<string, number>()
  const total = { parameters: 0, parameterBytes: 0, flops: 0, activationBytes: 0, unknown: 0 }
  const visit = ({ nodes, initializers }: Subgraph): void => {
    for (const { count, byteLength } of initializers.values()) {
      total.parameters += count
      total.parameterBytes += byteLength
    }
    for (const node of nodes) {
      const name = node.domain === '' ? node.op : `${node.domain}::${node.op}`
      operators.set(name, (operators.get(name) ?? 0) + 1)
      const work = workOf(node, facts)
      if (work) {
        total.flops += work.flops
        total.activationBytes += work.bytes
      } else total.unknown++
      for (const inner of subgraphsOf(node)) visit(inner)
    }
  }
  visit(graph)
  return { operators: [...operators].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)), ...total }
}

function sizesOf(name: string | undefined, facts: ReadonlyMap<string, Fact>): readonly number[] | undefined {
  const type = facts.get(name ?? '')?.type
  if (type?.kind !== 'tensor' || !type.shape?.every(size => typeof size === 'number')) return undefined
  return type.shape as readonly number[]
}

/** Arithmetic and bytes of the outputs of a node; undefined when sizes are not known. */
export function workOf(
  node: Node,
  facts: ReadonlyMap<string, Fact>,
): { flops: number; bytes: number } | undefined {
  let [elements, bytes] = [0, 0]
  for (const name of node.outputs.filter(name => name !== '')) {
    const [sizes, type] = [sizesOf(name, facts), facts.get(name)?.type]
    if (!sizes || type?.kind !== 'tensor') return undefined
    elements += numel(sizes)
    bytes += elementBytes(type.dtype, numel(sizes))
  }
  if (isRecurrent(node)) {
    const flops = recurrentFlops(node, facts)
    return flops === undefined ? undefined : { flops, bytes }
  }
  const terms = termsOf(node, facts)
  if (terms === undefined) return undefined
  return { flops: terms * elements, bytes }
}

/** Products of all steps of a recurrent layer with what comes in and with the state; the functions are little beside them. */
function recurrentFlops(node: Node, facts: ReadonlyMap<string, Fact>): number | undefined {
  const [x, w, r] = [0, 1, 2].map(i => sizesOf(node.inputs[i], facts))
  return x && w && r && 2 * x[0]! * x[1]! * (numel(w) + numel(r))
}

/** Operators that only move elements or see them in another shape. */
const movement = new Set(
  'Identity Reshape Flatten Squeeze Unsqueeze Transpose Expand Concat Split Slice Gather Shape Size Constant Pad Tile Cast'.split(
    ' ',
  ),
)

/** Arithmetic for one element of the outputs. */
function termsOf(node: Node, facts: ReadonlyMap<string, Fact>): number | undefined {
  const sizes = (i: number): readonly number[] | undefined => sizesOf(node.inputs[i], facts)
  switch (node.op) {
    case 'MatMul':
    case 'MatMulInteger':
    case 'FusedMatMul': {
      const left = sizes(0)
      return left && 2 * left.at(intOf(node, 'transA') ? -2 : -1)!
    }
    case 'Gemm': {
      const left = sizes(0)
      return left && 2 * left.at(intOf(node, 'transA') ? 0 : 1)!
    }
    case 'DoRA': {
      const [weight, a] = [sizes(1), sizes(2)]
      return weight && a && 2 * weight[1]! + 2 * a[0]!
    }
    case 'ExpertLinear':
    case 'FusedLinear': {
      const left = sizes(0)
      return left && 2 * left.at(-1)!
    }
    case 'Attention': {
      const keys = sizes(1)
      return keys && 4 * keys.at(-2)!
    }
    case 'Conv':
    case 'FusedConv':
    case 'ConvInteger': {
      const weight = sizes(1)
      return weight && 2 * numel(weight.slice(1))
    }
    case 'QLinearConv': {
      const weight = sizes(3)
      return weight && 2 * numel(weight.slice(1))
    }
    default:
      return movement.has(node.op) ? 0 : 1
  }
}
