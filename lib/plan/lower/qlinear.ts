// qlinear.ts: arithmetic on quantized tensors, with int8 kernels where the backend has them, else in f32.
import { numel } from '../../core/shape.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import type { Operand } from '../program.js'
import type { LowerTable } from './table.js'
import { windowOf } from './window.js'

/** Elements of 8 bits, which the kernels know. */
export const isBytes = ({ dtype }: { readonly dtype: string }): boolean => dtype === 'u8' || dtype === 'i8'

/** `value` as a list of `count` elements, one for all being repeated. */
function listOf(at: Lowering, value: Value, count: number): Value {
  const list = at.reshaped(value, [value.buffer.count])
  return value.buffer.count === count ? list : at.call('Expand', [list, at.ints([count])])
}

/** Zero points as a list of i32; undefined where they are known to be 0. */
export function zerosOf(at: Lowering, value: Value | undefined, count: number): Value | undefined {
  const elements = value?.buffer.storage === 'constant' ? value.buffer.initial!() : undefined
  if (!value || (elements as Uint8Array | undefined)?.every(element => element === 0)) return undefined
  return listOf(at, at.cast(value, 'i32'), count)
}

/** A weight as i8 and its zero points by feature: those of unsigned ones move by 128. */
function signedWeight(
  at: Lowering,
  weight: Value,
  zero: Value | undefined,
  features: number,
): { codes: Value; zeros: Value | undefined } {
  if (weight.dtype === 'i8') return { codes: weight, zeros: zerosOf(at, zero, features) }
  const moved = at.call('Sub', [at.cast(weight, 'i16'), at.one(128, 'i16')])
  const given = zero ? at.cast(zero, 'i32') : at.one(0, 'i32')
  const zeros = listOf(at, at.call('Sub', [given, at.one(128, 'i32')]), features)
  return { codes: at.cast(moved, 'i8'), zeros }
}

/** Sums of a matrix of codes along an axis. */
const sums = (at: Lowering, codes: Value, axis: number): Operand =>
  at.call('ReduceSum', [at.cast(codes, 'i32'), at.ints([axis])], { keepdims: int(0) }).buffer.read()

/** A copy of `codes`, which a file may have at any address, with zeros at the end of its axes, up to these sizes. */
function padded(at: Lowering, codes: Value, sizes: readonly number[]): Value {
  const ends = sizes.map((size, axis) => size - codes.shape[axis]!)
  return at.call('Pad', [codes, at.ints([...sizes.map(() => 0), ...ends]), at.one(0, 'i8')])
}

const roundUp = (count: number, multiple: number): number => Math.ceil(count / multiple) * multiple

/** Scales of an operation on integers: of both operands and of y, with the zero point of y. */
type Scales = readonly [a: Value, b: Value, y: Value, zero: Value | undefined]

/** The scales of y's features and its zero point, as kernels take them. */
function resultOf(at: Lowering, features: number, scales: Scales | undefined) {
  if (!scales) return {}
  const [a, b, y, zero] = scales
  const scale = at.call('Div', [at.call('Mul', [at.cast(a, 'f32'), at.cast(b, 'f32')]), at.cast(y, 'f32')])
  const yDtype = at.output().dtype as 'u8' | 'i8'
  return {
    scale: listOf(at, scale, features).buffer.read(),
    yDtype,
    yZero: zerosOf(at, zero, 1)?.buffer.read(),
  }
}

