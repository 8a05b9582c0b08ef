// network-operands.ts: the arrays that convolutions, normalizations and attention need, as operands.ts checks them.
import { argumentError, expectInteger, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { ConvShape, HeadStrides, KernelArgs, NetworkKernelArgs, Weight } from '../kernels.js'
import { expectWindow } from './window-operands.js'
import { winogradSize } from './winograd.js'

type NetworkOp = keyof NetworkKernelArgs | 'conv' | 'convBackward' | 'convTranspose'
type Sizes = Readonly<Record<string, number>>

/** Of products without a weight. */
export function expectProductCompute(compute: string | undefined): void {
  const names = ['f32', 'bf16', 'f16']
  if (compute === undefined || names.includes(compute)) return
  throw new SparkError('ERR_UNSUPPORTED', `compute is '${compute}', not one of ${names.join(', ')}`)
}

function expectFits(fits: boolean, what: string): void {
  if (!fits) throw new SparkError('ERR_SHAPE', what)
}

/** Elements of the arrays of a convolution. */
export function convSizes(shape: ConvShape, { rows, cols }: Pick<Weight, 'rows' | 'cols'>) {
  expectWindow(shape, { padsBegin: -(2 ** 31 - 1) })
  expectInteger('groups', shape.groups, 1)
  const taps = numel(shape.kernel)
  const [groups, kernel] = [`${shape.groups} groups`, `a kernel of ${taps} taps`]
  expectFits(
    rows % shape.groups === 0 && cols % taps === 0,
    `a weight of ${rows} x ${cols} does not fit ${groups} and ${kernel}`,
  )
  const channels = (cols / taps) * shape.groups
  return {
    channels,
    filters: rows,
    weight: rows * cols,
    x: shape.batch * channels * numel(shape.image),
    y: shape.batch * rows * numel(shape.out),
  }
}

/** Elements of a normalized matrix and of its scale. */
function normSizes({ rows, cols, groups, inner }: KernelArgs['norm'] | KernelArgs['normBackward']) {
  expectInteger('cols', cols, 1)
  expectInteger('groups', groups, 1)
  expectInteger('inner', inner, 1)
  expectFits(cols % inner === 0, `cols is ${cols}, not a multiple of inner, ${inner}`)
  expectFits(rows % groups === 0, `rows is ${rows}, not a multiple of groups, ${groups}`)
  return { all: rows * cols, scales: (groups * cols) / inner }
}

function extent(name: string, strides: HeadStrides, sizes: readonly number[], width: number): number {
  if (!Array.isArray(strides) || strides.length !== 3) {
    throw argumentError(name, 'an array of three strides', strides)
  }
  for (const stride of strides) expectInteger(name, stride, 0)
  if (width === 0 || sizes.includes(0)) return 0
  return strides.reduce((sum, stride, axis) => sum + (sizes[axis]! - 1) * stride, width)
}

function attentionSizes(args: KernelArgs['attention'] | KernelArgs['attentionBackward']) {
  const { batch, heads, kvHeads, queries, keys, depth, valueDepth } = args
  for (const [name, size] of Object.entries({ heads, queries, keys, depth, valueDepth })) {
    expectInteger(name, size, 0)
  }
  expectInteger('kvHeads', kvHeads, 1)
  expectNumber('scale', args.scale)
  expectFits(heads % kvHeads === 0, `heads is ${heads}, not a multiple of kvHeads, ${kvHeads}`)
  const { qStrides, kStrides, vStrides, yStrides, mask, maskStrides } = args
  return {
    q: extent('qStrides', qStrides, [batch, heads, queries], depth),
    k: extent('kStrides', kStrides, [batch, kvHeads, keys], depth),
    v: extent('vStrides', vStrides, [batch, kvHeads, keys], valueDepth),
    y: extent('yStrides', yStrides, [batch, heads, queries], valueDepth),
    ...(mask && { mask: extent('maskStrides', maskStrides!, [batch, heads, queries], keys) }),
    rows: batch * heads * queries,
  }
}

const batchSize = ({
  batch,
  channels,
  positions,
}: KernelArgs['batchNorm'] | KernelArgs['batchStatistics'] | KernelArgs['batchNormBackward']) => {
  expectInteger('channels', channels, 0)
  expectInteger('positions', positions, 0)
  return batch * channels * positions
}

/** Names and lengths of the arrays of each operation; a name that ends in '?' may be absent. */
export const networkSizes: { readonly [Op in NetworkOp]: (args: KernelArgs[Op]) => Sizes } = {
  conv: args => {
    const { x, y, filters } = convSizes(args, args.weight)
    const { rows, cols } = args.weight
    return {
      x,
      'bias?': filters,
      'residual?': y,
      y,
      ...(args.winograd && { winograd: winogradSize(rows, cols) }),
    }
  },
  convBackward: args => {
    const { x, y, weight, filters } = convSizes(args, args.weight)
    return { [args.dweight ? 'x' : 'x?']: x, dy: y, 'dx?': x, 'dweight?': weight, 'dbias?': filters }
  },
  convTranspose: args => {
    const { x, y, channels } = convSizes(args, args.weight)
    return { x: y, 'bias?': channels, y: x }
  },
  softmax: ({ rows, cols }) => ({ x: rows * cols, y: rows * cols }),
  softmaxBackward: ({ rows, cols }) => ({ y: rows * cols, dy: rows * cols, dx: rows * cols }),
  norm: args => {
    const { all, scales } = normSizes(args)
    return { x: all, 'scale?': scales, 'bias?': scales, y: all, 'mean?': args.rows, 'invStd?': args.rows }
  },
  normBackward: args => {
    const { all, scales } = normSizes(args)
    return {
      x: all,
      'scale?': scales,
      [args.centered ? 'mean' : 'mean?']: args.rows,
      invStd: args.rows,
      dy: all,
      'dx?': all,
      'dscale?': scales,
      'dbias?': scales,
    }
  },
  batchStatistics: args => {
    const x = batchSize(args)
    expectFits(args.batch > 0 && args.positions > 0, 'there is nothing to take statistics of')
    return { x, mean: args.channels, variance: args.channels }
  },
  batchNorm: args => {
    const { channels } = args
    const x = batchSize(args)
    return { x, mean: channels, variance: channels, 'scale?': channels, 'bias?': channels, y: x }
  },
  batchNormBackward: args => {
    const { channels } = args
    const x = batchSize(args)
    const inputs = { x, mean: channels, variance: channels, 'scale?': channels, dy: x }
    return { ...inputs, 'dx?': x, 'dscale?': channels, 'dbias?': channels }
  },
  attention: args => {
    expectProductCompute(args.compute)
    const { rows, ...arrays } = attentionSizes(args)
    return { ...arrays, 'logSum?': rows }
  },
  attentionBackward: args => {
    const { rows, ...arrays } = attentionSizes(args)
    const { q, k, v, y } = arrays
    return { ...arrays, logSum: rows, dy: y, 'dq?': q, 'dk?': k, 'dv?': v }
  },
  softmaxCrossEntropy: ({ tokens, classes }) => ({
    logits: tokens * classes,
    labels: tokens,
    loss: 1,
    'dlogits?': tokens * classes,
  }),
}
