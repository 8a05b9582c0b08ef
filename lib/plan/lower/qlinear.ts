// qlinear.ts: arithmetic on quantized tensors, with int8 kernels as far as the backend has them, else in f32.

import { numel } from '../../core/shape.js'
import { ceilDivide, lessThan, multiply, roundUp, type Size, sameSize, subtract } from '../../core/size.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import { byteChannelUnit } from '../../kernels/conv-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import type { Value } from '../value.js'
import type { LowerTable } from './table.js'
import { windowOf } from './window.js'

/** Elements of 8 bits, which the kernels know. */
export const isBytes = ({ dtype }: { readonly dtype: string }): boolean => dtype === 'u8' || dtype === 'i8'

/** `value` as a list of `count` elements, one for all being repeated. */
function listOf(ctx: Lowering, value: Value, count: Size): Value {
  const list = ctx.reshaped(value, [value.buffer.count])
  return sameSize(value.buffer.count, count) ? list : ctx.call('Expand', [list, ctx.ints([count])])
}

/** Zero points as a list of i32; undefined where they are known to be 0. */
export function zerosOf(ctx: Lowering, value: Value | undefined, count: Size): Value | undefined {
  const elements = value?.buffer.storage === 'constant' ? value.buffer.elements() : undefined
  if (!value || (elements as Uint8Array | undefined)?.every(element => element === 0)) return undefined
  return listOf(ctx, ctx.cast(value, 'i32'), count)
}

/** A weight as i8 and its zero points by feature: those of unsigned ones move by 128. */
function signedWeight(
  ctx: Lowering,
  weight: Value,
  zero: Value | undefined,
  features: Size,
): { codes: Value; zeros: Value | undefined } {
  if (weight.dtype === 'i8') return { codes: weight, zeros: zerosOf(ctx, zero, features) }
  const moved = ctx.call('Sub', [ctx.cast(weight, 'i16'), ctx.one(128, 'i16')])
  const given = zero ? ctx.cast(zero, 'i32') : ctx.one(0, 'i32')
  const zeros = listOf(ctx, ctx.call('Sub', [given, ctx.one(128, 'i32')]), features)
  return { codes: ctx.cast(moved, 'i8'), zeros }
}

/** Whether kernels multiply on tensor cores, and form sums of weights with their products. */
const onTensorCores = (ctx: Lowering): boolean => ctx.target.backend === 'cuda'

/** Sums of a matrix of codes along an axis, for kernels that read them. */
const sums = (ctx: Lowering, codes: Value, axis: number): Operand | undefined =>
  onTensorCores(ctx)
    ? undefined
    : ctx.call('ReduceSum', [ctx.cast(codes, 'i32'), ctx.ints([axis])], { keepdims: int(0) }).buffer.read()

/** A copy of `codes`, which a file may have at any address, with zeros at the end of its axes, up to these sizes. */
function padded(ctx: Lowering, codes: Value, sizes: readonly Size[]): Value {
  const ends = sizes.map((size, axis) => subtract(size, codes.shape[axis]!))
  return ctx.call('Pad', [codes, ctx.ints([...sizes.map(() => 0), ...ends]), ctx.one(0, 'i8')])
}

/** Scales of an operation on integers: of both operands and of y, with the zero point of y. */
type Scales = readonly [a: Value, b: Value, y: Value, zero: Value | undefined]

/** The scales of y's features and its zero point, as kernels take them. */
function resultOf(ctx: Lowering, features: Size, scales: Scales | undefined) {
  if (!scales) return {}
  const [a, b, y, zero] = scales
  const scale = ctx.call('Div', [
    ctx.call('Mul', [ctx.cast(a, 'f32'), ctx.cast(b, 'f32')]),
    ctx.cast(y, 'f32'),
  ])
  const yDtype = ctx.output().dtype as 'u8' | 'i8'
  return {
    scale: listOf(ctx, scale, features).buffer.read(),
    yDtype,
    yZero: zerosOf(ctx, zero, 1)?.buffer.read(),
  }
}

/** Groups of so few filters have a thread for each sum on CUDA, and others take tensor cores. */
const directFilters = 3

/** A weight of a convolution, [O, C/G, taps], in the rows that kernels read. */
function filterRows(ctx: Lowering, codes: Value, groups: number) {
  const [rows, channels, taps] = [codes.shape[0]!, codes.shape[1]!, numel(codes.shape.slice(2))]
  const inRows = (value: Value, cols: Size): Operand =>
    padded(ctx, ctx.reshaped(value, [rows, cols]), [rows, roundUp(cols, 64)]).buffer.read()
  if (!onTensorCores(ctx) || (groups > 1 && !lessThan(groups * directFilters, rows)))
    return { w: inRows(codes, multiply(channels, taps)) }
  const perm = ints([0, 2, 1])
  const sides = ctx.call('Transpose', [ctx.reshaped(codes, [rows, channels, taps])], { perm })
  const pitch = roundUp(channels, byteChannelUnit)
  return { channelsLast: true, w: inRows(padded(ctx, sides, [rows, taps, pitch]), multiply(taps, pitch)) }
}

