// tensor.ts: operations on views of tensors in plain TypeScript: elementwise, reductions, copies.
import type { ReduceFn, TensorKernelArgs } from '../tensor-kernel-args.js'
import { binaryFunctions, unaryFunctions } from './functions.js'
import { forEachIndex, volume } from './strided.js'

/** y[i] = fn(x[i]) */
export function unary({ fn, count, x, y }: TensorKernelArgs['unary']): void {
  const compute = unaryFunctions[fn]
  for (let i = 0; i < count; i++) y[i] = compute(x[i]!)
}

/** y[i] = fn(a[i · aStrides], b[i · bStrides]) */
export function binary({ fn, shape, aStrides, bStrides, a, b, y }: TensorKernelArgs['binary']): void {
  const compute = binaryFunctions[fn]
  let at = 0
  forEachIndex(shape, aStrides, bStrides, (i, j) => {
    y[at++] = compute(a[i]!, b[j]!)
  })
}

const folds: Readonly<Record<ReduceFn, { start: number; step: (value: number, x: number) => number }>> = {
  sum: { start: 0, step: (sum, x) => sum + x },
  mean: { start: 0, step: (sum, x) => sum + x },
  max: { start: Number.NEGATIVE_INFINITY, step: Math.max },
  min: { start: Number.POSITIVE_INFINITY, step: Math.min },
  prod: { start: 1, step: (product, x) => product * x },
  sum_square: { start: 0, step: (sum, x) => sum + x * x },
}

/** y[i] = fn over j of x[i · strides + j · reducedStrides] */
export function reduce(args: TensorKernelArgs['reduce']): void {
  const { fn, shape, reduced, strides, reducedStrides, x, y } = args
  const { start, step } = folds[fn]
  const divisor = fn === 'mean' ? volume(reduced) : 1
  let at = 0
  forEachIndex(shape, strides, strides, first => {
    let value = start
    forEachIndex(reduced, reducedStrides, reducedStrides, offset => {
      value = step(value, x[first + offset]!)
    })
    y[at++] = value / divisor
  })
}

/** dst[dstOffset + i · dstStrides] = src[srcOffset + i · srcStrides] */
export function copyStrided(args: TensorKernelArgs['copyStrided']): void {
  const { shape, srcOffset, dstOffset, srcStrides, dstStrides, src, dst } = args
  forEachIndex(shape, srcStrides, dstStrides, (from, to) => {
    dst[dstOffset + to] = src[srcOffset + from]!
  })
}
