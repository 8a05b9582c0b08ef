// strided.ts: operations on strided operands in plain TypeScript: elementwise, reductions, searches, copies.
import { expectOneOf } from '../../core/checks.js'
import type { ElementArray, ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { BinaryFn, KernelArgs, KernelType, ReduceFn, UnaryFn } from '../kernels.js'
import { binaryFns, reduceFns, unaryFns } from '../strided-args.js'
import {
  floatReader,
  floatWriter,
  integerRange,
  integerReader,
  integerWriter,
  isInteger,
} from './elements.js'
import { binaryFunctions, unaryFunctions } from './functions.js'
import { integerBinary, integerUnary } from './integer-functions.js'
import { elements, type KernelRows, optional } from './row.js'
import { expectLoop, forEachIndex, reach } from './strides.js'

const noFunction = (fn: string, dtype: KernelType): SparkError =>
  new SparkError('ERR_UNSUPPORTED', `the js backend has no function '${fn}' of ${dtype}`)

const predicates: ReadonlySet<UnaryFn | BinaryFn> = new Set([
  'is_nan',
  'is_inf',
  'less',
  'less_or_equal',
  'equal',
])

/** What writes results of float functions: numbers, or the truth of a predicate. */
function resultWriter(fn: UnaryFn | BinaryFn, dtype: KernelType, y: ElementArray) {
  const write = predicates.has(fn) ? integerWriter('bool', y) : undefined
  return write ? (i: number, value: number) => write(i, BigInt(value)) : floatWriter(dtype, y)
}

/** y[i] = fn(x[i]) */
function unary({ fn, dtype, count, alpha = 0, beta = 0, x, y }: KernelArgs['unary']): void {
  if (isInteger(dtype)) {
    const compute = integerUnary[fn]
    if (!compute) throw noFunction(fn, dtype)
    const [read, write] = [integerReader(dtype, x), integerWriter(dtype, y)]
    for (let i = 0; i < count; i++) write(i, compute(read(i)))
  } else {
    const compute = unaryFunctions[fn]
    if (!compute) throw noFunction(fn, dtype)
    const [read, write] = [floatReader(dtype, x), resultWriter(fn, dtype, y)]
    for (let i = 0; i < count; i++) write(i, compute(read(i), alpha, beta))
  }
}

/** y[i] = fn(a[i · aStrides], b[i · bStrides]) */
function binary({ fn, dtype, shape, aStrides, bStrides, a, b, y }: KernelArgs['binary']): void {
  let at = 0
  if (isInteger(dtype)) {
    const compute = integerBinary[fn]
    if (!compute) throw noFunction(fn, dtype)
    const [left, right] = [integerReader(dtype, a), integerReader(dtype, b)]
    const write = integerWriter(predicates.has(fn) ? 'bool' : dtype, y)
    forEachIndex(shape, aStrides, bStrides, (i, j) => {
      write(at++, compute(left(i), right(j)))
    })
  } else {
    const compute = binaryFunctions[fn]
    if (!compute) throw noFunction(fn, dtype)
    const [left, right] = [floatReader(dtype, a), floatReader(dtype, b)]
    const write = resultWriter(fn, dtype, y)
    forEachIndex(shape, aStrides, bStrides, (i, j) => {
      write(at++, compute(left(i), right(j)))
    })
  }
}

/** y[i] = condition[i · conditionStrides] ? a[i · aStrides] : b[i · bStrides] */
function select(args: KernelArgs['select']): void {
  const { shape, conditionStrides, aStrides, bStrides, condition, a, b, y } = args
  const rightOffsets: number[] = []
  forEachIndex(shape, bStrides, bStrides, offset => {
    rightOffsets.push(offset)
  })
  let at = 0
  forEachIndex(shape, conditionStrides, aStrides, (which, left) => {
    y[at] = condition[which] ? a[left]! : b[rightOffsets[at]!]!
    at++
  })
}

interface Fold<T> {
  readonly start: T
  readonly step: (value: T, x: T) => T
}

const folds: Readonly<Record<ReduceFn, Fold<number>>> = {
  sum: { start: 0, step: (sum, x) => sum + x },
  mean: { start: 0, step: (sum, x) => sum + x },
  max: { start: Number.NEGATIVE_INFINITY, step: Math.max },
  min: { start: Number.POSITIVE_INFINITY, step: Math.min },
  prod: { start: 1, step: (product, x) => product * x },
  sum_square: { start: 0, step: (sum, x) => sum + x * x },
  sum_abs: { start: 0, step: (sum, x) => sum + Math.abs(x) },
}

function integerFold(fn: ReduceFn, dtype: KernelType): Fold<bigint> {
  const [least, most] = integerRange(dtype)
  const integerFolds: Readonly<Record<ReduceFn, Fold<bigint>>> = {
    sum: { start: 0n, step: (sum, x) => sum + x },
    mean: { start: 0n, step: (sum, x) => sum + x },
    max: { start: least, step: (value, x) => (x > value ? x : value) },
    min: { start: most, step: (value, x) => (x < value ? x : value) },
    prod: { start: 1n, step: (product, x) => BigInt.asIntN(64, product * x) },
    sum_square: { start: 0n, step: (sum, x) => sum + x * x },
    sum_abs: { start: 0n, step: (sum, x) => sum + (x < 0n ? -x : x) },
  }
  return integerFolds[fn]
}

/** y[i] = fn over j of x[i · strides + j · reducedStrides] */
function reduce(args: KernelArgs['reduce']): void {
  const { fn, dtype, reduced, x, y } = args
  const count = numel(reduced)
  if (isInteger(dtype)) {
    const write = integerWriter(dtype, y)
    const wrap = dtype.startsWith('i') ? BigInt.asIntN : BigInt.asUintN
    const mean = (sum: bigint): bigint => (count === 0 ? 0n : wrap(64, sum) / BigInt(count))
    foldAll(args, integerReader(dtype, x), integerFold(fn, dtype), (i, value) =>
      write(i, fn === 'mean' ? mean(value) : value),
    )
  } else {
    const write = floatWriter(dtype, y)
    foldAll(args, floatReader(dtype, x), folds[fn], (i, value) =>
      write(i, fn === 'mean' ? value / count : value),
    )
  }
}

function foldAll<T>(
  { shape, reduced, strides, reducedStrides }: KernelArgs['reduce'],
  read: (i: number) => T,
  { start, step }: Fold<T>,
  write: (i: number, value: T) => void,
): void {
  let at = 0
  forEachIndex(shape, strides, strides, first => {
    let value = start
    forEachIndex(reduced, reducedStrides, reducedStrides, offset => {
      value = step(value, read(first + offset))
    })
    write(at++, value)
  })
}

/** y[o, q, i] = fn over p <= q of x[o, p, i] */
function cumulate(args: KernelArgs['cumulate']): void {
  const { fn, dtype, x, y } = args
  if (isInteger(dtype)) {
    const { start, step } = integerFold(fn, dtype)
    runAlong(args, integerReader(dtype, x), integerWriter(dtype, y), start, step)
  } else {
    const { start, step } = folds[fn]
    runAlong(args, floatReader(dtype, x), floatWriter(dtype, y), start, step)
  }
}

function runAlong<T>(
  { outer, size, inner, exclusive, reverse }: KernelArgs['cumulate'],
  read: (i: number) => T,
  write: (i: number, value: T) => void,
  start: T,
  step: (value: T, x: T) => T,
): void {
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      let value = start
      for (let n = 0; n < size; n++) {
        const at = (o * size + (reverse ? size - 1 - n : n)) * inner + i
        const before = value
        value = step(value, read(at))
        write(at, exclusive ? before : value)
      }
    }
  }
}

