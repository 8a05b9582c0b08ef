// tensor-kernel-args.ts: what the operations on views of tensors take. An operand is a typed array and a stride for each
// axis of the loop, in elements; 0 repeats. native/backend/backend.h is the contract.
import type { DType, DTypeArray } from '../core/dtype.js'

/** Functions of one number. */
export const unaryFns = [
  'abs',
  'neg',
  'reciprocal',
  'sqrt',
  'exp',
  'log',
  'erf',
  'tanh',
  'sigmoid',
  'relu',
  'gelu',
  'gelu_tanh',
  'silu',
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
  'relu_grad',
  'gelu_grad',
  'gelu_tanh_grad',
  'silu_grad',
] as const
/** Ways to make one number of many. */
export const reduceFns = ['sum', 'mean', 'max', 'min', 'prod', 'sum_square'] as const

/** A function of one number. */
export type UnaryFn = (typeof unaryFns)[number]
/** A function of two numbers. */
export type BinaryFn = (typeof binaryFns)[number]
/** A reduction. */
export type ReduceFn = (typeof reduceFns)[number]

/** y[i] = fn(x[i]) */
export interface UnaryArgs {
  /** What is computed. */
  fn: UnaryFn
  /** Of x and y; f32. */
  dtype: DType
  /** Number of elements. */
  count: number
  /** [count] */
  x: DTypeArray
  /** Output, [count]; may be `x`. */
  y: DTypeArray
}

/** y[i] = fn(a[i · aStrides], b[i · bStrides]), y being contiguous. */
export interface BinaryArgs {
  /** What is computed. */
  fn: BinaryFn
  /** Of all operands; f32. */
  dtype: DType
  /** Sizes of the axes, at most 8. */
  shape: readonly number[]
  /** Not negative. */
  aStrides: readonly number[]
  /** Not negative. */
  bStrides: readonly number[]
  /** Left operand. */
  a: DTypeArray
  /** Right operand. */
  b: DTypeArray
  /** Output; may be an operand with the strides of y. */
  y: DTypeArray
}

/** y[i] = fn over j of x[i · strides + j · reducedStrides], y being contiguous. Sums are taken in f64. */
export interface ReduceArgs {
  /** What is computed. */
  fn: ReduceFn
  /** Of x and y; f32. */
  dtype: DType
  /** Sizes of the axes that stay, at most 8. */
  shape: readonly number[]
  /** Sizes of the axes that go, at most 8. */
  reduced: readonly number[]
  /** Not negative. */
  strides: readonly number[]
  /** Not negative. */
  reducedStrides: readonly number[]
  /** Operand. */
  x: DTypeArray
  /** Output. */
  y: DTypeArray
}

/** dst[dstOffset + i · dstStrides] = src[srcOffset + i · srcStrides]; strides may be negative. */
export interface CopyStridedArgs {
  /** Of both operands. */
  dtype: DType
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
  src: DTypeArray
  /** Output; what the loop does not reach stays. */
  dst: DTypeArray
}

/** Ways to make one number of a window. */
export const poolFns = ['max', 'average'] as const
/** A pooling. */
export type PoolFn = (typeof poolFns)[number]

/** Windows that move over planes along one to three axes, as in a convolution. */
export interface Windows {
  /** Number of planes: batch by channels. */
  planes: number
  /** Sizes of the image along its axes, one to three. */
  image: readonly number[]
  /** Sizes of the window. */
  kernel: readonly number[]
  /** Sizes of the output. */
  out: readonly number[]
  /** At least 1. */
  strides: readonly number[]
  /** At least 1. */
  dilations: readonly number[]
  /** In front of the image, along each axis. */
  padsBegin: readonly number[]
  /** Behind it. */
  padsEnd: readonly number[]
}

/** y = the largest element or the mean of each window. */
export interface PoolArgs extends Windows {
  /** What is computed. */
  fn: PoolFn
  /** Of x and y; f32. */
  dtype: DType
  /** Whether a mean counts the pads. */
  countPad: boolean
  /** [planes, image] */
  x: DTypeArray
  /** Output, [planes, out]. */
  y: DTypeArray
}

/** The gradient of {@link PoolArgs}. */
export interface PoolBackwardArgs extends Windows {
  /** What was computed. */
  fn: PoolFn
  /** Of all operands; f32. */
  dtype: DType
  /** Whether the mean counted the pads. */
  countPad: boolean
  /** [planes, image]; max only. */
  x?: DTypeArray | undefined
  /** [planes, out] */
  dy: DTypeArray
  /** Output, [planes, image]. */
  dx: DTypeArray
}

/** Arguments of the operations on views. */
export interface TensorKernelArgs {
  /** A function of every element. */
  unary: UnaryArgs
  /** A function of pairs of elements, with broadcasting. */
  binary: BinaryArgs
  /** Sums and the like along some axes. */
  reduce: ReduceArgs
  /** Transposes, slices, repeats and parts of concatenations. */
  copyStrided: CopyStridedArgs
  /** Largest elements or means of windows. */
  pool: PoolArgs
  /** Its gradient. */
  poolBackward: PoolBackwardArgs
}