/** A convolution: places of x, its zero point, the weight, its zero points and the bias among the inputs. */
export function convolveBytes(
  ctx: Lowering,
  [x, xZero, w, wZero, bias]: readonly [number, number, number, number, number],
  scales?: Scales,
): boolean {
  const weight = ctx.input(w)
  if (!ctx.bytes || !isBytes(ctx.input(x)) || !isBytes(weight) || (scales && !isBytes(ctx.output())))
    return false
  const [rows = 0, ...rest] = weight.shape
  const cols = numel(rest)
  if (cols === 0) return false
  const { codes, zeros } = signedWeight(ctx, weight, ctx.inputIfAny(wZero), rows)
  const matrix = ctx.reshaped(codes, [rows, cols])
  const { padsEnd: _, ...window } = windowOf(ctx, ctx.shape(x), ctx.output().shape, rest.slice(1))
  ctx.step('convInteger', {
    batch: ctx.shape(x)[0]!,
    groups: ctx.integer('group'),
    ...window,
    rows,
    cols,
    xSigned: ctx.input(x).dtype === 'i8',
    x: ctx.read(x),
    xZero: zerosOf(ctx, ctx.inputIfAny(xZero), 1)?.buffer.read(),
    ...filterRows(ctx, codes, ctx.integer('group')),
    wZero: zeros?.buffer.read(),
    wSum: sums(ctx, matrix, 1),
    bias: ctx.optional(bias),
    ...resultOf(ctx, rows, scales),
    y: ctx.write(),
  })
  return true
}

/** A constant matrix [N, K], or [K, N], in panels of 32 of its N that are interleaved by four: [⌈N/32⌉, ⌈K/4⌉, 32, 4]. */
function panelsOf(ctx: Lowering, codes: Value, byRows: boolean): Value {
  const [n, k] = byRows ? codes.shape : [codes.shape[1], codes.shape[0]]
  const [panels, lanes] = [ceilDivide(n!, 32), ceilDivide(k!, 4)]
  const sizes = byRows ? [panels, 32, lanes, 4] : [lanes, 4, panels, 32]
  const whole = padded(ctx, codes, [multiply(sizes[0]!, sizes[1]!), multiply(sizes[2]!, sizes[3]!)])
  const perm = ints(byRows ? [0, 2, 1, 3] : [2, 0, 3, 1])
  return ctx.call('Transpose', [ctx.reshaped(whole, sizes)], { perm })
}

/**
 * A product with a matrix [K, N], or [N, K] where it is `transposed`: indices of a, its zero point, b, its zero points and the bias
 * among the inputs.
 */
export function multiplyBytes(
  ctx: Lowering,
  [a, aZero, b, bZero, bias]: readonly [number, number, number, number, number?],
  scales?: Scales,
  transposed = false,
): boolean {
  const [left, right] = [ctx.input(a), ctx.input(b)]
  const [cols = 0, rows = 0] = transposed ? [...right.shape].reverse() : right.shape
  const fits = right.shape.length === 2 && left.shape.length > 0 && cols !== 0 && rows !== 0
  if (!ctx.bytes || !fits || !isBytes(left) || !isBytes(right)) return false
  if (scales && !isBytes(ctx.output())) return false
  if (scales && (scales[0].buffer.count !== 1 || scales[2].buffer.count !== 1)) return false
  const tokens = numel(left.shape.slice(0, -1))
  const { codes, zeros } = onTensorCores(ctx)
    ? { codes: right, zeros: zerosOf(ctx, ctx.inputIfAny(bZero), rows) }
    : signedWeight(ctx, right, ctx.inputIfAny(bZero), rows)
  const packed = !onTensorCores(ctx) && right.buffer.storage === 'constant'
  const w = packed ? panelsOf(ctx, codes, transposed) : transposed ? codes : ctx.call('Transpose', [codes])
  ctx.step('linearInteger', {
    tokens,
    rows,
    cols,
    packed,
    wSigned: codes.dtype === 'i8',
    xSigned: left.dtype === 'i8',
    x: ctx.read(a),
    w: w.buffer.read(),
    wSum: sums(ctx, codes, transposed ? 1 : 0),
    wZero: zeros?.buffer.read(),
    xZero: zerosOf(ctx, ctx.inputIfAny(aZero), tokens)?.buffer.read(),
    bias: bias === undefined ? undefined : ctx.optional(bias),
    ...resultOf(ctx, rows, scales),
    y: ctx.write(),
  })
  return true
}