/** The k largest or smallest elements along an axis and where they are. */
function topK(args: KernelArgs['topK']): void {
  const { dtype, outer, size, inner, k, largest, lastFirst, x, values, indices } = args
  const read = isInteger(dtype) ? integerReader(dtype, x) : floatReader(dtype, x)
  // NaN is the largest number.
  const larger = (a: number | bigint, b: number | bigint): boolean =>
    !Number.isNaN(b) && (a > b || Number.isNaN(a))
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const offsetOf = (index: number): number => (o * size + index) * inner + i
      const order = (p: number, q: number): number => {
        const [a, b] = [read(offsetOf(p)), read(offsetOf(q))]
        if (larger(a, b)) return largest ? -1 : 1
        if (larger(b, a)) return largest ? 1 : -1
        return lastFirst ? q - p : p - q
      }
      firstInOrder(size, k, order).forEach((index, n) => {
        const at = (o * k + n) * inner + i
        indices[at] = BigInt(index)
        if (values) values[at] = x[offsetOf(index)]!
      })
    }
  }
}

/** The first k of the indices below `size` in an order; without a list of all where one is wanted. */
function firstInOrder(size: number, k: number, order: (p: number, q: number) => number): number[] {
  if (k !== 1)
    return Array.from({ length: size }, (_, index) => index)
      .sort(order)
      .slice(0, k)
  let first = 0
  for (let index = 1; index < size; index++) if (order(index, first) < 0) first = index
  return [first]
}

