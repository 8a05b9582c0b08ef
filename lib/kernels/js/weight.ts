// weight.ts: layouts of weights in the js backend, and their contracts.
import { SparkError } from '../../core/errors.js'
import { formatInfo, linearFormats } from '../../weights/formats.js'
import { packWeight, panelSizes } from '../../weights/panels.js'
import type { WeightKernelArgs } from '../kernels.js'
import { elements, type KernelRows } from './row.js'
import { winogradSize, winogradWeight } from './winograd.js'

/** Contracts of the layouts. */
export const weightRows: KernelRows<keyof WeightKernelArgs> = {
  packWeight: {
    kernel: ({ weight, data, blockScale, transposed }) => packWeight(weight, data, blockScale, transposed),
    formats: linearFormats,
    operands({ weight, transposed }) {
      if (transposed && weight.format !== 'f32')
        throw new SparkError(
          'ERR_ARGUMENT',
          `transposed is true, but a weight of ${weight.format} is in rows`,
        )
      const sizes = panelSizes(weight)
      return {
        data: elements(formatInfo(weight.format).dtype, sizes.data),
        blockScale: sizes.blockScale > 0 ? elements('u8', sizes.blockScale) : undefined,
      }
    },
  },
  winogradWeight: {
    kernel: winogradWeight,
    operands: ({ weight: { rows, cols } }) => ({ data: winogradSize(rows, cols) }),
  },
}
