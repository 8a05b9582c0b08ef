// integer-operands.ts: the arrays that operations on numbers of 8 bits need, as operands.ts checks them.
import { expectInteger, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { IntegerKernelArgs, KernelArgs } from '../kernels.js'
import { convSizes } from './network-operands.js'

type Sizes = Readonly<Record<string, number>>

/** Arrays of a weight of `rows` features. */
function featureSizes(args: KernelArgs['linearInteger'] | KernelArgs['convInteger']): Sizes {
  const { rows } = args
  if (args.scale) expectOneOf('yDtype', args.yDtype, ['u8', 'i8'])
  return { 'wZero?': rows, 'wSum?': rows, 'bias?': rows, 'scale?': rows, 'yZero?': 1 }
}

function affineSizes(args: KernelArgs['quantize'] | KernelArgs['dequantize']): Sizes {
  const { dtype, outer, channels, inner } = args
  expectOneOf('dtype', dtype, ['u8', 'i8'])
  for (const [name, size] of Object.entries({ outer, channels, inner })) expectInteger(name, size, 0)
  const count = outer * channels * inner
  return { x: count, scale: channels, 'zero?': channels, y: count }
}

/** Names and lengths of the arrays of each operation; a name that ends in '?' may be absent. */
export const integerSizes: {
  readonly [Op in keyof IntegerKernelArgs]: (args: KernelArgs[Op]) => Sizes
} = {
  linearInteger: args => {
    const { tokens, rows, cols, packed } = args
    const w = packed ? Math.ceil(rows / 32) * Math.ceil(cols / 4) * 128 : rows * cols
    return { x: tokens * cols, w, 'xZero?': tokens, ...featureSizes(args), y: tokens * rows }
  },
  convInteger: args => {
    const { rows, cols } = args
    if (cols === 0) throw new SparkError('ERR_SHAPE', 'cols is 0')
    const { x, y } = convSizes(args, args)
    return { x, w: rows * Math.ceil(cols / 64) * 64, 'xZero?': 1, ...featureSizes(args), y }
  },
  quantize: affineSizes,
  dequantize: affineSizes,
  lookup: ({ count }) => ({ x: count, table: 256, y: count }),
  binaryBytes: args => {
    const { fn, count, aDtype, bDtype, yDtype } = args
    expectOneOf('fn', fn, ['add', 'mul'])
    for (const [name, dtype] of Object.entries({ aDtype, bDtype, yDtype }))
      expectOneOf(name, dtype, ['u8', 'i8'])
    const scales = { aScale: 1, 'aZero?': 1, bScale: 1, 'bZero?': 1, yScale: 1, 'yZero?': 1 }
    return { a: count, b: count, ...scales, y: count }
  },
  meanBytes: ({ rows, cols, xDtype, yDtype }) => {
    expectInteger('cols', cols, 1)
    for (const [name, dtype] of Object.entries({ xDtype, yDtype })) expectOneOf(name, dtype, ['u8', 'i8'])
    return { x: rows * cols, xScale: 1, 'xZero?': 1, yScale: 1, 'yZero?': 1, y: rows }
  },
}