/** dst[dstOffset + i · dstStrides] = src[srcOffset + i · srcStrides] */
function copyStrided(args: KernelArgs['copyStrided']): void {
  const { shape, srcOffset, dstOffset, srcStrides, dstStrides, src, dst } = args
  forEachIndex(shape, srcStrides, dstStrides, (from, to) => {
    dst[dstOffset + to] = src[srcOffset + from]!
  })
}

/** Type of the results of a function: the truth of a predicate is a bool. */
const resultType = (fn: UnaryFn | BinaryFn, dtype: KernelType): ElementType =>
  predicates.has(fn) ? 'bool' : dtype

/** Contracts of the operations on strided operands. */
export const stridedRows: KernelRows<
  'unary' | 'binary' | 'select' | 'reduce' | 'cumulate' | 'topK' | 'copyStrided'
> = {
  unary: {
    kernel: unary,
    sizes: ['count'],
    check: ({ fn }) => expectOneOf('fn', fn, unaryFns),
    operands: ({ fn, dtype, count }) => ({
      x: elements(dtype, count),
      y: elements(resultType(fn, dtype), count),
    }),
  },
  binary: {
    kernel: binary,
    check(args) {
      expectOneOf('fn', args.fn, binaryFns)
      expectLoop(args, 'shape', ['aStrides', 'bStrides'])
    },
    operands: ({ fn, dtype, shape, aStrides, bStrides }) => ({
      a: elements(dtype, reach(0, shape, aStrides)),
      b: elements(dtype, reach(0, shape, bStrides)),
      y: elements(resultType(fn, dtype), numel(shape)),
    }),
  },
  select: {
    kernel: select,
    check: args => expectLoop(args, 'shape', ['conditionStrides', 'aStrides', 'bStrides']),
    operands: ({ dtype, shape, conditionStrides, aStrides, bStrides }) => ({
      condition: elements('bool', reach(0, shape, conditionStrides)),
      a: elements(dtype, reach(0, shape, aStrides)),
      b: elements(dtype, reach(0, shape, bStrides)),
      y: elements(dtype, numel(shape)),
    }),
  },
  reduce: {
    kernel: reduce,
    check(args) {
      expectOneOf('fn', args.fn, reduceFns)
      expectLoop(args, 'shape', ['strides'])
      expectLoop(args, 'reduced', ['reducedStrides'])
    },
    operands: ({ dtype, shape, strides, reduced, reducedStrides }) => ({
      x: elements(dtype, reach(0, [...shape, ...reduced], [...strides, ...reducedStrides])),
      y: elements(dtype, numel(shape)),
    }),
  },
  cumulate: {
    kernel: cumulate,
    sizes: ['outer', 'size', 'inner'],
    check: ({ fn }) => expectOneOf('fn', fn, ['sum', 'prod']),
    operands: ({ dtype, outer, size, inner }) => ({
      x: elements(dtype, outer * size * inner),
      y: elements(dtype, outer * size * inner),
    }),
  },
  topK: {
    kernel: topK,
    sizes: ['outer', 'size', 'inner', 'k'],
    operands: ({ dtype, outer, size, inner, k }) => ({
      x: elements(dtype, outer * size * inner),
      values: optional(elements(dtype, outer * k * inner)),
      indices: elements('i64', outer * k * inner),
    }),
  },
  copyStrided: {
    kernel: copyStrided,
    sizes: ['srcOffset', 'dstOffset'],
    check: args => expectLoop(args, 'shape', ['srcStrides', 'dstStrides'], -Number.MAX_SAFE_INTEGER),
    operands: ({ dtype, shape, srcOffset, dstOffset, srcStrides, dstStrides }) => ({
      src: elements(dtype, reach(srcOffset, shape, srcStrides)),
      dst: elements(dtype, reach(dstOffset, shape, dstStrides)),
    }),
  },
}
