// record.ts: what a link writes: records of a header of 16 bytes and a body. A frame is one or more records.
//
//   kind u8 | type u8 | zero u16 | id u32 | total u32 | length u32, big-endian, then `length` bytes
//
// A frame of up to 1 MiB is one `data` record; what is longer follows in `more` records, between which a ping may go.
import { SparkError } from '../../core/errors.js'

/** Kinds of records. */
export const recordKinds = {
  /** The first piece of a frame; `total` is the length of its payload. */
  data: 0,
  /** A further piece of the frame. */
  more: 1,
  ping: 2,
  pong: 3,
  /** `id` frames and `total` bytes of payload were consumed. */
  ack: 4,
  /** No frame follows. */
  end: 5,
  /** The link ends; the body says why. */
  close: 6,
  /** What follows comes on the next connection, which has new keys. */
  switch: 7,
  hello: 8,
  /** Bytes that measure the link and are dropped; `total` is the length of the probe. */
  probe: 9,
  /** The answer to the last byte of a probe. */
  probed: 10,
  /** A question to the other node, in JSON. */
  call: 11,
  reply: 12,
} as const

/** A kind of record. */
export type RecordKind = (typeof recordKinds)[keyof typeof recordKinds]

/** Bytes of a header. */
export const headerBytes = 16

/** The longest body of `data`, `more` and `probe`. */
export const pieceBytes = 1 << 20

/** The longest body of every other kind. */
export const controlBytes = 1 << 16

/** A header's fields. */
export interface RecordHeader {
  readonly kind: RecordKind
  readonly type: number
  readonly id: number
  readonly total: number
  readonly length: number
}

/** A header as bytes. */
export function encodeHeader(
  kind: RecordKind,
  type: number,
  id: number,
  total: number,
  length: number,
): Buffer {
  const header = Buffer.allocUnsafe(headerBytes)
  header[0] = kind
  header[1] = type
  header.writeUInt16BE(0, 2)
  header.writeUInt32BE(id, 4)
  header.writeUInt32BE(total, 8)
  header.writeUInt32BE(length, 12)
  return header
}

/** A record without pieces. */
export function encodeControl(
  kind: RecordKind,
  id = 0,
  total = 0,
  body: Uint8Array = Buffer.alloc(0),
): Buffer {
  return Buffer.concat([encodeHeader(kind, 0, id, total, body.length), body])
}

/** Reads a header and checks the lengths that every kind has. */
export function decodeHeader(bytes: Buffer): RecordHeader {
  const kind = bytes[0]
  const length = bytes.readUInt32BE(12)
  if (kind > recordKinds.reply || bytes.readUInt16BE(2) !== 0)
    throw new SparkError(
      'ERR_FORMAT',
      `a record begins with ${bytes.toString('hex', 0, 4)}, which is no kind`,
    )
  const pieces = kind <= recordKinds.more || kind === recordKinds.probe
  const limit = pieces ? pieceBytes : controlBytes
  if (length > limit)
    throw new SparkError('ERR_FORMAT', `a record of kind ${kind} has ${length} bytes; at most ${limit}`)
  return {
    kind: kind as RecordKind,
    type: bytes[1],
    id: bytes.readUInt32BE(4),
    total: bytes.readUInt32BE(8),
    length,
  }
}

/** One message of a link. */
export interface Frame {
  /** 0 to 255, of the sender's choice. */
  readonly type: number
  /** 0 to 2³² − 1, of the sender's choice. */
  readonly id: number
  /** What it says. */
  readonly payload: Buffer
}

/** Takes what a {@link RecordReader} finds. */
export interface RecordSink {
  /** Whether a frame of `total` bytes may begin; throws where not. Nothing was allocated for it yet. */
  begins(total: number): void
  frame(frame: Frame): void
  control(header: RecordHeader, body: Buffer): void
  /** Bytes of a probe that arrived; `complete` with its last one. */
  probe(header: RecordHeader, bytes: number, complete: boolean): void
}

