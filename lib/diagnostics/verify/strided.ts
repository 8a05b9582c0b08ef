// strided.ts: operations on strided operands and windows among the cases of `dgx-spark verify`.
import type { ElementArray } from '../../core/dtype.js'
import type { BinaryFn, ReduceFn, UnaryFn } from '../../kernels/strided-args.js'
import { f32, type VerifyCase, type VerifySizes, values, verifyCase } from './values.js'

/** Functions of a math library: two units in the last place, relative to the largest result. */
const libraryTolerance = 2.5e-7

/** Short sums that the TypeScript kernels round once, the others at each term. */
const roundingTolerance = 2.5e-7

/** Every kind of number and every size of an element. */
const arrays = {
  f32: Float32Array,
  f64: Float64Array,
  i64: BigInt64Array,
  i16: Int16Array,
  u8: Uint8Array,
}
const dtypes = Object.keys(arrays) as (keyof typeof arrays)[]
type Type = (typeof dtypes)[number]

const zeros = (dtype: Type, count: number): ElementArray => new arrays[dtype](count)

/** Seeded numbers: floats in [-4, 4), integers in [-100, 100] without 0, of u8 the codes of those. */
function elements(dtype: Type, count: number, seed: number): ElementArray {
  const numbers = values(count, seed)
  if (dtype === 'f32') return numbers.map(value => 4 * value)
  if (dtype === 'f64') return Float64Array.from(numbers, value => 4 * Math.cbrt(value))
  const integers = Array.from(numbers, value => Math.round(100 * value) || 1)
  return dtype === 'i64' ? BigInt64Array.from(integers, BigInt) : arrays[dtype].from(integers)
}

const isFloat = (dtype: Type): boolean => dtype === 'f32' || dtype === 'f64'

/** A tensor of tokens x rows x cols. */
function tensor({ tokens, rows, cols }: VerifySizes) {
  return {
    shape: [tokens, rows, cols],
    contiguous: [rows * cols, cols, 1],
    transposed: [1, tokens, tokens * rows],
    count: tokens * rows * cols,
  }
}

/** Each kernel on strided operands and windows. */
export function stridedCases(sizes: VerifySizes): VerifyCase[] {
  return [
    ...functionCases(sizes),
    ...dtypes.flatMap(dtype => [...elementCases(dtype, sizes), ...foldCases(dtype, sizes)]),
    ...dtypes.flatMap(dtype => [
      ...moveCases(dtype, sizes),
      ...copyCases(dtype),
      ...orderCases(dtype, sizes),
    ]),
    ...windowCases(sizes),
    resampleCase(sizes),
    dropoutCase(sizes),
  ]
}

/** Functions of f32. */
function functionCases(sizes: VerifySizes): VerifyCase[] {
  const { shape, contiguous, transposed, count } = tensor(sizes)
  const [a, b] = [values(count, 31), values(count, 32)]
  const unary = (fn: UnaryFn, tolerance: number) =>
    verifyCase('unary', fn, ['y'], tolerance, () => ({ fn, dtype: 'f32', count, x: a, y: f32(count) }))
  const binary = (fn: BinaryFn, tolerance: number) =>
    verifyCase('binary', fn, ['y'], tolerance, () => ({
      fn,
      dtype: 'f32' as const,
      shape,
      aStrides: contiguous,
      bStrides: transposed,
      a,
      b,
      y: f32(count),
    }))
  return [
    ...(['abs', 'relu', 'floor', 'sign'] as const).map(fn => unary(fn, 0)),
    ...(['exp', 'erf', 'tanh', 'sigmoid', 'gelu', 'softplus'] as const).map(fn =>
      unary(fn, libraryTolerance),
    ),
    ...(['add', 'mul', 'div', 'max', 'prelu', 'relu_grad'] as const).map(fn => binary(fn, 0)),
    ...(['gelu_grad', 'silu_grad'] as const).map(fn => binary(fn, 2 * libraryTolerance)),
  ]
}

