// pool.ts: pooling by windows and over whole planes.

import { numel } from '../../core/shape.js'
import { fixSize, type Size, sameSize } from '../../core/size.js'
import { sparkDomain } from '../../graph/graph.js'
import type { PoolFn } from '../../kernels/layer-args.js'
import type { Lowering } from '../lowering.js'
import { addBinary } from './elementwise.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'
import { type Window, windowOf } from './window.js'

/** The windows over input `x` to an output of the shape `y`. */
function poolWindows(ctx: Lowering, x: number, y: readonly Size[]) {
  const kernel = ctx.integersOf('kernel_shape') ?? []
  const countPad = ctx.integer('count_include_pad') !== 0
  const planes = numel(ctx.shape(x).slice(0, 2))
  return { dtype: 'f32' as const, planes, countPad, ...windowOf(ctx, ctx.shape(x), y, kernel) }
}

/** Whether there is one window, which is the image. */
const isWhole = ({ image, kernel, dilations, padsBegin, out }: Window): boolean =>
  dilations.every(dilation => dilation === 1) &&
  sameSize(numel(out), 1) &&
  image.every((size, axis) => sameSize(kernel[axis]!, size) && sameSize(padsBegin[axis]!, 0))

const pool =
  (fn: PoolFn) =>
  (ctx: Lowering): void => {
    if (ctx.integer('storage_order') !== 0) throw ctx.unsupported('column-major Indices are not supported')
    const windows = poolWindows(ctx, 0, ctx.output().shape)
    if (fn === 'average' && isWhole(windows)) globalPool('mean')(ctx)
    else ctx.step('pool', { fn, ...windows, x: ctx.read(0), y: ctx.write(), indices: ctx.result(1) })
  }

/** Bytes are compared as they are where there are kernels for them. */
function maxPool(ctx: Lowering): void {
  const dtype = ctx.dtype()
  if (!ctx.bytes || (dtype !== 'u8' && dtype !== 'i8') || ctx.wants(1)) {
    ctx.inF32(pool('max'))
    return
  }
  const windows = poolWindows(ctx, 0, ctx.output().shape)
  ctx.step('pool', { fn: 'max', ...windows, dtype, x: ctx.read(0), y: ctx.write() })
}

/** dy, x → dx; a mean sees the shape of x only. */
const poolGrad =
  (fn: PoolFn) =>
  (ctx: Lowering): void => {
    const x = fn === 'max' ? ctx.read(1) : undefined
    ctx.step('poolBackward', {
      fn,
      ...poolWindows(ctx, 1, ctx.shape(0)),
      x,
      dy: ctx.read(0),
      dx: ctx.write(),
    })
  }

/** All axes behind the channels. */
const planeAxes = (shape: readonly Size[]): Set<number> => new Set(shape.map((_, axis) => axis).slice(2))

const globalPool =
  (fn: 'mean' | 'max') =>
  (ctx: Lowering): void =>
    addReduce(ctx, fn, [ctx.read(0), ctx.shape(0)], planeAxes(ctx.shape(0)), ctx.write())

/** dy, x → dx */
function globalAverageGrad(ctx: Lowering): void {
  const factor = ctx.scalar(1 / fixSize(numel(ctx.shape(1).slice(2))))
  addBinary(ctx, 'mul', [ctx.read(0), ctx.shape(0)], [factor, []], [ctx.write(), ctx.shape(1)])
}

/** Lowerings of pooling. */
export const pooling: LowerTable = {
  '': {
    MaxPool: maxPool,
    AveragePool: ctx => ctx.inF32(pool('average')),
    GlobalAveragePool: globalPool('mean'),
    GlobalMaxPool: globalPool('max'),
  },
  [sparkDomain]: {
    MaxPoolGrad: poolGrad('max'),
    AveragePoolGrad: poolGrad('average'),
    GlobalAveragePoolGrad: globalAverageGrad,
  },
}
