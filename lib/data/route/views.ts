// views.ts: where structs and lists of a message are. Types of its own: those of the package that reads messages would be
// part of the public declarations.

/** Bytes of a message, little-endian. */
export interface Segment {
  readonly buffer: ArrayBufferLike
  readonly byteLength: number
  getUint8(byte: number): number
  getUint16(byte: number): number
  getUint32(byte: number): number
  getUint64(byte: number): bigint
  getInt8(byte: number): number
  getInt16(byte: number): number
  getInt32(byte: number): number
  getInt64(byte: number): bigint
  getFloat32(byte: number): number
  getFloat64(byte: number): number
}

/** A struct: where its data and its pointers are. */
export interface StructView {
  readonly segment: Segment
  /** Byte at which the data begins. */
  readonly data: number
  readonly dataBytes: number
  /** Byte at which the pointers begin. */
  readonly pointers: number
  readonly pointerCount: number
}

/** A list. */
export interface ListView {
  readonly segment: Segment
  /** Byte at which the first element begins. */
  readonly data: number
  readonly count: number
  /** Code of the size of an element, 7 for structs. */
  readonly size: number
  /** Of lists of structs: bytes of data and number of pointers of an element. */
  readonly dataBytes: number
  readonly pointerCount: number
}
