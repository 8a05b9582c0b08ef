// collective.ts: sums over the ranks of a world of one: plans of JavaScript call no communicator.
import { SparkError } from '../../core/errors.js'
import type { KernelArgs } from '../kernels.js'
import type { KernelRows } from './row.js'

function allReduce({ count, world, x, y }: KernelArgs['allReduce']): void {
  if (world !== 1)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `allReduce: the js backend is a world of one rank, not of ${world}`,
    )
  if (y !== x) y.set(x.subarray(0, count))
}

/** Contracts of collectives. */
export const collectiveRows: KernelRows<'allReduce'> = {
  allReduce: {
    kernel: allReduce,
    sizes: ['count', 'world'],
    operands: ({ count }) => ({ x: count, y: count }),
  },
}
