// matmul.ts: matrix products.

import type { ElementType } from '../../core/dtype.js'
import { contiguousStrides, numel } from '../../core/shape.js'
import { add, fixSize, multiply, type Size, sameSize } from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Activation, LinearArgs, MatrixStrides } from '../../kernels/linear-args.js'
import { roundedCompute } from '../../kernels/precision-policy.js'
import type { FloatCompute } from '../../kernels/weight-args.js'
import { nvfp4RowScale } from '../../precision/kernels.js'
import { formatInfo } from '../../weights/formats.js'
import type { DeviceCopy } from '../../weights/shared-weight.js'
import { arraysOf, type Weight } from '../../weights/weight.js'
import type { Lowering } from '../lowering.js'
import { packStep } from '../pack-weights.js'
import { Buffer, type Operand, type Symbolic } from '../program.js'
import { broadcastStrides, collapse } from '../views.js'
import { addCopy } from './copy.js'
import { addBinary } from './elementwise.js'
import type { LowerTable } from './table.js'

/** Input `i` as the weight of a kernel: its first dimension by the product of the others. */
export function weightOf(ctx: Lowering, i: number): Symbolic<Weight> {
  const { shape, buffer } = ctx.input(i)
  const weight = storedWeight(ctx, i, false)
  if (weight) return weight
  const [rows = 1, ...rest] = shape
  return { format: 'f32', rows, cols: numel(rest), data: buffer.read() }
}

/**
 * Input `i` as operands in the format of a precision mode, where it is such a weight with its out features as rows, or as
 * columns if it is `transposed`. Panels are for the CPU alone.
 */
export function storedWeight(ctx: Lowering, i: number, transposed: boolean): Symbolic<Weight> | undefined {
  return ctx.input(i).weight?.order ? undefined : layerWeight(ctx, i, transposed)
}

/** The same of a layer, whose activations {@link activationsOf} puts into the order of its columns. */
function layerWeight(ctx: Lowering, i: number, transposed: boolean): Symbolic<Weight> | undefined {
  const { weight } = ctx.input(i)
  if (weight?.transposed !== transposed) return undefined
  const { shared } = weight
  const copy = shared.on(ctx.target.device)
  return copy?.weight
    ? operandsOfWeight(copy.weight, copy)
    : operandsOfWeight(ctx.packs ? shared.kept : shared.inRows())
}

/** Input 0 in the order of the columns of input 1, where {@link layerWeight} gives that as it is stored. */
function activationsOf(ctx: Lowering, transposed: boolean): Operand {
  const { weight } = ctx.input(1)
  if (!weight?.order || weight.transposed !== transposed) return ctx.read(0)
  return ctx.call('Gather', [ctx.input(0), ctx.ints([...weight.order])], { axis: int(-1) }).buffer.read()
}

/** A weight as operands; `owner` has their memory. */
function operandsOfWeight(weight: Weight, owner?: DeviceCopy): Symbolic<Weight> {
  const types: Readonly<Record<string, ElementType>> = {
    data: formatInfo(weight.format).dtype,
    blockScale: 'u8',
  }
  const operands = arraysOf(weight).map(([name, array]): [string, Operand] => {
    const buffer = new Buffer(types[name] ?? 'f32', array.length, 'constant', () => array, owner)
    return [name, buffer.read()]
  })
  return { ...weight, ...Object.fromEntries(operands) } as unknown as Symbolic<Weight>
}

/** The precision of a layer whose weight, in the given format, is input 1. */
export function computeOf(
  ctx: Lowering,
  { format }: Pick<Weight, 'format'>,
  kind: 'layer' | 'convolution' | 'adapter' = 'layer',
): FloatCompute {
  const { weight, exactIn, adapted } = ctx.input(1)
  // A GPU rounds what an adapter makes of a weight as the weight.
  const own = ctx.target.backend === 'cuda' ? (adapted ?? format) : format
  const operands = [ctx.input(0), { exactIn, format: own, exact: weight?.exact }]
  const positions = kind === 'convolution' ? { positions: numel(ctx.output().shape.slice(2)) } : {}
  return ctx.computeOf({ kind, operands, ...positions })
}

