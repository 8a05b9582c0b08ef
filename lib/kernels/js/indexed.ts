// indexed.ts: gather and scatter in plain TypeScript.
import { expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { Indexing, KernelArgs, ScatterFn } from '../kernels.js'
import { scatterFns } from '../strided-args.js'
import { floatReader, floatWriter, integerReader, integerWriter, isInteger } from './elements.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows } from './row.js'
import { expectAxes, expectLoop, forEachIndex, reach } from './strides.js'

/** Calls body(n, offset) for the n-th index of the shape. */
function forEachOffset(indexing: Indexing, body: (n: number, offset: number) => void): void {
  const { shape, strides, indexStrides, steps, limits, indices } = indexing
  let n = 0
  forEachIndex(shape, strides, indexStrides, (start, first) => {
    let offset = start
    steps.forEach((step, d) => {
      const [index, limit] = [Number(indices[first + d]), limits[d]!]
      if (index < -limit || index >= limit) {
        throw new SparkError('ERR_ARGUMENT', `an index is ${index}, not in [-${limit}, ${limit})`)
      }
      offset += (index < 0 ? index + limit : index) * step
    })
    body(n++, offset)
  })
}

/** y[i] = x[offset(i)] */
function gather(args: KernelArgs['gather']): void {
  const { x, y } = args
  forEachOffset(args, (n, offset) => {
    y[n] = x[offset]!
  })
}

const floats: Readonly<Record<ScatterFn, (old: number, update: number) => number>> = {
  assign: (_, update) => update,
  add: (old, update) => old + update,
  mul: (old, update) => old * update,
  max: Math.max,
  min: Math.min,
}
const integers: Readonly<Record<ScatterFn, (old: bigint, update: bigint) => bigint>> = {
  assign: (_, update) => update,
  add: (old, update) => old + update,
  mul: (old, update) => old * update,
  max: (old, update) => (old > update ? old : update),
  min: (old, update) => (old < update ? old : update),
}

/** y[offset(i)] = fn(y[offset(i)], updates[i]) */
function scatter(args: KernelArgs['scatter']): void {
  const { fn, dtype, updates, y } = args
  const move = <T>(
    combine: (old: T, update: T) => T,
    old: (i: number) => T,
    update: (i: number) => T,
    write: (i: number, value: T) => void,
  ): void => forEachOffset(args, (n, offset) => write(offset, combine(old(offset), update(n))))
  if (isInteger(dtype)) {
    move(integers[fn], integerReader(dtype, y), integerReader(dtype, updates), integerWriter(dtype, y))
  } else {
    move(floats[fn], floatReader(dtype, y), floatReader(dtype, updates), floatWriter(dtype, y))
  }
}

function expectIndexing(args: Indexing): void {
  expectLoop(args, 'shape', ['strides', 'indexStrides'])
  expectAxes(args, 'steps')
  expectAxes(args, 'limits')
  const { steps, limits } = args
  expectFits(steps.length === limits.length, `there are ${steps.length} steps and ${limits.length} limits`)
}

/** The indices, and the tensor that they point into. */
function indexedSizes({ dtype, shape, strides, indexStrides, steps, limits }: Indexing) {
  const isEmpty = shape.includes(0)
  const count = isEmpty ? 0 : reach(0, shape, indexStrides) + steps.length - 1
  const indexed = isEmpty ? 0 : reach(0, [...shape, ...limits], [...strides, ...steps])
  return { indices: elements('i64', count), indexed: elements(dtype, indexed) }
}

/** Contracts of gather and scatter. */
export const indexedRows: KernelRows<'gather' | 'scatter'> = {
  gather: {
    kernel: gather,
    check: expectIndexing,
    operands(args) {
      const { indices, indexed } = indexedSizes(args)
      return { indices, x: indexed, y: elements(args.dtype, numel(args.shape)) }
    },
  },
  scatter: {
    kernel: scatter,
    check(args) {
      expectOneOf('fn', args.fn, scatterFns)
      expectIndexing(args)
    },
    operands(args) {
      const { indices, indexed } = indexedSizes(args)
      return { indices, updates: elements(args.dtype, numel(args.shape)), y: indexed }
    },
  },
}
