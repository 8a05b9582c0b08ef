/** Types of the part of seek-bzip that is used. */
declare module 'seek-bzip' {
  /** Bytes that are read one by one. */
  interface Input {
    readByte(): number
    read(buffer: Uint8Array, offset: number, length: number): number
    seek(position: number): void
  }

  const bunzip: {
    /** Decompresses the block at a position in bits and checks its CRC. */
    decodeBlock(input: Input, position: number, output: { writeByte(byte: number): void }): void
  }
  export default bunzip
}