/** x − zero point as f32, which holds every difference; `shape` lets one zero point per row broadcast. */
function centered(ctx: Lowering, x: Value, zero: Value | undefined, shape?: readonly Size[]): Value {
  const values = ctx.cast(x, 'f32')
  if (!zero) return values
  const given = ctx.cast(zero, 'f32')
  const spreadOut = shape && lessThan(1, zero.buffer.count) ? ctx.reshaped(given, shape) : given
  const scalar = sameSize(zero.buffer.count, 1) ? ctx.reshaped(given, []) : spreadOut
  return ctx.call('Sub', [values, scalar])
}

/** a, b, zero points of a (one, or one per row) and b (one, or one per column) → products of integers. */
function matmulInteger(ctx: Lowering): void {
  if (multiplyBytes(ctx, [0, 2, 1, 3])) return
  const rows = ctx.has(2) && ctx.shape(2).length === 1 ? [ctx.shape(2)[0]!, 1] : undefined
  const a = centered(ctx, ctx.input(0), ctx.inputIfAny(2), rows)
  ctx.give(ctx.call('MatMul', [a, centered(ctx, ctx.input(1), ctx.inputIfAny(3))]))
}

/** x, w, zero points of x and w (one, or one per filter). */
function convInteger(ctx: Lowering): void {
  if (convolveBytes(ctx, [0, 2, 1, 3, 4])) return
  const filters = [
    ctx.shape(1)[0]!,
    ...ctx
      .shape(1)
      .slice(1)
      .map(() => 1),
  ]
  const x = centered(ctx, ctx.input(0), ctx.inputIfAny(2))
  const w = centered(ctx, ctx.input(1), ctx.inputIfAny(3), filters)
  ctx.give(ctx.call('Conv', [x, w], ctx.node.attributes))
}

/** The scale of y, which may be one per channel or column, applied to products; then rounded and saturated. */
function requantized(
  ctx: Lowering,
  products: Value,
  [a, b, y]: readonly [Value, Value, Value],
  zero: Value,
): void {
  const factor = ctx.call('Div', [
    ctx.call('Mul', [ctx.cast(a, 'f32'), ctx.cast(b, 'f32')]),
    ctx.cast(y, 'f32'),
  ])
  const scaled = ctx.call('Round', [ctx.call('Mul', [products, factor])])
  ctx.give(ctx.call('Add', [scaled, ctx.cast(zero, 'f32')]))
}

/** a, scale, zero, b, scale, zero, scale of y, zero of y */
function qlinearMatmul(ctx: Lowering): void {
  if (multiplyBytes(ctx, [0, 2, 3, 5], [ctx.input(1), ctx.input(4), ctx.input(6), ctx.input(7)])) return
  const sums = ctx.call('MatMulInteger', [ctx.input(0), ctx.input(3), ctx.input(2), ctx.input(5)])
  requantized(ctx, ctx.cast(sums, 'f32'), [ctx.input(1), ctx.input(4), ctx.input(6)], ctx.input(7))
}

/** x, scale, zero, w, scale, zero, scale of y, zero of y, bias */
function qlinearConv(ctx: Lowering): void {
  if (convolveBytes(ctx, [0, 2, 3, 5, 8], [ctx.input(1), ctx.input(4), ctx.input(6), ctx.input(7)])) return
  const rank = ctx.shape(0).length
  const perFilter = (value: Value): Value =>
    value.buffer.count === 1 ? value : ctx.reshaped(value, [value.buffer.count, ...Array(rank - 2).fill(1)])
  const filters = [
    ctx.shape(3)[0]!,
    ...ctx
      .shape(3)
      .slice(1)
      .map(() => 1),
  ]
  const x = centered(ctx, ctx.input(0), ctx.input(2))
  const w = centered(ctx, ctx.input(3), ctx.input(5), filters)
  const bias = ctx.has(8) ? ctx.cast(ctx.input(8), 'f32') : undefined
  const products = ctx.call('Conv', [x, w, bias], ctx.node.attributes)
  requantized(ctx, products, [ctx.input(1), perFilter(ctx.input(4)), ctx.input(6)], ctx.input(7))
}

/** x, table: the code of the table for each byte of x, signed ones being counted as their bits. */
function lookup(ctx: Lowering): void {
  const [x, table] = [ctx.input(0), ctx.input(1)]
  if (ctx.bytes) {
    ctx.step('lookup', {
      count: x.buffer.count,
      xSigned: x.dtype === 'i8',
      ySigned: table.dtype === 'i8',
      x: x.buffer.read(),
      table: table.buffer.read(),
      y: ctx.write(),
    })
    return
  }
  const index = ctx.cast(x, 'i32')
  ctx.give(
    ctx.call('Gather', [
      table,
      x.dtype === 'i8' ? ctx.call('BitwiseAnd', [index, ctx.one(255, 'i32')]) : index,
    ]),
  )
}