/** The same of a linear layer, whose rows may be rounded where its weight says so. */
function linearCompute(
  ctx: Lowering,
  { format }: Pick<Weight, 'format'>,
): Pick<LinearArgs, 'compute' | 'xScale'> {
  const { activations, inputScale } = ctx.input(1).weight ?? {}
  const compute =
    (activations && roundedCompute(ctx.target, activations, format)) ?? computeOf(ctx, { format })
  const isScaled = compute === 'nvfp4' && inputScale !== undefined
  return { compute, xScale: isScaled ? nvfp4RowScale(2688 * inputScale) : undefined }
}

/** The precision of a product of these inputs that rounds none of them. */
export const exactCompute = (ctx: Lowering, inputs: readonly number[]): FloatCompute =>
  ctx.computeOf({ kind: 'exact', operands: inputs.map(i => ctx.input(i)) })

/** The precision of a product of two values. */
const productCompute = (ctx: Lowering): FloatCompute =>
  ctx.computeOf({ kind: 'values', operands: [ctx.input(0), ctx.input(1)] })

/** y = alpha · op(a) · op(b) + beta · c */
function gemm(ctx: Lowering): void {
  const [transA, transB] = [ctx.integer('transA') !== 0, ctx.integer('transB') !== 0]
  const [alpha, beta] = [ctx.number('alpha'), ctx.number('beta')]
  const { shape } = ctx.output()
  const [m = 0, n = 0] = shape
  const k = ctx.shape(0)[transA ? 0 : 1]!
  const bias = ctx.has(2) ? ctx.input(2) : undefined
  const isRow = bias !== undefined && sameSize(numel(bias.shape), n) && sameSize(bias.shape.at(-1) ?? 1, n)
  const plainBias = !bias || (beta === 1 && bias.shape.length > 0 && isRow)
  if (transB && !transA && alpha === 1 && plainBias) {
    const weight = layerWeight(ctx, 1, false) ?? weightOf(ctx, 1)
    const [x, y] = [activationsOf(ctx, false), ctx.write()]
    ctx.step('linear', {
      weight,
      tokens: m,
      x,
      bias: bias?.buffer.read(),
      ...linearCompute(ctx, weight),
      y,
    })
    return
  }
  const product = bias ? ctx.scratch(multiply(m, n)) : ctx.write().buffer
  const strides = (transposed: boolean, rows: Size, cols: Size): Symbolic<MatrixStrides> =>
    transposed ? [0, 0, 1, rows] : [0, 0, cols, 1]
  ctx.step('matmul', {
    outer: 1,
    inner: 1,
    m,
    n,
    k,
    alpha,
    a: ctx.read(0),
    aStrides: strides(transA, m, k),
    b: ctx.read(1),
    bStrides: strides(transB, k, n),
    y: product.write(),
    yStrides: [0, 0, n, 1],
    compute: productCompute(ctx),
  })
  if (!bias) return
  const scaled = beta === 1 ? bias.buffer : ctx.scratch(numel(bias.shape))
  if (beta !== 1) {
    addBinary(
      ctx,
      'mul',
      [bias.buffer.read(), bias.shape],
      [ctx.scalar(beta), []],
      [scaled.write(), bias.shape],
    )
  }
  addBinary(ctx, 'add', [product.read(), shape], [scaled.read(), bias.shape], [ctx.write(), shape])
}

/** Batches of matrices; a one-dimensional operand is a row on the left and a column on the right. */
function matmul(ctx: Lowering, transA = false, transB = false): void {
  const left = ctx.shape(0).length === 1 ? [1, ...ctx.shape(0)] : ctx.shape(0)
  const right = ctx.shape(1).length === 1 ? [...ctx.shape(1), 1] : ctx.shape(1)
  const [m = 0, k = 0] = transA ? left.slice(-2).reverse() : left.slice(-2)
  const n = right.at(transB ? -2 : -1)!
  const batch = ctx.output().shape.slice(0, ctx.output().shape.length - (ctx.shape(0).length > 1 ? 1 : 0))
  const sizes = ctx.shape(1).length > 1 ? batch.slice(0, -1) : batch
  const steps = (shape: readonly Size[]): Size[] =>
    broadcastStrides([...shape.slice(0, -2), 1], [...sizes, 1])
      .slice(0, -1)
      .map(stride => multiply(stride, shape.at(-2)!, shape.at(-1)!))
  const ySteps = contiguousStrides([...sizes, multiply(m, n)]).slice(0, -1)
  const loop = collapse(sizes, [steps(left), steps(right), ySteps])
  const y = ctx.write().buffer
  const [a, b] = [ctx.input(0).buffer, ctx.input(1).buffer]
  const compute = productCompute(ctx)
  const outerAxes = Math.max(loop.shape.length - 2, 0)
  forEachOffset(loop.shape.slice(0, outerAxes), loop.strides, ([aStart, bStart, yStart]) => {
    const [outer = 1, inner = 1] = pad(loop.shape.slice(outerAxes), 1)
    const strides = (
      operand: number,
      rows: Size,
      cols: Size,
      transposed: boolean,
    ): Symbolic<MatrixStrides> => {
      const [first = 0, second = 0] = pad(loop.strides[operand]!.slice(outerAxes), 0)
      return transposed ? [first, second, 1, rows] : [first, second, cols, 1]
    }
    ctx.step('matmul', {
      outer,
      inner,
      m,
      n,
      k,
      alpha: 1,
      a: a.read(aStart),
      aStrides: strides(0, m, k, transA),
      b: b.read(bStart),
      bStrides: strides(1, k, n, transB),
      y: y.write(yStart),
      yStrides: strides(2, m, n, false),
      compute,
    })
  })
}

