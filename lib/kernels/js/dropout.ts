// dropout.ts: the mask of dropout from random words that a counter names.
import { expectNumber } from '../../core/checks.js'
import { philox } from '../../core/philox.js'
import type { KernelArgs } from '../kernels.js'
import { elements, type KernelRows } from './row.js'

/** mask[i] = 0 with probability `ratio`, else 1 / (1 − ratio); see `DropoutMaskArgs` in native/backend/layer_args.h. */
function dropoutMask({ count, ratio, stream, state, mask }: KernelArgs['dropoutMask']): void {
  const [seed = 0, step = 0, part = 0] = state
  const threshold = Math.floor(ratio * 2 ** 32)
  const keep = ratio < 1 ? Math.fround(1 / (1 - ratio)) : 0
  for (let start = 0; start < count; start += 4) {
    const block = start / 4
    const words = philox([block >>> 0, Math.floor(block / 2 ** 32), step, part], [seed, stream])
    for (let i = start; i < Math.min(start + 4, count); i++) {
      mask[i] = words[i - start]! < threshold ? 0 : keep
    }
  }
}

/** Contract of the mask. */
export const dropoutRows: KernelRows<'dropoutMask'> = {
  dropoutMask: {
    kernel: dropoutMask,
    sizes: ['count', 'stream'],
    check: ({ ratio }) => expectNumber('ratio', ratio, 0, 1),
    operands: ({ count }) => ({ state: elements('u32', 3), mask: count }),
  },
}
