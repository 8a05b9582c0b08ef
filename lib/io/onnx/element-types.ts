// element-types.ts: the numbers of the ONNX format for element types, and their limits.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'

/** Number of each element type (TensorProto.DataType). */
export const onnxNumbers: Readonly<Record<ElementType, number>> = {
  f32: 1,
  u8: 2,
  i8: 3,
  u16: 4,
  i16: 5,
  i32: 6,
  i64: 7,
  string: 8,
  bool: 9,
  f16: 10,
  f64: 11,
  u32: 12,
  u64: 13,
  c64: 14,
  c128: 15,
  bf16: 16,
  f8_e4m3: 17,
  f8_e4m3fnuz: 18,
  f8_e5m2: 19,
  f8_e5m2fnuz: 20,
  u4: 21,
  i4: 22,
  f4: 23,
  f8_e8m0: 24,
  u2: 25,
  i2: 26,
}

const names = new Map(Object.entries(onnxNumbers).map(([name, number]) => [number, name as ElementType]))

/**
 * The element type of a number of the format.
 * @param what - names the value in the error
 * @throws SparkError ERR_FORMAT for an unknown number
 */
export function elementTypeOf(number: number | undefined, what: string): ElementType {
  const name = names.get(number ?? 0)
  if (!name) throw new SparkError('ERR_FORMAT', `${what} has the unknown element type ${number ?? 0}`)
  return name
}
