/** Element types that weights and activations are stored in, by the lower-case names of the safetensors format. */
export type DType = 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'f8_e5m2'

/**
 * The typed array that holds the elements of a dtype. Formats that JavaScript lacks are stored as bit patterns, those of
 * less than a byte in a byte each; bool is 0 or 1, complex numbers are pairs.
 */
export type TypedArrayOf<D extends ElementType> = D extends 'f32' | 'c64'
  ? Float32Array
  : D extends 'f64' | 'c128'
    ? Float64Array
    : D extends 'i64'
      ? BigInt64Array
      : D extends 'u64'
        ? BigUint64Array
        : D extends 'i32'
          ? Int32Array
          : D extends 'u32'
            ? Uint32Array
            : D extends 'i16'
              ? Int16Array
              : D extends 'u16' | 'f16' | 'bf16'
                ? Uint16Array
                : D extends 'i8'
                  ? Int8Array
                  : D extends 'string'
                    ? string[]
                    : Uint8Array

/** Any array that holds elements of a {@link DType}. */
export type DTypeArray = Float32Array | Uint16Array | Uint8Array

/** Bytes of one element. */
export const dtypeBytes: Readonly<Record<DType, number>> = {
  f32: 4,
  f16: 2,
  bf16: 2,
  f8_e4m3: 1,
  f8_e5m2: 1,
}

/** Whether an element type is one that weights and activations are stored in. */
export const isDType = (dtype: ElementType): dtype is DType => dtype in dtypeBytes

/** All element types. */
export const dtypes = Object.keys(dtypeBytes) as readonly DType[]

/** A zero-filled array for `count` elements of `dtype`. */
export function dtypeArray<D extends DType>(dtype: D, count: number): TypedArrayOf<D> {
  const bytes = dtypeBytes[dtype]
  const array =
    bytes === 4 ? new Float32Array(count) : bytes === 2 ? new Uint16Array(count) : new Uint8Array(count)
  return array as TypedArrayOf<D>
}

/**
 * Element types of the values of an ONNX graph, by the lower-case names of the safetensors format: those of a
 * {@link Tensor}, wider and integer numbers, and formats smaller than a byte. `f8_*fnuz` have no infinities and no
 * negative zero, `f8_e8m0` is a power of two, `f4` is E2M1; `c64` and `c128` are pairs of f32 and f64.
 */
export type ElementType =
  | DType
  | 'f64'
  | 'f8_e4m3fnuz'
  | 'f8_e5m2fnuz'
  | 'f8_e8m0'
  | 'f4'
  | 'i64'
  | 'i32'
  | 'i16'
  | 'i8'
  | 'i4'
  | 'i2'
  | 'u64'
  | 'u32'
  | 'u16'
  | 'u8'
  | 'u4'
  | 'u2'
  | 'bool'
  | 'c64'
  | 'c128'
  | 'string'

/** Bits of one element; 0 for strings. Elements of less than 8 bits are packed, the first one in the low bits. */
export const elementBits: Readonly<Record<ElementType, number>> = {
  f32: 32,
  f16: 16,
  bf16: 16,
  f8_e4m3: 8,
  f8_e5m2: 8,
  f64: 64,
  f8_e4m3fnuz: 8,
  f8_e5m2fnuz: 8,
  f8_e8m0: 8,
  f4: 4,
  i64: 64,
  i32: 32,
  i16: 16,
  i8: 8,
  i4: 4,
  i2: 2,
  u64: 64,
  u32: 32,
  u16: 16,
  u8: 8,
  u4: 4,
  u2: 2,
  bool: 8,
  c64: 64,
  c128: 128,
  string: 0,
}

/** Any array that holds elements of a numeric {@link ElementType}. */
export type ElementArray =
  | Float64Array
  | Float32Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array

const elementArrays = {
  f64: Float64Array,
  f32: Float32Array,
  i64: BigInt64Array,
  i32: Int32Array,
  i16: Int16Array,
  i8: Int8Array,
  u64: BigUint64Array,
  u32: Uint32Array,
  u16: Uint16Array,
  c64: Float32Array,
  c128: Float64Array,
} as const

/**
 * The constructor of the array that holds elements of `dtype`. Formats that JavaScript lacks are held as their bit
 * patterns, packed ones and bool (0 or 1) in a Uint8Array, complex numbers as pairs.
 */
export function elementArrayOf(dtype: ElementType): {
  new (length: number): ElementArray
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): ElementArray
  readonly BYTES_PER_ELEMENT: number
  readonly name: string
} {
  if (dtype in elementArrays) return elementArrays[dtype as keyof typeof elementArrays]
  return elementBits[dtype] === 16 ? Uint16Array : Uint8Array
}

/** Bytes of `count` elements of `dtype`, packed; 0 for strings. */
export function elementBytes(dtype: ElementType, count: number): number {
  return Math.ceil((count * elementBits[dtype]) / 8)
}

/** Bytes of the array that {@link elementArrayOf} names for `count` elements: those of less than 8 bits take a byte each. */
export const arrayBytes = (dtype: ElementType, count: number): number =>
  count * elementArrayOf(dtype).BYTES_PER_ELEMENT

/** Floats of 16 bits. */
export type HalfType = 'f16' | 'bf16'

/** The type of 16 bits that holds f32 elements exactly which were cast from `from` to `to`; undefined for other casts. */
export function exactType(from: ElementType, to: ElementType): HalfType | undefined {
  return to === 'f32' && isHalf(from) ? from : undefined
}

/** Whether elements are floats of 16 bits. */
export const isHalf = (dtype: string): dtype is HalfType => dtype === 'f16' || dtype === 'bf16'

/** Whether elements are floats of 16 to 64 bits. */
export const isWideFloat = (dtype: string): boolean => isHalf(dtype) || dtype === 'f32' || dtype === 'f64'

/** Whether elements are floats, those of 8 and 4 bits included. */
export const isFloat = (dtype: string): boolean => dtype.startsWith('f') || dtype === 'bf16'

/** Whether elements are integers of any width, signed or not; bool is not one. */
export const isInteger = (dtype: string): boolean => isSigned(dtype) || isUnsigned(dtype)

/** Whether elements are signed integers. */
export const isSigned = (dtype: string): boolean => dtype.startsWith('i')

/** Whether elements are unsigned integers. */
export const isUnsigned = (dtype: string): boolean => dtype.startsWith('u')

/** Whether elements are integers of 8 to 64 bits, which JavaScript has arrays of. */
export const isWideInteger = (dtype: ElementType): boolean => isInteger(dtype) && elementBits[dtype] >= 8

/** Whether elements are integers of at most 16 bits. */
export const isNarrowInteger = (dtype: ElementType): boolean => isInteger(dtype) && elementBits[dtype] <= 16

/** Whether elements are integers that JavaScript holds as bigint. */
export const isBigInteger = (dtype: ElementType): dtype is 'i64' | 'u64' => dtype === 'i64' || dtype === 'u64'

/** Whether JavaScript has arrays whose elements are the numbers themselves. */
export const hasNativeArray = (dtype: ElementType): boolean =>
  dtype === 'f32' || dtype === 'f64' || dtype === 'bool' || isWideInteger(dtype)