/** A convolution: places of x, its zero point, the weight, its zero points and the bias among the inputs. */
export function convolveBytes(
  at: Lowering,
  [x, xZero, w, wZero, bias]: readonly [number, number, number, number, number],
  scales?: Scales,
): boolean {
  const weight = at.input(w)
  if (!at.bytes || !isBytes(at.input(x)) || !isBytes(weight) || (scales && !isBytes(at.output())))
    return false
  const [rows = 0, ...rest] = weight.shape
  const cols = numel(rest)
  if (cols === 0) return false
  const { codes, zeros } = signedWeight(at, weight, at.inputIfAny(wZero), rows)
  const matrix = at.reshaped(codes, [rows, cols])
  const { padsEnd: _, ...window } = windowOf(at, at.shape(x), at.output().shape, rest.slice(1))
  at.step('convInteger', {
    ...{ batch: at.shape(x)[0]!, groups: at.integer('group', 1), ...window, rows, cols },
    ...{ xSigned: at.input(x).dtype === 'i8', x: at.read(x) },
    xZero: zerosOf(at, at.inputIfAny(xZero), 1)?.buffer.read(),
    w: padded(at, matrix, [rows, roundUp(cols, 64)]).buffer.read(),
    ...{ wZero: zeros?.buffer.read(), wSum: sums(at, matrix, 1) },
    ...{ bias: at.optional(bias), ...resultOf(at, rows, scales), y: at.write() },
  })
  return true
}

/** A constant matrix [N, K], or [K, N], in panels of 32 of its N that are interleaved by four: [⌈N/32⌉, ⌈K/4⌉, 32, 4]. */
function panelsOf(at: Lowering, codes: Value, byRows: boolean): Value {
  const [n, k] = byRows ? codes.shape : [codes.shape[1], codes.shape[0]]
  const [panels, lanes] = [Math.ceil(n! / 32), Math.ceil(k! / 4)]
  const sizes = byRows ? [panels, 32, lanes, 4] : [lanes, 4, panels, 32]
  const whole = padded(at, codes, [sizes[0]! * sizes[1]!, sizes[2]! * sizes[3]!])
  const perm = ints(byRows ? [0, 2, 1, 3] : [2, 0, 3, 1])
  return at.call('Transpose', [at.reshaped(whole, sizes)], { perm })
}

/**
 * A product with a matrix [K, N], or [N, K] with `transB`: places of a, its zero point, b, its zero points and the bias
 * among the inputs.
 */