const pad = (list: readonly Size[], value: number): readonly Size[] =>
  list.length === 1 ? [value, ...list] : list

/** Calls body with where each of three operands is, for each index of `shape`. */
function forEachOffset(
  shape: readonly Size[],
  strides: readonly (readonly Size[])[],
  body: (offsets: readonly [Size, Size, Size]) => void,
): void {
  const walk = (axis: number, offsets: readonly [Size, Size, Size]): void => {
    if (axis === shape.length) {
      body(offsets)
      return
    }
    for (let i = 0; i < fixSize(shape[axis]!); i++) {
      const [a, b, y] = offsets.map((offset, n) => add(offset, multiply(i, strides[n]![axis]!)))
      walk(axis + 1, [a!, b!, y!])
    }
  }
  walk(0, [0, 0, 0])
}

/** A weight in the layout that kernels of the backend stream. */
function packed(ctx: Lowering, weight: Symbolic<Weight>, transposed = false): Symbolic<Weight> {
  const { step, packed } = packStep(weight, transposed)
  ctx.step('packWeight', step.args)
  return packed
}

/**
 * Input 1 as rows of output features, in the layout that kernels of the backend stream: [K, N] is turned around unless
 * `transB` says that it is [N, K].
 */
function rowsOf(ctx: Lowering): Symbolic<Weight> {
  const isInRows = ctx.integer('transB') !== 0
  const weight = layerWeight(ctx, 1, !isInRows) ?? (isInRows ? weightOf(ctx, 1) : undefined)
  if (weight) return ctx.packs && weight.layout !== 'panels' ? packed(ctx, weight) : weight
  const [cols = 0, rows = 0] = ctx.shape(1)
  if (ctx.packs) return packed(ctx, { format: 'f32', rows, cols, data: ctx.read(1) }, true)
  const data = ctx.scratch(multiply(rows, cols))
  addCopy(ctx, [rows, cols], [ctx.read(1), 0, [1, rows]], [data.write(), 0, [cols, 1]])
  return { format: 'f32', rows, cols, data: data.read() }
}

/** y = activation(gate ∘ (x · W) + bias) + residual */
function fusedLinear(ctx: Lowering): void {
  const weight = rowsOf(ctx)
  const tokens = numel(ctx.shape(0).slice(0, -1))
  ctx.step('linear', {
    weight,
    tokens,
    x: activationsOf(ctx, ctx.integer('transB') === 0),
    bias: ctx.optional(2),
    residual: ctx.optional(3),
    gate: ctx.optional(4),
    activation: ctx.text('activation') as Activation,
    ...linearCompute(ctx, weight),
    y: ctx.write(),
  })
}

/** A product that may swap the last two dimensions of an operand. */
const fusedMatmul = (ctx: Lowering): void =>
  matmul(ctx, ctx.integer('transA') !== 0, ctx.integer('transB') !== 0)

/** Lowerings of matrix products. */
export const matmuls: LowerTable = {
  '': { Gemm: ctx => ctx.inF32(gemm), MatMul: ctx => ctx.inF32(inner => matmul(inner)) },
  [sparkDomain]: { FusedMatMul: fusedMatmul, FusedLinear: ctx => ctx.inF32(fusedLinear) },
}
