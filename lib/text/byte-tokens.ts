// byte-tokens.ts: tokens that stand for one byte, `<0x0A>`, and bytes inside of strings before they are decoded.

/** Ids of the 256 byte tokens; undefined where one is missing. */
export function byteTokenIds(ids: ReadonlyMap<string, number>): readonly number[] | undefined {
  const found = Array.from({ length: 256 }, (_, byte) =>
    ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`),
  )
  return found.every(id => id !== undefined) ? (found as number[]) : undefined
}

/** The byte that a token stands for; undefined for other tokens. */
export function byteOfToken(token: string): number | undefined {
  return /^<0x[0-9a-f]{2}>$/i.test(token) ? Number.parseInt(token.slice(3, 5), 16) : undefined
}

/** A byte as a lone surrogate, U+DC00 to U+DCFF, which no text has: so it can stand in a string until its neighbours come. */
export const escapeByte = (byte: number): string => String.fromCharCode(0xdc00 + byte)

const escaped = /[\udc00-\udcff]+/gu
const encoder = new TextEncoder()
const toBytes = (run: string): Uint8Array => Uint8Array.from(run, unit => unit.charCodeAt(0) - 0xdc00)

/** The bytes of a string in UTF-8, escaped ones as they are. */
export function unescapeBytes(text: string): Uint8Array {
  const parts: Uint8Array[] = []
  let begin = 0
  for (const { 0: run, index } of text.matchAll(escaped)) {
    parts.push(encoder.encode(text.slice(begin, index)), toBytes(run))
    begin = index + run.length
  }
  if (begin === 0) return encoder.encode(text)
  parts.push(encoder.encode(text.slice(begin)))
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let offset = 0
  for (const part of parts) {
    bytes.set(part, offset)
    offset += part.length
  }
  return bytes
}

const lossy = new TextDecoder('utf-8', { ignoreBOM: true })
const strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true })

/** Text in which wrong sequences of bytes are U+FFFD, one for each. */
export const decodeLossy = (text: string): string => lossy.decode(unescapeBytes(text))

/** Text in which a run of escaped bytes that is no UTF-8 is U+FFFD for each of its bytes, as tokenizers' ByteFallback does it. */
export function decodeRuns(text: string): string {
  return text.replace(escaped, run => {
    try {
      return strict.decode(toBytes(run))
    } catch {
      return '\ufffd'.repeat(run.length)
    }
  })
}
