// closers.ts: products that sum over what ranks have parts of: each rank gives a summand of the result.
import { floatOf, givenInt, intOf } from '../../attributes.js'
import { type Node, sparkDomain } from '../../graph.js'
import type { SplitFacts } from './facts.js'
import { type Layout, plain } from './layout.js'

/** A product of a constant weight. */
export interface Linear {
  /** Index of the bias among the inputs. */
  readonly bias: number
  /** Axis of the out features, of the weight and of the output. */
  readonly out: { readonly weight: number; readonly output: number }
  /** In features of the first input and of the weight, in parts; undefined where ranks do not divide them. */
  readonly summed: readonly [Layout, Layout] | undefined
}

/** What is known of a product of a constant weight; undefined for other nodes. */
export function linearOf(node: Node, facts: SplitFacts): Linear | undefined {
  const rank = facts.shape(node.inputs[0] ?? '')?.length
  if (rank === undefined || !facts.isFixed(node.inputs[1])) return undefined
  const linear = (
    axis: number,
    weightIn: number,
    weightOut: number,
    output: number,
    bias: number,
  ): Linear => {
    const [size, own] = [facts.size(node.inputs[1]!, weightIn), facts.size(node.inputs[0]!, axis)]
    const isCut = facts.divides(size) && size === own
    return {
      bias,
      out: { weight: weightOut, output },
      summed: isCut ? [plain(axis, size), plain(weightIn, size)] : undefined,
    }
  }
  if (node.domain === sparkDomain)
    return node.op === 'ExpertLinear' ? linear(rank - 1, 2, 1, 2, 3) : undefined
  if (node.domain !== '') return undefined
  if (node.op === 'MatMul' && facts.shape(node.inputs[1]!)?.length === 2 && rank >= 2)
    return linear(rank - 1, 0, 1, rank - 1, 2)
  if (node.op === 'Conv' && givenInt(node, 'group') !== undefined && intOf(node, 'group') !== 1)
    return undefined
  if (node.op === 'Conv') return linear(1, 1, 0, 1, 2)
  if (node.op !== 'Gemm' || (node.inputs[2] && floatOf(node, 'beta') !== 1)) return undefined
  const transB = intOf(node, 'transB')
  return linear(intOf(node, 'transA') ? 0 : 1, transB ? 1 : 0, transB ? 0 : 1, 1, 2)
}
