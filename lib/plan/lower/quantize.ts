// quantize.ts: operators on quantized tensors, as compositions in f32 where integer.ts has no kernels for them.
import { int } from '../../graph/attributes.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { convolveBytes, dequantizeBytes, multiplyBytes, quantizeBytes } from './integer.js'
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
  if (!dtype.startsWith('f')) y = at.call('Round', [y])
  if (at.has(2)) y = at.call('Add', [y, at.cast(spread(at, at.input(2), shape), 'f32')])
  const dst = at.write()
  const saturate = !dtype.startsWith('f') || at.integer('saturate', 1) !== 0
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

/** x − zero point as f32, which holds every difference; `shape` lets one zero point per row broadcast. */
function centered(at: Lowering, x: Value, zero: Value | undefined, shape?: readonly number[]): Value {
  const values = at.cast(x, 'f32')
  if (!zero) return values
  const given = at.cast(zero, 'f32')
  const spreadOut = shape && zero.buffer.count > 1 ? at.reshaped(given, shape) : given
  const scalar = zero.buffer.count === 1 ? at.reshaped(given, []) : spreadOut
  return at.call('Sub', [values, scalar])
}

/** a, b, zero points of a (one, or one per row) and b (one, or one per column) → products of integers. */
function matmulInteger(at: Lowering): void {
  if (multiplyBytes(at, [0, 2, 1, 3])) return
  const rows = at.has(2) && at.shape(2).length === 1 ? [at.shape(2)[0]!, 1] : undefined
  const a = centered(at, at.input(0), at.inputIfAny(2), rows)
  at.give(at.call('MatMul', [a, centered(at, at.input(1), at.inputIfAny(3))]))
}

/** x, w, zero points of x and w (one, or one per filter). */
function convInteger(at: Lowering): void {
  if (convolveBytes(at, [0, 2, 1, 3, 4])) return
  const filters = [
    at.shape(1)[0]!,
    ...at
      .shape(1)
      .slice(1)
      .map(() => 1),
  ]
  const x = centered(at, at.input(0), at.inputIfAny(2))
  const w = centered(at, at.input(1), at.inputIfAny(3), filters)
  at.give(at.call('Conv', [x, w], at.node.attributes))
}

/** The scale of y, which may be one per channel or column, applied to products; then rounded and saturated. */
function requantized(
  at: Lowering,
  products: Value,
  [a, b, y]: readonly [Value, Value, Value],
  zero: Value,
): void {
  const factor = at.call('Div', [at.call('Mul', [at.cast(a, 'f32'), at.cast(b, 'f32')]), at.cast(y, 'f32')])
  const scaled = at.call('Round', [at.call('Mul', [products, factor])])
  at.give(at.call('Add', [scaled, at.cast(zero, 'f32')]))
}

/** a, scale, zero, b, scale, zero, scale of y, zero of y */
function qlinearMatmul(at: Lowering): void {
  if (multiplyBytes(at, [0, 2, 3, 5], [at.input(1), at.input(4), at.input(6), at.input(7)])) return
  const a = centered(at, at.input(0), at.input(2))
  const b = centered(at, at.input(3), at.input(5))
  requantized(at, at.call('MatMul', [a, b]), [at.input(1), at.input(4), at.input(6)], at.input(7))
}

/** x, scale, zero, w, scale, zero, scale of y, zero of y, bias */
function qlinearConv(at: Lowering): void {
  if (convolveBytes(at, [0, 2, 3, 5, 8], [at.input(1), at.input(4), at.input(6), at.input(7)])) return
  const rank = at.shape(0).length
  const perFilter = (value: Value): Value =>
    value.buffer.count === 1 ? value : at.reshaped(value, [value.buffer.count, ...Array(rank - 2).fill(1)])
  const filters = [
    at.shape(3)[0]!,
    ...at
      .shape(3)
      .slice(1)
      .map(() => 1),
  ]
  const x = centered(at, at.input(0), at.input(2))
  const w = centered(at, at.input(3), at.input(5), filters)
  const bias = at.has(8) ? at.cast(at.input(8), 'f32') : undefined
  const products = at.call('Conv', [x, w, bias], at.node.attributes)
  requantized(at, products, [at.input(1), perFilter(at.input(4)), at.input(6)], at.input(7))
}

/** Lowerings of quantized operators. */
export const quantized: LowerTable = {
  '': {
    DequantizeLinear: dequantize,
    QuantizeLinear: quantize,
    DynamicQuantizeLinear: dynamicQuantize,
    MatMulInteger: matmulInteger,
    ConvInteger: convInteger,
    QLinearMatMul: qlinearMatmul,
    QLinearConv: qlinearConv,
  },
}
