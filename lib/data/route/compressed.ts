// compressed.ts: what decompressors of logs share: pieces of output, gaps, bytes of input.

/** Output that is lost: what follows does not continue what was before. */
export class Gap {
  /** Why. */
  readonly reason: string
  /** Whether the input just ends, as that of a recording that was cut off. */
  readonly isTruncated: boolean

  constructor(reason: string, isTruncated = false) {
    this.reason = reason
    this.isTruncated = isTruncated
  }
}

/** Decompressed bytes, and gaps between them. */
export type Output = AsyncGenerator<Uint8Array | Gap, void, undefined>

/** Bytes of a stream that have arrived and are not used yet. */
export class Inflow {
  /** Position of the first byte of {@link bytes} in the stream. */
  offset = 0
  /** Whether everything has arrived. */
  ended = false
  readonly #source: AsyncIterator<Uint8Array>
  #buffer = Buffer.alloc(1 << 16)
  #start = 0
  #end = 0

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  /** What has arrived; valid until more arrives. */
  get bytes(): Buffer {
    return this.#buffer.subarray(this.#start, this.#end)
  }

  /** Number of bytes that have arrived. */
  get length(): number {
    return this.#end - this.#start
  }

  /** Waits until `count` bytes or all there will be have arrived. @returns whether there are as many */
  async has(count: number): Promise<boolean> {
    while (this.length < count && !this.ended) {
      const { done = false, value } = await this.#source.next()
      if (done) this.ended = true
      else this.append(value)
    }
    return this.length >= count
  }

  /** Adds bytes. */
  append(piece: Uint8Array): void {
    if (this.#end + piece.length > this.#buffer.length) this.#reserve(piece.length)
    this.#buffer.set(piece, this.#end)
    this.#end += piece.length
  }

  /** Drops the first bytes. */
  drop(count: number): void {
    this.#start += count
    this.offset += count
  }

  /** Ends the source early. */
  async close(): Promise<void> {
    await this.#source.return?.()
  }

  #reserve(count: number): void {
    const needed = this.length + count
    const target = needed > this.#buffer.length ? Buffer.alloc(2 * needed) : this.#buffer
    this.#buffer.copy(target, 0, this.#start, this.#end)
    this.#end -= this.#start
    this.#start = 0
    this.#buffer = target
  }
}
