// strided-args.ts: arguments of operations on strided operands: a typed array and a stride for each axis of the loop, in
// elements; 0 repeats. Contract: native/backend/strided_args.h.
import type { ElementArray } from '../core/dtype.js'
import type { KernelType } from './precision-args.js'

/** Functions of one number with parameters α and β. */
export const unaryFns = [
  'abs',
  'neg',
  'sign',
  'relu',
  'not',
  'bitwise_not',
  'reciprocal',
  'sqrt',
  'exp',
  'log',
  'erf',
  'floor',
  'ceil',
  'round',
  'sin',
  'cos',
  'tan',
  'asin',
  'acos',
  'atan',
  'sinh',
  'cosh',
  'tanh',
  'asinh',
  'acosh',
  'atanh',
  'sigmoid',
  'gelu',
  'gelu_tanh',
  'silu',
  'swish',
  'elu',
  'celu',
  'selu',
  'leaky_relu',
  'thresholded_relu',
  'hard_sigmoid',
  'hard_swish',
  'softplus',
  'softsign',
  'mish',
  'shrink',
  'is_nan',
  'is_inf',
] as const
/** Functions of two numbers; `<fn>_grad` is a · fn′(b). */
export const binaryFns = [
  'add',
  'sub',
  'mul',
  'div',
  'pow',
  'max',
  'min',
  'mod',
  'fmod',
  'prelu',
  'less',
  'less_or_equal',
  'equal',
  'bit_and',
  'bit_or',
  'bit_xor',
  'shift_left',
  'shift_right',
  'relu_grad',
  'gelu_grad',
  'gelu_tanh_grad',
  'silu_grad',
] as const
/** Ways to make one number of many. */
export const reduceFns = ['sum', 'mean', 'max', 'min', 'prod', 'sum_square', 'sum_abs'] as const
/** Ways to make one number of an old and a new one. */
export const scatterFns = ['assign', 'add', 'mul', 'max', 'min'] as const

/** A function of one number. */
export type UnaryFn = (typeof unaryFns)[number]
/** A function of two numbers. */
export type BinaryFn = (typeof binaryFns)[number]
/** A reduction. */
export type ReduceFn = (typeof reduceFns)[number]
/** What becomes of an element that is written again. */
export type ScatterFn = (typeof scatterFns)[number]

/** y[i] = fn(x[i]); see `UnaryArgs` in native/backend/strided_args.h. */
export interface UnaryArgs {
  /** What is computed. */
  fn: UnaryFn
  /** Of x; y is bool for `is_nan` and `is_inf`, else of this type. */
  dtype: KernelType
  /** Number of elements. */
  count: number
  /** Parameter α. */
  alpha?: number
  /** Parameter β. */
  beta?: number
  /** [count] */
  x: ElementArray
  /** Output, [count]; may be `x` where it is not bool. */
  y: ElementArray
}

/** y[i] = fn(a[i], b[i]), y being contiguous; see `BinaryArgs` in native/backend/strided_args.h. */
export interface BinaryArgs {
  /** What is computed. */
  fn: BinaryFn
  /** Of a and b; y is bool for comparisons, else of this type. */
  dtype: KernelType
  /** Sizes of the axes, at most 8. */
  shape: readonly number[]
  /** Not negative. */
  aStrides: readonly number[]
  /** Not negative. */
  bStrides: readonly number[]
  /** Left operand. */
  a: ElementArray
  /** Right operand. */
  b: ElementArray
  /** Output; may be an operand with the strides of y, where it is not bool. */
  y: ElementArray
}

/** y[i] = condition[i] ? a[i] : b[i], y being contiguous; see `SelectArgs` in native/backend/strided_args.h. */
export interface SelectArgs {
  /** Of a, b and y. */
  dtype: KernelType
  /** Sizes of the axes, at most 8. */
  shape: readonly number[]
  /** Not negative. */
  conditionStrides: readonly number[]
  /** Not negative. */
  aStrides: readonly number[]
  /** Not negative. */
  bStrides: readonly number[]
  /** bool */
  condition: Uint8Array
  /** Where the condition holds. */
  a: ElementArray
  /** Where it does not. */
  b: ElementArray
  /** Output. */
  y: ElementArray
}