/** Operands of bytes with one scale, in the names of the kernels. */
function scaledBytes<Name extends 'a' | 'b' | 'x' | 'y'>(
  ctx: Lowering,
  name: Name,
  [scale, zero]: readonly [number, number],
  { dtype }: { readonly dtype: string },
) {
  return {
    [`${name}Dtype`]: dtype,
    [`${name}Scale`]: ctx.read(scale),
    [`${name}Zero`]: zerosOf(ctx, ctx.input(zero), 1)?.buffer.read(),
  } as Record<`${Name}Dtype`, 'u8' | 'i8'> &
    Record<`${Name}Scale`, Operand> &
    Record<`${Name}Zero`, Operand | undefined>
}

/** a and b with their scales and zero points, scale and zero point of y; a and b are of one shape */
const binary =
  (op: 'Add' | 'Mul') =>
  (ctx: Lowering): void => {
    if (!ctx.bytes) {
      const parts = [0, 3].map(i =>
        ctx.call('DequantizeLinear', [ctx.input(i), ctx.input(i + 1), ctx.input(i + 2)]),
      )
      ctx.give(ctx.call('QuantizeLinear', [ctx.call(op, parts), ctx.input(6), ctx.input(7)]))
      return
    }
    ctx.step('binaryBytes', {
      fn: op === 'Add' ? 'add' : 'mul',
      count: ctx.input(0).buffer.count,
      a: ctx.read(0),
      b: ctx.read(3),
      ...scaledBytes(ctx, 'a', [1, 2], ctx.input(0)),
      ...scaledBytes(ctx, 'b', [4, 5], ctx.input(3)),
      ...scaledBytes(ctx, 'y', [6, 7], ctx.output()),
      y: ctx.write(),
    })
  }

/** x with its scale and zero point, scale and zero point of y: the mean over all axes from `axis` on */
function mean(ctx: Lowering): void {
  const shape = ctx.shape(0)
  const [axis, rank] = [ctx.integer('axis'), shape.length]
  if (!ctx.bytes || numel(shape) === 0) {
    const x = ctx.call('DequantizeLinear', [ctx.input(0), ctx.input(1), ctx.input(2)])
    const axes = ctx.ints(shape.map((_, i) => i).slice(axis))
    const means = ctx.call('ReduceMean', [x, axes], { keepdims: int(ctx.integer('keepdims')) })
    ctx.give(ctx.call('QuantizeLinear', [means, ctx.input(3), ctx.input(4)]))
    return
  }
  ctx.step('meanBytes', {
    rows: numel(shape.slice(0, axis)),
    cols: numel(shape.slice(axis, rank)),
    x: ctx.read(0),
    ...scaledBytes(ctx, 'x', [1, 2], ctx.input(0)),
    ...scaledBytes(ctx, 'y', [3, 4], ctx.output()),
    y: ctx.write(),
  })
}

/** a, b, bias of i32 and scales as QLinearConv has them: a · b + bias, b being [K, N], or [N, K] with `transB` */
function gemm(ctx: Lowering): void {
  const [aScale, bScale, yScale, yZero] = [ctx.input(1), ctx.input(4), ctx.input(6), ctx.input(7)]
  const transposed = ctx.integer('transB') !== 0
  if (multiplyBytes(ctx, [0, 2, 3, 5, 8], [aScale, bScale, yScale, yZero], transposed)) return
  const b = transposed ? ctx.call('Transpose', [ctx.input(3)]) : ctx.input(3)
  const sums = ctx.call('MatMulInteger', [ctx.input(0), b, ctx.input(2), ctx.input(5)])
  const all = ctx.cast(ctx.has(8) ? ctx.call('Add', [sums, ctx.input(8)]) : sums, 'f32')
  const factor = ctx.call('Div', [ctx.call('Mul', [aScale, bScale]), yScale])
  const rounded = ctx.call('Round', [ctx.call('Mul', [all, factor])])
  ctx.give(ctx.call('Add', [rounded, ctx.cast(yZero, 'f32')]))
}

/** Lowerings of arithmetic on quantized tensors. */
export const quantizedArithmetic: LowerTable = {
  '': {
    MatMulInteger: matmulInteger,
    ConvInteger: convInteger,
    QLinearMatMul: qlinearMatmul,
    QLinearConv: qlinearConv,
  },
  [sparkDomain]: {
    Lookup: lookup,
    QLinearAdd: binary('Add'),
    QLinearMul: binary('Mul'),
    QLinearMean: mean,
    QLinearGemm: gemm,
  },
}
