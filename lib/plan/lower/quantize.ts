import { isFloat } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { multiply, type Size, sameSize } from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import { axisOf } from '../views.js'
import { isBytes, zerosOf } from './qlinear.js'
import type { LowerTable } from './table.js'

/** A scale or zero point in a shape that broadcasts to x: one for all, one per index of an axis, or one per block. */
function spread(ctx: Lowering, parameter: Value, x: readonly Size[]): Value {
  if (parameter.shape.length === 0 || parameter.buffer.count === 1) {
    return ctx.reshaped(parameter, [])
  }
  const axis = axisOf(ctx.integer('axis'), x.length)
  const block = ctx.integer('block_size')
  if (block === 0) {
    return ctx.reshaped(
      parameter,
      x.map((size, i) => (i === axis ? size : 1)),
    )
  }
  const blocks = ctx.call('Unsqueeze', [parameter, ctx.ints([axis + 1])])
  const repeated = [...parameter.shape.slice(0, axis + 1), block, ...parameter.shape.slice(axis + 1)]
  const whole = ctx.call('Expand', [blocks, ctx.ints(repeated)])
  const joined = parameter.shape.map((size, i) => (i === axis ? multiply(size, block) : size))
  const flat = ctx.reshaped(whole, joined)
  const rest = { starts: ctx.ints([0]), ends: ctx.ints([x[axis]!]), axes: ctx.ints([axis]) }
  return sameSize(joined[axis]!, x[axis]!)
    ? flat
    : ctx.call('Slice', [flat, rest.starts, rest.ends, rest.axes])
}

/** Sizes in front of the channels that have scales, of these, and behind; undefined for blocks. */
function affineShape(ctx: Lowering, scale: Value): { outer: Size; channels: Size; inner: Size } | undefined {
  const shape = ctx.shape(0)
  if (sameSize(scale.buffer.count, 1)) return { outer: 1, channels: 1, inner: numel(shape) }
  if (ctx.integer('block_size') !== 0 || scale.shape.length !== 1) return undefined
  const axis = axisOf(ctx.integer('axis'), shape.length)
  if (!sameSize(shape[axis]!, scale.buffer.count)) return undefined
  return { outer: numel(shape.slice(0, axis)), channels: shape[axis]!, inner: numel(shape.slice(axis + 1)) }
}

/** Operands of a cast between floats and bytes: x, scale, zero point. */
function castBytes(ctx: Lowering, op: 'quantize' | 'dequantize', bytes: { readonly dtype: string }): boolean {
  const [scale, floats] = [ctx.input(1), op === 'quantize' ? ctx.input(0) : ctx.output()]
  const shape = affineShape(ctx, scale)
  if (!ctx.bytes || !shape || !isBytes(bytes) || floats.dtype !== 'f32' || scale.dtype !== 'f32') return false
  ctx.step(op, {
    dtype: bytes.dtype as 'u8' | 'i8',
    ...shape,
    x: ctx.read(0),
    scale: scale.buffer.read(),
    zero: zerosOf(ctx, ctx.inputIfAny(2), shape.channels)?.buffer.read(),
    y: ctx.write(),
  })
  return true
}

/** QuantizeLinear to bytes. */
export const quantizeBytes = (ctx: Lowering): boolean => castBytes(ctx, 'quantize', ctx.output())

/** DequantizeLinear of bytes. */
export const dequantizeBytes = (ctx: Lowering): boolean => castBytes(ctx, 'dequantize', ctx.input(0))

/** x, scale, zero point → (x − zero) · scale */
function dequantize(ctx: Lowering): void {
  if (dequantizeBytes(ctx)) return
  const shape = ctx.shape(0)
  const scale = ctx.cast(spread(ctx, ctx.input(1), shape), 'f32')
  let x = ctx.cast(ctx.input(0), 'f32')
  if (ctx.has(2)) x = ctx.call('Sub', [x, ctx.cast(spread(ctx, ctx.input(2), shape), 'f32')])
  ctx.give(ctx.call('Mul', [x, scale]))
}

/** x, scale, zero point → round(x / scale) + zero, saturating; floats are rounded by their format. */
function quantize(ctx: Lowering): void {
  if (quantizeBytes(ctx)) return
  const [shape, { dtype }] = [ctx.shape(0), ctx.output()]
  const x = ctx.cast(ctx.input(0), 'f32')
  let y = ctx.call('Div', [x, ctx.cast(spread(ctx, ctx.input(1), shape), 'f32')])
  if (!isFloat(dtype)) y = ctx.call('Round', [y])
  if (ctx.has(2)) y = ctx.call('Add', [y, ctx.cast(spread(ctx, ctx.input(2), shape), 'f32')])
  const dst = ctx.write()
  const saturate = !isFloat(dtype) || ctx.integer('saturate') !== 0
  const src = y.buffer.read()
  ctx.step('cast', { srcDtype: 'f32', dstDtype: ctx.kernelType(dtype), count: src.count, saturate, src, dst })
}

/** A scale for all of x, so that u8 covers its range, which contains 0. */
function dynamicQuantize(ctx: Lowering): void {
  const x = ctx.input(0)
  const zero = ctx.one(0)
  const ends = (op: string, bound: string): Value =>
    ctx.call(bound, [ctx.call(op, [x], { keepdims: int(0) }), zero])
  const [max, min] = [ends('ReduceMax', 'Max'), ends('ReduceMin', 'Min')]
  const scale = ctx.call('Div', [ctx.call('Sub', [max, min]), ctx.one(255)])
  const offset = ctx.call('Round', [ctx.call('Div', [ctx.call('Neg', [min]), scale])])
  const zeroPoint = ctx.cast(offset, 'u8')
  ctx.give(ctx.call('QuantizeLinear', [x, scale, zeroPoint]), 0)
  ctx.give(scale, 1)
  ctx.give(zeroPoint, 2)
}

/** Lowerings of conversions. */
export const quantization: LowerTable = {
  '': {
    DequantizeLinear: dequantize,
    QuantizeLinear: quantize,
    DynamicQuantizeLinear: dynamicQuantize,
  },
}
