// values.ts: the metadata of GGUF files: the types of values, and what stands for them here.

/** Types of scalars by the number that stands for them in a file, without strings; `bytes` of one in a file. */
export const scalarTypes = {
  u8: { id: 0, bytes: 1 },
  i8: { id: 1, bytes: 1 },
  u16: { id: 2, bytes: 2 },
  i16: { id: 3, bytes: 2 },
  u32: { id: 4, bytes: 4 },
  i32: { id: 5, bytes: 4 },
  f32: { id: 6, bytes: 4 },
  bool: { id: 7, bytes: 1 },
  u64: { id: 10, bytes: 8 },
  i64: { id: 11, bytes: 8 },
  f64: { id: 12, bytes: 8 },
} as const

/** Numbers that stand for the types that have no fixed size. */
export const stringId = 8
export const arrayId = 9

/** A type of a metadata value that is no string and no array. */
export type GgufScalar = keyof typeof scalarTypes

/** Types of numbers that JavaScript's numbers hold. */
export type GgufNumber = Exclude<GgufScalar, 'bool' | 'u64' | 'i64'>

/** A value that is no array. */
export interface GgufSingle<Type, Value> {
  /** Its type in the file. */
  readonly type: Type
  /** The value. */
  readonly value: Value
}

/** An array of the metadata. */
export interface GgufElements<Of, Values> {
  /** The type of all arrays. */
  readonly type: 'array'
  /** The type of its elements in the file. */
  readonly of: Of
  /** The elements. */
  readonly value: Values
}

/** An array of the metadata, by the type of its elements. */
export type GgufArray =
  | GgufElements<'string', readonly string[]>
  | GgufElements<'bool', readonly boolean[]>
  | GgufElements<'u64', BigUint64Array>
  | GgufElements<'i64', BigInt64Array>
  | GgufElements<'u8', Uint8Array>
  | GgufElements<'i8', Int8Array>
  | GgufElements<'u16', Uint16Array>
  | GgufElements<'i16', Int16Array>
  | GgufElements<'u32', Uint32Array>
  | GgufElements<'i32', Int32Array>
  | GgufElements<'f32', Float32Array>
  | GgufElements<'f64', Float64Array>

/** A value of the metadata of a GGUF file, with its type there. */
export type GgufValue =
  | GgufSingle<'string', string>
  | GgufSingle<'bool', boolean>
  | GgufSingle<'u64' | 'i64', bigint>
  | GgufSingle<GgufNumber, number>
  | GgufArray

/** Arrays that hold the elements of metadata arrays of numbers. */
export const arraysOf = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  u64: BigUint64Array,
  i64: BigInt64Array,
  f64: Float64Array,
} as const

const scalarsById = new Map<number, GgufScalar>(
  (Object.keys(scalarTypes) as GgufScalar[]).map(type => [scalarTypes[type].id, type]),
)

/** The type of scalars with this number; undefined for strings, arrays and what does not exist. */
export const scalarOf = (id: number): GgufScalar | undefined => scalarsById.get(id)
