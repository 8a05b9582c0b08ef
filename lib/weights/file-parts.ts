// file-parts.ts: where in files bytes are, and where pieces of them are.
import type { Range } from './range.js'

/** Neighbouring bytes of a file. */
export interface FilePart {
  /** Path of the file. */
  readonly file: string
  /** Of the first byte. */
  readonly begin: number
  /** How many there are. */
  readonly byteLength: number
}

/** Bytes between pieces from which on they are parts of their own: a row of a matrix is none. */
const minGap = 1 << 20

/** Where pieces are of the bytes that parts of files are one after the other. */
export function filePieces(parts: readonly FilePart[], pieces: Iterable<Range>): FilePart[] {
  const found: { file: string; begin: number; byteLength: number }[] = []
  for (const piece of pieces) {
    let at = 0
    for (const { file, begin, byteLength } of parts) {
      const first = begin + Math.max(piece.begin - at, 0)
      const end = begin + Math.min(piece.end - at, byteLength)
      at += byteLength
      if (first >= end) continue
      const last = found.at(-1)
      const gap = last?.file === file ? first - (last.begin + last.byteLength) : minGap
      if (last && gap >= 0 && gap < minGap) last.byteLength = end - last.begin
      else found.push({ file, begin: first, byteLength: end - first })
    }
  }
  return found
}
