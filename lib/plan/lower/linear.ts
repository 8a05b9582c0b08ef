// linear.ts: matrix products and the linear DoRA layer.
import type { ElementArray, ElementType } from '../../core/dtype.js'
import { contiguousStrides, numel } from '../../core/shape.js'
import type { StoredMatrix } from '../../graph/constant.js'
import { sparkDomain } from '../../graph/graph.js'
import type { FloatCompute, MatrixStrides, StoredWeight } from '../../kernels/kernels.js'
import type { Lowering } from '../lowering.js'
import { Buffer, type Operand, type Symbolic } from '../program.js'
import { broadcastStrides, collapse } from '../views.js'
import { addBinary } from './elementwise.js'
import type { LowerTable } from './table.js'

/** Input `i` as the weight of a kernel: its first dimension by the product of the others. */
export function weightOf(at: Lowering, i: number): Symbolic<StoredWeight> {
  const { shape, buffer } = at.input(i)
  const stored = storedInput(at, i)
  if (stored && !stored.transposed) return storedOperands(stored.weight)
  const [rows = 1, ...rest] = shape
  return { dtype: 'f32', rows, cols: numel(rest), data: buffer.read() }
}

/** Input `i` as a weight of a precision mode, where it is one that the backend reads: panels are for the CPU alone. */
export function storedInput(at: Lowering, i: number): StoredMatrix | undefined {
  const { stored } = at.input(i)
  return stored?.weight.packed && !at.packs ? undefined : stored
}

/** A weight of a precision mode as operands. */
export function storedOperands({
  data,
  rowScale,
  blockScale,
  ...weight
}: StoredWeight): Symbolic<StoredWeight> {
  const constant = (dtype: ElementType, array: ElementArray): Operand =>
    new Buffer(dtype, array.length, 'constant', () => array).read()
  return {
    ...weight,
    data: constant(weight.dtype === 'nvfp4' ? 'u8' : weight.dtype, data),
    ...(rowScale && { rowScale: constant('f32', rowScale) }),
    ...(blockScale && { blockScale: constant('u8', blockScale) }),
  }
}

/** The precision of a layer whose weight, in the given format, is input 1. */
export function computeOf(
  at: Lowering,
  { dtype }: Pick<StoredWeight, 'dtype'>,
  kind: 'layer' | 'convolution' = 'layer',
): FloatCompute {
  const { stored, exactIn } = at.input(1)
  const operands = [at.input(0), { exactIn, format: dtype, exact: stored?.exact }]
  const positions = kind === 'convolution' ? { positions: numel(at.output().shape.slice(2)) } : {}
  return at.computeOf({ kind, operands, ...positions })
}

/** The precision of a product of these inputs that rounds none of them. */
export const exactCompute = (at: Lowering, inputs: readonly number[]): FloatCompute =>
  at.computeOf({ kind: 'exact', operands: inputs.map(i => at.input(i)) })

/** The precision of a product of two values. */
const productCompute = (at: Lowering): FloatCompute =>
  at.computeOf({ kind: 'values', operands: [at.input(0), at.input(1)] })

/** y = alpha · op(a) · op(b) + beta · c */
function gemm(at: Lowering): void {
  const [transA, transB] = [at.integer('transA', 0) !== 0, at.integer('transB', 0) !== 0]
  const [alpha, beta] = [at.number('alpha', 1), at.number('beta', 1)]
  const { shape } = at.output()
  const [m, n] = shape as [number, number]
  const k = at.shape(0)[transA ? 0 : 1]!
  const bias = at.has(2) ? at.input(2) : undefined
  const plainBias = !bias || (beta === 1 && bias.shape.at(-1) === n && numel(bias.shape) === n)
  if (transB && !transA && alpha === 1 && plainBias) {
    const weight = weightOf(at, 1)
    const [x, y] = [at.read(0), at.write()]
    at.step('linear', { weight, tokens: m, x, bias: bias?.buffer.read(), compute: computeOf(at, weight), y })
    return
  }
  const product = bias ? at.scratch(m * n) : at.write().buffer
  const strides = (transposed: boolean, rows: number, cols: number): MatrixStrides =>
    transposed ? [0, 0, 1, rows] : [0, 0, cols, 1]
  at.step('matmul', {
    ...{ outer: 1, inner: 1, m, n, k, alpha },
    ...{ a: at.read(0), aStrides: strides(transA, m, k) },
    ...{ b: at.read(1), bStrides: strides(transB, k, n) },
    ...{ y: product.write(), yStrides: [0, 0, n, 1], compute: productCompute(at) },
  })
  if (!bias) return
  const scaled = beta === 1 ? bias.buffer : at.scratch(numel(bias.shape))
  if (beta !== 1) {
    addBinary(
      at,
      'mul',
      [bias.buffer.read(), bias.shape],
      [at.scalar(beta), []],
      [scaled.write(), bias.shape],
    )
  }
  addBinary(at, 'add', [product.read(), shape], [scaled.read(), bias.shape], [at.write(), shape])
}