/** Functions of elements of each type, and casts to the others. */
function elementCases(dtype: Type, sizes: VerifySizes): VerifyCase[] {
  const { shape, contiguous, transposed, count } = tensor(sizes)
  const [a, b] = [elements(dtype, count, 33), elements(dtype, count, 34)]
  const operands = { dtype, shape, aStrides: contiguous, bStrides: transposed, a, b }
  const { rows, cols } = sizes
  const condition = Uint8Array.from(values(rows * cols, 35), value => (value > 0 ? 1 : 0))
  return [
    verifyCase('unary', `sign of ${dtype}`, ['y'], 0, () => {
      return { fn: 'sign', dtype, count, x: a, y: zeros(dtype, count) }
    }),
    verifyCase('binary', `mul of ${dtype}`, ['y'], 0, () => {
      return { fn: 'mul', ...operands, y: zeros(dtype, count) }
    }),
    verifyCase('binary', `less of ${dtype}`, ['y'], 0, () => {
      return { fn: 'less', ...operands, y: new Uint8Array(count) }
    }),
    verifyCase('select', dtype, ['y'], 0, () => {
      return { ...operands, condition, conditionStrides: [0, cols, 1], y: zeros(dtype, count) }
    }),
    ...dtypes
      .filter(to => to !== dtype)
      .map(to =>
        verifyCase('cast', `${dtype} to ${to}`, ['dst'], 0, () => ({
          srcDtype: dtype,
          dstDtype: to,
          count,
          saturate: false,
          src: a,
          dst: zeros(to, count),
        })),
      ),
  ]
}

/** Reductions to many results and to few, and running sums and products. */
function foldCases(dtype: Type, sizes: VerifySizes): VerifyCase[] {
  const { tokens, rows, cols } = sizes
  const x = elements(dtype, tokens * rows * cols, 36)
  const tolerance = isFloat(dtype) ? 1e-6 : 0
  const reduce = (fn: ReduceFn) => [
    verifyCase('reduce', `${fn} of ${dtype} over two axes`, ['y'], tolerance, () => ({
      fn,
      dtype,
      shape: [rows],
      reduced: [tokens, cols],
      strides: [cols],
      reducedStrides: [rows * cols, 1],
      x,
      y: zeros(dtype, rows),
    })),
    verifyCase('reduce', `${fn} of ${dtype} over the first axis`, ['y'], tolerance, () => ({
      fn,
      dtype,
      shape: [rows * cols],
      reduced: [tokens],
      strides: [1],
      reducedStrides: [rows * cols],
      x,
      y: zeros(dtype, rows * cols),
    })),
  ]
  return [
    ...(['sum', 'mean', 'max', 'min', 'sum_square'] as const).flatMap(reduce),
    ...(['sum', 'prod'] as const).map(fn =>
      verifyCase('cumulate', `${fn} of ${dtype}`, ['y'], 0, () => ({
        ...{
          fn,
          dtype,
          outer: tokens,
          size: rows,
          inner: cols,
          exclusive: fn === 'prod',
          reverse: fn === 'sum',
        },
        x,
        y: zeros(dtype, x.length),
      })),
    ),
  ]
}

/** A transposed copy, and rows at indices that data says. */
function moveCases(dtype: Type, sizes: VerifySizes): VerifyCase[] {
  const { shape, contiguous, transposed, count } = tensor(sizes)
  const { tokens, rows, cols } = sizes
  const x = elements(dtype, count, 37)
  const indices = BigInt64Array.from({ length: tokens }, (_, t) => BigInt(((7 * t) % rows) - (t % 2) * rows))
  return [
    verifyCase('copyStrided', dtype, ['dst'], 0, () => ({
      dtype,
      shape,
      srcOffset: 0,
      dstOffset: 0,
      srcStrides: transposed,
      dstStrides: contiguous,
      src: x,
      dst: zeros(dtype, count),
    })),
    verifyCase('gather', dtype, ['y'], 0, () => ({
      ...{
        dtype,
        shape: [tokens, cols],
        strides: [0, 1],
        indexStrides: [1, 0],
        steps: [cols],
        limits: [rows],
      },
      indices,
      x,
      y: zeros(dtype, tokens * cols),
    })),
  ]
}

/** Transposes and permutations of full and partial tiles, rows with gaps between them, nothing. */
function copyCases(dtype: Type): VerifyCase[] {
  const copy = (name: string, shape: number[], srcStrides: number[], dstStrides: number[], offset = 0) => {
    const last = (strides: number[]) =>
      strides.reduce((at, step, axis) => at + step * (shape[axis]! - 1), offset)
    const src = elements(dtype, last(srcStrides) + 1, 44)
    return verifyCase('copyStrided', `${dtype}, ${name}`, ['dst'], 0, () => ({
      ...{ dtype, shape, srcOffset: offset, dstOffset: offset, srcStrides, dstStrides },
      src,
      dst: zeros(dtype, last(dstStrides) + 1),
    }))
  }
  return [
    copy('tiles', [96, 64], [1, 96], [64, 1]),
    copy('a transpose with offsets', [67, 45], [1, 67], [45, 1], 3),
    copy('channels last', [2, 35, 3, 11], [1155, 33, 11, 1], [1155, 1, 385, 35]),
    copy('channels first', [2, 35, 3, 11], [1155, 1, 385, 35], [1155, 33, 11, 1]),
    copy('short lines', [2, 40, 5], [200, 5, 1], [200, 1, 40]),
    copy('rows with gaps', [30, 44], [60, 1], [52, 1], 4),
    copy('nothing', [0, 40], [1, 40], [40, 1]),
  ]
}

