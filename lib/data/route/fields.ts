// fields.ts: descriptions of fields of Cap'n Proto structs, by the bits or the pointer that `capnp compile -ocapnp` says.
// What a struct of an older schema does not have reads as its default, as in Cap'n Proto; a struct that is not there is null.
import { PointerType, utils } from 'capnp-es'
import { elementOf, listAt, pointerOf, structAt } from './objects.js'
import type { ListView, StructView } from './views.js'

/** Reads a value of a struct. */
export type Field<T> = (view: StructView) => T

/** Plain objects with the values of fields. */
export type Values<F extends Readonly<Record<string, Field<unknown>>>> = {
  -readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never
}

/** An object of fields that lie in the same struct: the whole of it, or a group. */
export function struct<F extends Readonly<Record<string, Field<unknown>>>>(fields: F): Field<Values<F>> {
  const entries = Object.entries(fields)
  return view => {
    const value: Record<string, unknown> = {}
    for (const [name, read] of entries) value[name] = read(view)
    return value as Values<F>
  }
}

const scalar =
  <T>(bytes: number, missing: T, read: (view: StructView, at: number) => T) =>
  (bit: number): Field<T> => {
    const offset = bit / 8
    return view => (offset + bytes <= view.dataBytes ? read(view, view.data + offset) : missing)
  }

/** A number of 8 bits without sign. */
export const u8 = scalar(1, 0, ({ segment }, at) => segment.getUint8(at))
/** A number of 16 bits without sign. */
export const u16 = scalar(2, 0, ({ segment }, at) => segment.getUint16(at))
/** A number of 32 bits without sign. */
export const u32 = scalar(4, 0, ({ segment }, at) => segment.getUint32(at))
/** A number of 64 bits without sign. */
export const u64 = scalar(8, 0n, ({ segment }, at) => segment.getUint64(at))
/** A number of 8 bits. */
export const i8 = scalar(1, 0, ({ segment }, at) => segment.getInt8(at))
/** A number of 16 bits. */
export const i16 = scalar(2, 0, ({ segment }, at) => segment.getInt16(at))
/** A number of 32 bits. */
export const i32 = scalar(4, 0, ({ segment }, at) => segment.getInt32(at))
/** A number of 64 bits. */
export const i64 = scalar(8, 0n, ({ segment }, at) => segment.getInt64(at))
/** A floating-point number of 32 bits. */
export const f32 = scalar(4, 0, ({ segment }, at) => segment.getFloat32(at))
/** A floating-point number of 64 bits. */
export const f64 = scalar(8, 0, ({ segment }, at) => segment.getFloat64(at))

/** A bit; one whose default is true is stored inverted. */
export function bool(bit: number, isTrueByDefault = false): Field<boolean> {
  const [offset, mask] = [bit >> 3, 1 << (bit & 7)]
  return ({ segment, data, dataBytes }) => {
    const isSet = offset < dataBytes && (segment.getUint8(data + offset) & mask) !== 0
    return isSet !== isTrueByDefault
  }
}

/** One of some names; a number that has none yet as text. */
export function oneOf(bit: number, ...names: readonly string[]): Field<string> {
  const read = u16(bit)
  return view => {
    const code = read(view)
    return names[code] ?? String(code)
  }
}

/** A list; undefined when it is not there, or of another type, as in a damaged message. */
function listOf(view: StructView, index: number, size: number): ListView | undefined {
  const pointer = pointerOf(view, index)
  const list = pointer && utils.getTargetPointerType(pointer) === PointerType.LIST && listAt(pointer)
  return list && list.size === size ? list : undefined
}

/** A copy of bytes of a list. */
function bytesOf({ segment, data }: ListView, bytes: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(segment.buffer as ArrayBuffer, data, bytes).slice()
}

/** Text in UTF-8; '' when it is not there. */
export function text(index: number): Field<string> {
  return view => {
    const list = listOf(view, index, 2)
    if (!list || list.count === 0) return ''
    return Buffer.from(list.segment.buffer, list.data, list.count - 1).toString('utf8')
  }
}

/** Bytes; none when they are not there. */
export function data(index: number): Field<Uint8Array> {
  return view => {
    const list = listOf(view, index, 2)
    return list ? bytesOf(list, list.count) : new Uint8Array(0)
  }
}

const numbers =
  <T>(size: number, bytes: number, make: (buffer: ArrayBuffer) => T) =>
  (index: number): Field<T> =>
  view => {
    const list = listOf(view, index, size)
    return make(list ? bytesOf(list, bytes * list.count).buffer : new ArrayBuffer(0))
  }

/** A list of floating-point numbers of 32 bits; an empty one when it is not there. */
export const f32s = numbers(4, 4, buffer => new Float32Array(buffer))
/** A list of floating-point numbers of 64 bits; an empty one when it is not there. */
export const f64s = numbers(5, 8, buffer => new Float64Array(buffer))

/** Texts; none when they are not there. */
export function texts(index: number): Field<string[]> {
  return view => {
    const list = listOf(view, index, 6)
    if (!list) return []
    const { segment, data, count } = list
    const pointers = { segment, data, dataBytes: 0, pointers: data, pointerCount: count }
    return Array.from({ length: count }, (_, i) => text(i)(pointers))
  }
}

/** A struct behind a pointer; null when it is not there. */
export function at<T>(index: number, read: Field<T>): Field<T | null> {
  return view => {
    const pointer = pointerOf(view, index)
    return pointer && utils.getTargetPointerType(pointer) === PointerType.STRUCT
      ? read(structAt(pointer))
      : null
  }
}

/** A list of structs; none when it is not there. */
export function each<T>(index: number, read: Field<T>): Field<T[]> {
  return view => {
    const list = listOf(view, index, 7)
    return list ? Array.from({ length: list.count }, (_, i) => read(elementOf(list, i))) : []
  }
}
