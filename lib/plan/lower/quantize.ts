import { isFloat } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { int } from '../../graph/attributes.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { isBytes, zerosOf } from './qlinear.js'
import type { LowerTable } from './table.js'

/** A scale or zero point in a shape that broadcasts to x: one for all, one per index of an axis, or one per block. */
function spread(at: Lowering, parameter: Value, x: readonly number[]): Value {
  if (parameter.shape.length === 0 || parameter.buffer.count === 1) {
    return at.reshaped(parameter, [])
  }
  const axis = axisOf(at.integer('axis', 1), x.length)
  const block = at.integer('block_size', 0)
  if (block === 0) {
    return at.reshaped(
      parameter,
      x.map((size, i) => (i === axis ? size : 1)),
    )
  }
  const blocks = at.call('Unsqueeze', [parameter, at.ints([axis + 1])])
  const repeated = [...parameter.shape.slice(0, axis + 1), block, ...parameter.shape.slice(axis + 1)]
  const whole = at.call('Expand', [blocks, at.ints(repeated)])
  const joined = parameter.shape.map((size, i) => (i === axis ? size * block : size))
  const flat = at.reshaped(whole, joined)
  const rest = { starts: at.ints([0]), ends: at.ints([x[axis]!]), axes: at.ints([axis]) }
  return joined[axis] === x[axis] ? flat : at.call('Slice', [flat, rest.starts, rest.ends, rest.axes])
}

/** Sizes in front of the channels that have scales, of these, and behind; undefined for blocks. */
function affineShape(
  at: Lowering,
  scale: Value,
): { outer: number; channels: number; inner: number } | undefined {
  const shape = at.shape(0)
  if (scale.buffer.count === 1) return { outer: 1, channels: 1, inner: numel(shape) }
  if (at.integer('block_size', 0) !== 0 || scale.shape.length !== 1) return undefined
  const axis = axisOf(at.integer('axis', 1), shape.length)
  if (shape[axis] !== scale.buffer.count) return undefined
  return { outer: numel(shape.slice(0, axis)), channels: shape[axis]!, inner: numel(shape.slice(axis + 1)) }
}

/** Operands of a cast between floats and bytes: x, scale, zero point. */
function castBytes(at: Lowering, op: 'quantize' | 'dequantize', bytes: { readonly dtype: string }): boolean {
  const [scale, floats] = [at.input(1), op === 'quantize' ? at.input(0) : at.output()]
  const shape = affineShape(at, scale)
  if (!at.bytes || !shape || !isBytes(bytes) || floats.dtype !== 'f32' || scale.dtype !== 'f32') return false
  at.step(op, {
    ...{ dtype: bytes.dtype as 'u8' | 'i8', ...shape, x: at.read(0), scale: scale.buffer.read() },
    ...{ zero: zerosOf(at, at.inputIfAny(2), shape.channels)?.buffer.read(), y: at.write() },
  })
  return true
}

/** QuantizeLinear to bytes. */
export const quantizeBytes = (at: Lowering): boolean => castBytes(at, 'quantize', at.output())

/** DequantizeLinear of bytes. */
export const dequantizeBytes = (at: Lowering): boolean => castBytes(at, 'dequantize', at.input(0))

/** x, scale, zero point → (x − zero) · scale */
function dequantize(at: Lowering): void {
  if (dequantizeBytes(at)) return
  const shape = at.shape(0)
  const scale = at.cast(spread(at, at.input(1), shape), 'f32')
  let x = at.cast(at.input(0), 'f32')
  if (at.has(2)) x = at.call('Sub', [x, at.cast(spread(at, at.input(2), shape), 'f32')])
  at.give(at.call('Mul', [x, scale]))
}

/** x, scale, zero point → round(x / scale) + zero, saturating; floats are rounded by their format. */
function quantize(at: Lowering): void {
  if (quantizeBytes(at)) return
  const [shape, { dtype }] = [at.shape(0), at.output()]
  const x = at.cast(at.input(0), 'f32')
  let y = at.call('Div', [x, at.cast(spread(at, at.input(1), shape), 'f32')])
  if (!isFloat(dtype)) y = at.call('Round', [y])
  if (at.has(2)) y = at.call('Add', [y, at.cast(spread(at, at.input(2), shape), 'f32')])
  const dst = at.write()
  const saturate = !isFloat(dtype) || at.integer('saturate', 1) !== 0
  const src = y.buffer.read()
  at.step('cast', { srcDtype: 'f32', dstDtype: at.kernelType(dtype), count: src.count, saturate, src, dst })
}

/** A scale for all of x, so that u8 covers its range, which contains 0. */
function dynamicQuantize(at: Lowering): void {
  const x = at.input(0)
  const zero = at.one(0)
  const ends = (op: string, bound: string): Value =>
    at.call(bound, [at.call(op, [x], { keepdims: int(0) }), zero])
  const [most, least] = [ends('ReduceMax', 'Max'), ends('ReduceMin', 'Min')]
  const scale = at.call('Div', [at.call('Sub', [most, least]), at.one(255)])
  const offset = at.call('Round', [at.call('Div', [at.call('Neg', [least]), scale])])
  const zeroPoint = at.cast(offset, 'u8')
  at.give(at.call('QuantizeLinear', [x, scale, zeroPoint]), 0)
  at.give(scale, 1)
  at.give(zeroPoint, 2)
}

/** Lowerings of conversions. */
export const quantization: LowerTable = {
  '': {
    DequantizeLinear: dequantize,
    QuantizeLinear: quantize,
    DynamicQuantizeLinear: dynamicQuantize,
  },
}
