// step-time.ts: how long the steps of a plan take, and how many operations they are.
import { numel } from '../core/shape.js'
import { add, multiply, type Size } from '../core/size.js'
import type { KernelOp } from '../kernels/kernels.js'
import type { Step } from './program.js'

/** How long one kernel call of a plan takes. */
export interface StepTime {
  /** Name of the operation. */
  readonly op: KernelOp
  /** The node that it computes: its name, or that of its first output. */
  readonly node: string
  /** Sizes of its operands in elements. */
  readonly sizes: readonly number[]
  /**
   * Floating-point operations (for integers: integer ones) of its sums of products, two for each product; 0 for operations without
   * such sums. A convolution counts as it is written, also where it is computed with fewer.
   */
  readonly flops: number
  /** The shortest of all runs, in milliseconds. On backends without a clock for steps the call from JavaScript is in it. */
  readonly ms: number
}

/**
 * Operations of the sums of products of a step, two for each product, as its formula is written: Winograd's tiles need fewer,
 * and what a causal mask hides counts. 0 for all other steps.
 */
export function stepFlops(step: Step): Size {
  switch (step.op) {
    case 'linear':
      return multiply(2, step.args.tokens, step.args.weight.rows, step.args.weight.cols)
    case 'linearInteger':
      return multiply(2, step.args.tokens, step.args.rows, step.args.cols)
    case 'matmul': {
      const { outer, inner, m, n, k } = step.args
      return multiply(2, outer, inner, m, n, k)
    }
    case 'conv':
    case 'convTranspose': {
      const { batch, out, weight } = step.args
      return multiply(2, batch, numel(out), weight.rows, weight.cols)
    }
    case 'convInteger': {
      const { batch, out, rows, cols } = step.args
      return multiply(2, batch, numel(out), rows, cols)
    }
    case 'pointwiseDepthwise': {
      const { batch, image, out, pointwise, weight } = step.args
      const first = multiply(numel(image), pointwise.rows, pointwise.cols)
      return multiply(2, batch, add(first, multiply(numel(out), weight.rows, weight.cols)))
    }
    case 'attention': {
      const { batch, heads, queries, keys, depth, valueDepth } = step.args
      return multiply(2, batch, heads, queries, keys, add(depth, valueDepth))
    }
    case 'recurrent': {
      const { cell, directions, steps, batch, hidden } = step.args
      const gates = { rnn: 1, gru: 3, lstm: 4 }[cell]
      return multiply(2, directions, steps, batch, gates, hidden, hidden)
    }
    default:
      return 0
  }
}