export function multiplyBytes(
  at: Lowering,
  [a, aZero, b, bZero, bias]: readonly [number, number, number, number, number?],
  scales?: Scales,
): boolean {
  const [left, right] = [at.input(a), at.input(b)]
  const turned = at.integer('transB', 0) !== 0
  const [cols = 0, rows = 0] = turned ? [...right.shape].reverse() : right.shape
  const fits = right.shape.length === 2 && left.shape.length > 0 && cols > 0 && rows > 0
  if (!at.bytes || !fits || !isBytes(left) || !isBytes(right) || (scales && !isBytes(at.output())))
    return false
  if (scales && (scales[0].buffer.count !== 1 || scales[2].buffer.count !== 1)) return false
  const tokens = numel(left.shape) / cols
  const { codes, zeros } = signedWeight(at, right, at.inputIfAny(bZero), rows)
  const packed = right.buffer.storage === 'constant'
  const w = packed ? panelsOf(at, codes, turned) : turned ? codes : at.call('Transpose', [codes])
  at.step('linearInteger', {
    ...{ tokens, rows, cols, packed, wSigned: true, xSigned: left.dtype === 'i8', x: at.read(a) },
    ...{ w: w.buffer.read(), wSum: sums(at, codes, turned ? 1 : 0), wZero: zeros?.buffer.read() },
    xZero: zerosOf(at, at.inputIfAny(aZero), tokens)?.buffer.read(),
    bias: bias === undefined ? undefined : at.optional(bias),
    ...{ ...resultOf(at, rows, scales), y: at.write() },
  })
  return true
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

/** x, table: the code of the table for each byte of x, signed ones being counted as their bits. */
function lookup(at: Lowering): void {
  const [x, table] = [at.input(0), at.input(1)]
  if (at.bytes) {
    at.step('lookup', {
      ...{ count: x.buffer.count, xSigned: x.dtype === 'i8', ySigned: table.dtype === 'i8' },
      ...{ x: x.buffer.read(), table: table.buffer.read(), y: at.write() },
    })
    return
  }
  const index = at.cast(x, 'i32')
  at.give(
    at.call('Gather', [table, x.dtype === 'i8' ? at.call('BitwiseAnd', [index, at.one(255, 'i32')]) : index]),
  )
}

/** Operands of bytes with one scale, in the names of the kernels. */
function scaledBytes<Name extends 'a' | 'b' | 'x' | 'y'>(
  at: Lowering,
  name: Name,
  [scale, zero]: readonly [number, number],
  { dtype }: { readonly dtype: string },
) {
  return {
    [`${name}Dtype`]: dtype,
    [`${name}Scale`]: at.read(scale),
    [`${name}Zero`]: zerosOf(at, at.input(zero), 1)?.buffer.read(),
  } as Record<`${Name}Dtype`, 'u8' | 'i8'> &
    Record<`${Name}Scale`, Operand> &
    Record<`${Name}Zero`, Operand | undefined>
}

/** a and b with their scales and zero points, scale and zero point of y; a and b are of one shape */
const binary =
  (op: 'Add' | 'Mul') =>
  (at: Lowering): void => {
    if (!at.bytes) {
      const parts = [0, 3].map(i =>
        at.call('DequantizeLinear', [at.input(i), at.input(i + 1), at.input(i + 2)]),
      )
      at.give(at.call('QuantizeLinear', [at.call(op, parts), at.input(6), at.input(7)]))
      return
    }
    at.step('binaryBytes', {
      ...{ fn: op === 'Add' ? 'add' : 'mul', count: at.input(0).buffer.count, a: at.read(0), b: at.read(3) },
      ...scaledBytes(at, 'a', [1, 2], at.input(0)),
      ...scaledBytes(at, 'b', [4, 5], at.input(3)),
      ...{ ...scaledBytes(at, 'y', [6, 7], at.output()), y: at.write() },
    })
  }

/** x with its scale and zero point, scale and zero point of y: the mean over all axes from `axis` on */
function mean(at: Lowering): void {
  const shape = at.shape(0)
  const [axis, rank] = [at.integer('axis', 2), shape.length]
  if (!at.bytes || numel(shape) === 0) {
    const x = at.call('DequantizeLinear', [at.input(0), at.input(1), at.input(2)])
    const axes = at.ints(shape.map((_, i) => i).slice(axis))
    const means = at.call('ReduceMean', [x, axes], { keepdims: int(at.integer('keepdims', 1)) })
    at.give(at.call('QuantizeLinear', [means, at.input(3), at.input(4)]))
    return
  }
  at.step('meanBytes', {
    ...{ rows: numel(shape.slice(0, axis)), cols: numel(shape.slice(axis, rank)), x: at.read(0) },
    ...scaledBytes(at, 'x', [1, 2], at.input(0)),
    ...{ ...scaledBytes(at, 'y', [3, 4], at.output()), y: at.write() },
  })
}

/** a, b, bias of i32 and scales as QLinearConv has them: a · b + bias, b being [K, N], or [N, K] with `transB` */
function gemm(at: Lowering): void {
  const [aScale, bScale, yScale, yZero] = [at.input(1), at.input(4), at.input(6), at.input(7)]
  if (multiplyBytes(at, [0, 2, 3, 5, 8], [aScale, bScale, yScale, yZero])) return
  const b = at.integer('transB', 0) === 0 ? at.input(3) : at.call('Transpose', [at.input(3)])
  const sums = at.call('MatMulInteger', [at.input(0), b, at.input(2), at.input(5)])
  const all = at.cast(at.has(8) ? at.call('Add', [sums, at.input(8)]) : sums, 'f32')
  const factor = at.call('Div', [at.call('Mul', [aScale, bScale]), yScale])
  const rounded = at.call('Round', [at.call('Mul', [all, factor])])
  at.give(at.call('Add', [rounded, at.cast(yZero, 'f32')]))
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