/** y[i] = fn over j of x[i, j], y being contiguous; see `ReduceArgs` in native/backend/strided_args.h. */
export interface ReduceArgs {
  /** What is computed. */
  fn: ReduceFn
  /** Of x and y. */
  dtype: KernelType
  /** Sizes of the axes that stay, at most 8. */
  shape: readonly number[]
  /** Sizes of the axes that go, at most 8. */
  reduced: readonly number[]
  /** Not negative. */
  strides: readonly number[]
  /** Not negative. */
  reducedStrides: readonly number[]
  /** Operand. */
  x: ElementArray
  /** Output. */
  y: ElementArray
}

/** y[o, q, i] = fn over p <= q of x[o, p, i]; see `CumulateArgs` in native/backend/strided_args.h. */
export interface CumulateArgs {
  /** What is computed. */
  fn: 'sum' | 'prod'
  /** Of x and y. */
  dtype: KernelType
  /** Size of the axes in front. */
  outer: number
  /** Size of the axis. */
  size: number
  /** Size of the axes behind. */
  inner: number
  /** p < q */
  exclusive: boolean
  /** From the end of the axis. */
  reverse: boolean
  /** [outer, size, inner] */
  x: ElementArray
  /** Output, [outer, size, inner]. */
  y: ElementArray
}

/** The k largest or smallest elements along an axis and their indices; see `TopKArgs` in native/backend/strided_args.h. */
export interface TopKArgs {
  /** Of x and the values. */
  dtype: KernelType
  /** Size of the axes in front. */
  outer: number
  /** Size of the axis. */
  size: number
  /** Size of the axes behind. */
  inner: number
  /** How many; at most `size`. */
  k: number
  /** Largest in falling order, else smallest in rising order. */
  largest: boolean
  /** Which of equal elements comes first. */
  lastFirst: boolean
  /** [outer, size, inner] */
  x: ElementArray
  /** Output, [outer, k, inner]; absent: not computed. */
  values?: ElementArray | undefined
  /** Output, [outer, k, inner]. */
  indices: BigInt64Array
}

/** dst[i] = src[i]; strides may be negative. See `CopyStridedArgs` in native/backend/strided_args.h. */
export interface CopyStridedArgs {
  /** Of both operands. */
  dtype: KernelType
  /** Sizes of the axes, at most 8. */
  shape: readonly number[]
  /** Index of the first element that is read. */
  srcOffset: number
  /** Index of the first element that is written. */
  dstOffset: number
  /** Along each axis. */
  srcStrides: readonly number[]
  /** Along each axis; no element is written twice. */
  dstStrides: readonly number[]
  /** Operand. */
  src: ElementArray
  /** Output; what the loop does not reach stays. */
  dst: ElementArray
}

/** The offset of an element that indices address; see `Indexing` in native/backend/strided_args.h. */
export interface Indexing {
  /** Of the elements that are moved. */
  dtype: KernelType
  /** Sizes of the axes, at most 8. */
  shape: readonly number[]
  /** Not negative. */
  strides: readonly number[]
  /** Not negative. */
  indexStrides: readonly number[]
  /** Elements that each component of an index steps over. */
  steps: readonly number[]
  /** Exclusive limit of each component; negative ones count from it. */
  limits: readonly number[]
  /** [shape · indexStrides, components] */
  indices: BigInt64Array
}

/** y[i] = x[offset(i)], y being contiguous; see `GatherArgs` in native/backend/strided_args.h. */
export interface GatherArgs extends Indexing {
  /** Operand. */
  x: ElementArray
  /** Output. */
  y: ElementArray
}

/** y[offset(i)] = fn(y[offset(i)], updates[i]) in order; see `ScatterArgs` in native/backend/strided_args.h. */
export interface ScatterArgs extends Indexing {
  /** What becomes of the old element. */
  fn: ScatterFn
  /** Operand. */
  updates: ElementArray
  /** Updated. */
  y: ElementArray
}

/** Arguments of the operations on strided operands. */
export interface StridedKernelArgs {
  /** A function of every element. */
  unary: UnaryArgs
  /** A function of pairs of elements, with broadcasting. */
  binary: BinaryArgs
  /** One or the other element. */
  select: SelectArgs
  /** Sums and the like along some axes. */
  reduce: ReduceArgs
  /** Running sums and products. */
  cumulate: CumulateArgs
  /** The largest elements and where they are. */
  topK: TopKArgs
  /** Transposes, slices, repeats and parts of concatenations. */
  copyStrided: CopyStridedArgs
  /** Elements at indices that data says. */
  gather: GatherArgs
  /** The same, written. */
  scatter: ScatterArgs
}