/** Batches of matrices; a one-dimensional operand is a row on the left and a column on the right. */
function matmul(at: Lowering, transA = false, transB = false): void {
  const left = at.shape(0).length === 1 ? [1, ...at.shape(0)] : at.shape(0)
  const right = at.shape(1).length === 1 ? [...at.shape(1), 1] : at.shape(1)
  const [m, k] = (transA ? left.slice(-2).reverse() : left.slice(-2)) as [number, number]
  const n = right.at(transB ? -2 : -1)!
  const batch = at.output().shape.slice(0, at.output().shape.length - (at.shape(0).length > 1 ? 1 : 0))
  const sizes = at.shape(1).length > 1 ? batch.slice(0, -1) : batch
  const steps = (shape: readonly number[]): number[] =>
    broadcastStrides([...shape.slice(0, -2), 1], [...sizes, 1])
      .slice(0, -1)
      .map(stride => stride * shape.at(-2)! * shape.at(-1)!)
  const ySteps = contiguousStrides([...sizes, m * n]).slice(0, -1)
  const loop = collapse(sizes, [steps(left), steps(right), ySteps])
  const y = at.write().buffer
  const [a, b] = [at.input(0).buffer, at.input(1).buffer]
  const compute = productCompute(at)
  const outerAxes = Math.max(loop.shape.length - 2, 0)
  forEachOffset(loop.shape.slice(0, outerAxes), loop.strides, ([aStart, bStart, yStart]) => {
    const [outer = 1, inner = 1] = pad(loop.shape.slice(outerAxes), 1)
    const strides = (operand: number, rows: number, cols: number, transposed: boolean): MatrixStrides => {
      const [first = 0, second = 0] = pad(loop.strides[operand]!.slice(outerAxes), 0)
      return transposed ? [first, second, 1, rows] : [first, second, cols, 1]
    }
    at.step('matmul', {
      ...{ outer, inner, m, n, k, alpha: 1 },
      ...{ a: a.read(aStart), aStrides: strides(0, m, k, transA) },
      ...{ b: b.read(bStart), bStrides: strides(1, k, n, transB) },
      ...{ y: y.write(yStart), yStrides: strides(2, m, n, false), compute },
    })
  })
}

const pad = (list: number[], value: number): number[] => (list.length === 1 ? [value, ...list] : list)

/** Calls body with where each of three operands is, for each index of `shape`. */
function forEachOffset(
  shape: readonly number[],
  strides: readonly (readonly number[])[],
  body: (offsets: readonly [number, number, number]) => void,
): void {
  const walk = (axis: number, offsets: readonly [number, number, number]): void => {
    if (axis === shape.length) {
      body(offsets)
      return
    }
    for (let i = 0; i < shape[axis]!; i++) {
      const [a, b, y] = offsets.map((offset, n) => offset + i * strides[n]![axis]!)
      walk(axis + 1, [a!, b!, y!])
    }
  }
  walk(0, [0, 0, 0])
}

/** Adapter A, B and scale; inputs `a` and `a + 1` of the node. */
export function lowRankOf(at: Lowering, a: number): { rank: number; scale: number; a: Operand; b: Operand } {
  return { rank: at.shape(a)[0]!, scale: at.number('scale', 1), a: at.read(a), b: at.read(a + 1) }
}

/** Adds norm and gain of the weight that is input `w`, followed by A, B and magnitude. */
export function addNorm(at: Lowering, w: number, norm: Operand, gain: Operand): void {
  const weight = weightOf(at, w)
  const squares = at.scratch(weight.rows)
  at.step('weightNorm2', { weight, out: squares.write() })
  const magnitude = at.read(w + 3)
  at.step('doraNorm', { weight, ...lowRankOf(at, w + 1), weightNorm2: squares.read(), magnitude, norm, gain })
}

/** x, W, A, B, magnitude, bias, dropout mask → y, and for the backward pass xa, z, norm, gain */
function dora(at: Lowering): void {
  const weight = weightOf(at, 1)
  const tokens = numel(at.shape(0)) / weight.cols
  const lowRank = lowRankOf(at, 2)
  const xa = at.resultOrScratch(1, tokens * lowRank.rank)
  const [norm, gain] = [at.resultOrScratch(3, weight.rows), at.resultOrScratch(4, weight.rows)]
  addNorm(at, 1, norm, gain)
  at.step('doraForward', {
    ...{ weight, ...lowRank, tokens, x: at.read(0), gain: gain.buffer.read() },
    ...{ bias: at.optional(5), mask: at.optional(6), xa, z: at.result(2), y: at.write() },
    compute: exactCompute(at, [0, 1]),
  })
}

/** dy, x, W, A, B, magnitude, xa, z, norm, gain, dropout mask → dx, dA, dB, dmagnitude, dbias */
function doraGrad(at: Lowering): void {
  const weight = weightOf(at, 2)
  const { a, b, ...scaling } = lowRankOf(at, 3)
  at.step('doraBackward', {
    ...{ weight, a, b, ...scaling, tokens: numel(at.shape(1)) / weight.cols },
    exactNorm: at.text('norm_gradient', 'detached') === 'exact',
    ...{ dy: at.read(0), x: at.read(1), magnitude: at.read(5), xa: at.read(6), z: at.read(7) },
    ...{ norm: at.read(8), gain: at.read(9), mask: at.optional(10) },
    ...{ dx: at.result(0), da: at.resultOrScratch(1, a.count), db: at.resultOrScratch(2, b.count) },
    ...{ dmagnitude: at.resultOrScratch(3, weight.rows), dbias: at.result(4) },
    compute: exactCompute(at, [0, 1, 2]),
  })
}

/** A product that may swap the last two dimensions of an operand. */
const fusedMatmul = (at: Lowering): void =>
  matmul(at, at.integer('transA', 0) !== 0, at.integer('transB', 0) !== 0)

/** Lowerings of matrix products. */
export const linear: LowerTable = {
  '': { Gemm: at => at.inF32(gemm), MatMul: at => at.inF32(inner => matmul(inner)) },
  [sparkDomain]: { FusedMatMul: fusedMatmul, DoRA: dora, DoRAGrad: doraGrad },
}
