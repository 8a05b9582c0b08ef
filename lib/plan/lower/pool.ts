// pool.ts: pooling by windows and over whole planes.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { PoolFn } from '../../kernels/layer-kernel-args.js'
import type { Lowering } from '../lowering.js'
import { addBinary } from './elementwise.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'
import { type Window, windowOf } from './window.js'

/** The windows over input `x` to an output of the shape `y`. */
function poolWindows(at: Lowering, x: number, y: readonly number[]) {
  const kernel = at.integersOf('kernel_shape') ?? []
  const countPad = at.integer('count_include_pad', 0) !== 0
  const planes = numel(at.shape(x).slice(0, 2))
  return { dtype: 'f32' as const, planes, countPad, ...windowOf(at, at.shape(x), y, kernel) }
}

/** Whether there is one window, which is the image. */
const isWhole = ({ image, kernel, dilations, padsBegin, out }: Window): boolean =>
  numel(out) === 1 &&
  image.every((size, axis) => kernel[axis] === size && dilations[axis] === 1 && padsBegin[axis] === 0)

const pool =
  (fn: PoolFn) =>
  (at: Lowering): void => {
    if (at.integer('storage_order', 0) !== 0) throw at.unsupported('column-major Indices are not supported')
    const windows = poolWindows(at, 0, at.output().shape)
    if (fn === 'average' && isWhole(windows)) globalPool('mean')(at)
    else at.step('pool', { fn, ...windows, x: at.read(0), y: at.write(), indices: at.result(1) })
  }

/** Bytes are compared as they are where there are kernels for them. */
function maxPool(at: Lowering): void {
  const dtype = at.dtype()
  if (!at.bytes || (dtype !== 'u8' && dtype !== 'i8') || at.wants(1)) {
    at.inF32(pool('max'))
    return
  }
  const windows = poolWindows(at, 0, at.output().shape)
  at.step('pool', { fn: 'max', ...windows, dtype, x: at.read(0), y: at.write() })
}

/** dy, x → dx; a mean sees the shape of x only. */
const poolGrad =
  (fn: PoolFn) =>
  (at: Lowering): void => {
    const x = fn === 'max' ? at.read(1) : undefined
    at.step('poolBackward', { fn, ...poolWindows(at, 1, at.shape(0)), x, dy: at.read(0), dx: at.write() })
  }

/** All axes behind the channels. */
const planeAxes = (shape: readonly number[]): Set<number> => new Set(shape.map((_, axis) => axis).slice(2))

const globalPool =
  (fn: 'mean' | 'max') =>
  (at: Lowering): void =>
    addReduce(at, fn, [at.read(0), at.shape(0)], planeAxes(at.shape(0)), at.write())

/** dy, x → dx */
function globalAverageGrad(at: Lowering): void {
  const factor = at.scalar(1 / numel(at.shape(1).slice(2)))
  addBinary(at, 'mul', [at.read(0), at.shape(0)], [factor, []], [at.write(), at.shape(1)])
}

/** Lowerings of pooling. */
export const pooling: LowerTable = {
  '': {
    MaxPool: maxPool,
    AveragePool: at => at.inF32(pool('average')),
    GlobalAveragePool: globalPool('mean'),
    GlobalMaxPool: globalPool('max'),
  },
  [sparkDomain]: {
    MaxPoolGrad: poolGrad('max'),
    AveragePoolGrad: poolGrad('average'),
    GlobalAveragePoolGrad: globalAverageGrad,
  },
}
