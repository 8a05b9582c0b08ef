/** Element types of a {@link Tensor}, by the lower-case names of the safetensors format. */
export type DType = 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'f8_e5m2'

/** The typed array that holds the elements of a dtype; 16-bit and 8-bit floats are held as their bit patterns. */
export type TypedArrayOf<D extends DType> = D extends 'f32'
  ? Float32Array
  : D extends 'f16' | 'bf16'
    ? Uint16Array
    : Uint8Array

/** Any array that {@link TypedArrayOf} can give. */
export type DTypeArray = Float32Array | Uint16Array | Uint8Array

/** Bytes of one element. */
export const dtypeBytes: Readonly<Record<DType, number>> = {
  f32: 4,
  f16: 2,
  bf16: 2,
  f8_e4m3: 1,
  f8_e5m2: 1,
}

/** All element types. */
export const dtypes = Object.keys(dtypeBytes) as readonly DType[]

/** A zero-filled array for `count` elements of `dtype`. */
export function dtypeArray<D extends DType>(dtype: D, count: number): TypedArrayOf<D> {
  const bytes = dtypeBytes[dtype]
  const array =
    bytes === 4 ? new Float32Array(count) : bytes === 2 ? new Uint16Array(count) : new Uint8Array(count)
  return array as TypedArrayOf<D>
}