/** Finds records in a stream of bytes. Holds at most one frame, whose length was checked before it was allocated. */
export class RecordReader {
  readonly #sink: RecordSink
  readonly #headerParts = Buffer.alloc(headerBytes)
  #headerLength = 0
  #header: RecordHeader | undefined
  #left = 0
  #control: Buffer | undefined
  #frame: { type: number; id: number; payload: Buffer; filled: number } | undefined
  #stopped = false

  constructor(sink: RecordSink) {
    this.#sink = sink
  }

  /** Bytes of a record or frame that began and did not end yet; undefined between frames. */
  get unfinished(): number | undefined {
    if (this.#frame) return this.#frame.payload.length
    return this.#header || this.#headerLength > 0 ? (this.#header?.length ?? headerBytes) : undefined
  }

  /** Drops what comes from now on. */
  stop(): void {
    this.#stopped = true
    this.#frame = undefined
    this.#header = undefined
    this.#headerLength = 0
  }

  /**
   * Reads a chunk of any length.
   * @throws SparkError ERR_FORMAT for what no peer of ours sends; the reader is of no use after that
   */
  push(chunk: Buffer): void {
    let offset = 0
    while (offset < chunk.length && !this.#stopped) {
      offset = this.#header ? this.#body(chunk, offset) : this.#head(chunk, offset)
    }
  }

  #head(chunk: Buffer, start: number): number {
    const taken = Math.min(headerBytes - this.#headerLength, chunk.length - start)
    chunk.copy(this.#headerParts, this.#headerLength, start, start + taken)
    this.#headerLength += taken
    if (this.#headerLength === headerBytes) {
      this.#headerLength = 0
      this.#begin(decodeHeader(this.#headerParts))
    }
    return start + taken
  }

  #begin(header: RecordHeader): void {
    const { kind, type, id, total, length } = header
    this.#header = header
    this.#left = length
    if (kind === recordKinds.data) {
      if (this.#frame) throw new SparkError('ERR_FORMAT', 'a frame begins inside another one')
      if (length > total || (length < total && length === 0)) {
        throw new SparkError('ERR_FORMAT', `a frame of ${total} bytes begins with ${length}`)
      }
      this.#sink.begins(total)
      this.#frame = { type, id, payload: Buffer.allocUnsafe(total), filled: 0 }
    } else if (kind === recordKinds.more) {
      const frame = this.#frame
      const fits = frame && length > 0 && frame.payload.length === total && frame.filled + length <= total
      if (!fits || frame.id !== id || frame.type !== type)
        throw new SparkError('ERR_FORMAT', `a piece of ${length} bytes belongs to no frame`)
    } else if (kind !== recordKinds.probe) {
      this.#control = Buffer.allocUnsafe(length)
    }
    if (length === 0) this.#complete(header)
  }

  #body(chunk: Buffer, start: number): number {
    const header = this.#header!
    const end = Math.min(chunk.length, start + this.#left)
    const count = end - start
    if (header.kind <= recordKinds.more) {
      const frame = this.#frame!
      chunk.copy(frame.payload, frame.filled, start, end)
      frame.filled += count
    } else if (header.kind === recordKinds.probe) this.#sink.probe(header, count, false)
    else chunk.copy(this.#control!, header.length - this.#left, start, end)
    this.#left -= count
    if (this.#left === 0) this.#complete(header)
    return end
  }

  #complete(header: RecordHeader): void {
    this.#header = undefined
    if (header.kind <= recordKinds.more) {
      const { type, id, payload, filled } = this.#frame!
      if (filled < payload.length) return
      this.#frame = undefined
      this.#sink.frame({ type, id, payload })
    } else if (header.kind === recordKinds.probe) this.#sink.probe(header, 0, true)
    else {
      const body = this.#control!
      this.#control = undefined
      this.#sink.control(header, body)
    }
  }
}