/** Rows that go to indices that repeat, and the largest and smallest elements of long rows and short ones. */
function orderCases(dtype: Type, { tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const count = tokens * rows * cols
  const updates = elements(dtype, count, 42)
  const table = elements(dtype, tokens * 3 * cols, 43)
  const indices = BigInt64Array.from({ length: rows }, (_, row) => BigInt(((5 * row) % 6) - 3))
  const rowsOfTable = {
    shape: [tokens, rows, cols],
    strides: [3 * cols, 0, 1],
    indexStrides: [0, 1, 0],
    steps: [cols],
    limits: [3],
    indices,
  }
  const top = (size: number, inner: number, largest: boolean) => {
    const k = Math.min(3, size)
    const results = (count / size) * k
    return verifyCase('topK', `${dtype}, ${size} apart by ${inner}`, ['values', 'indices'], 0, () => ({
      dtype,
      outer: count / size / inner,
      size,
      inner,
      k,
      largest,
      lastFirst: largest,
      x: updates,
      values: zeros(dtype, results),
      indices: new BigInt64Array(results),
    }))
  }
  return [
    ...(['add', 'max'] as const).map(fn =>
      verifyCase('scatter', `${fn} of ${dtype}`, ['y'], 0, () => ({
        fn,
        dtype,
        ...rowsOfTable,
        updates,
        y: table.slice(),
      })),
    ),
    top(rows * cols, 1, true),
    top(tokens, rows * cols, false),
  ]
}

/** Pools with pads, strides and dilations, and their gradients. */
function windowCases({ tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const out = [((rows - 1) >> 1) + 1, cols - 1]
  const windows = {
    dtype: 'f32' as const,
    planes: tokens,
    image: [rows, cols],
    kernel: [3, 2],
    out,
    strides: [2, 1],
    dilations: [1, 2],
    padsBegin: [1, 0],
    padsEnd: [1, 1],
  }
  const outputs = tokens * out[0]! * out[1]!
  const x = values(tokens * rows * cols, 38)
  const dy = values(outputs, 39)
  const kinds = [
    { fn: 'max' as const, countPad: false },
    { fn: 'average' as const, countPad: false },
    { fn: 'average' as const, countPad: true },
  ]
  return [
    verifyCase('pool', 'max and where it is', ['y', 'indices'], 0, () => ({
      ...windows,
      fn: 'max',
      countPad: false,
      x,
      y: f32(outputs),
      indices: new BigInt64Array(outputs),
    })),
    ...kinds.flatMap(kind => {
      const variant = kind.countPad ? `${kind.fn} with pads` : kind.fn
      return [
        verifyCase('pool', variant, ['y'], 0, () => ({ ...windows, ...kind, x, y: f32(outputs) })),
        verifyCase('poolBackward', variant, ['dx'], roundingTolerance, () => {
          return { ...windows, ...kind, x, dy, dx: f32(x.length) }
        }),
      ]
    }),
  ]
}

/** The rows of an image, half as many again, between neighbours. */
function resampleCase({ tokens, rows, cols }: VerifySizes): VerifyCase {
  const out = rows + (rows >> 1)
  const near = (tap: number) => Math.min(Math.floor((tap >> 1) / 1.5) + (tap & 1), rows - 1)
  const taps = Int32Array.from({ length: 2 * out }, (_, tap) => near(tap))
  const weights = values(2 * out, 40)
  const sizes = { outer: tokens, size: rows, inner: cols, out, count: 2 }
  return verifyCase('resample', `${rows} to ${out}`, ['y'], roundingTolerance, () => ({
    ...sizes,
    x: values(tokens * rows * cols, 41),
    taps,
    weights,
    y: f32(tokens * out * cols),
  }))
}

/** A mask whose last words nobody needs. */
function dropoutCase({ tokens, rows, cols }: VerifySizes): VerifyCase {
  const count = tokens * rows * cols + 3
  const state = Uint32Array.of(2 ** 32 - 1, 12345, 2)
  return verifyCase('dropoutMask', '', ['mask'], 0, () => {
    return { count, ratio: 0.3, stream: 7, state, mask: f32(count) }
  })
}
