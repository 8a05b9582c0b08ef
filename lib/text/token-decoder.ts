// token-decoder.ts: text from tokens, by the decoder of a tokenizer.json, as the library tokenizers does it.
import { byteOfToken, decodeLossy, decodeRuns, escapeByte } from './byte-tokens.js'
import { type Component, partsOf, tokenizerError } from './tokenizer-json.js'

/** A step of a decoder: from strings, one a token at first, to strings. */
type Step = (tokens: readonly string[]) => readonly string[]

const encoder = new TextEncoder()

/** Bytes by the characters that GPT-2's vocabulary writes them with (bytes_to_unicode of its encoder.py). */
function byteLevelAlphabet(): Map<string, number> {
  const shown = (byte: number): boolean => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
  let others = 0
  return new Map(
    Array.from({ length: 256 }, (_, byte) => [
      String.fromCharCode(shown(byte) ? byte : 256 + others++),
      byte,
    ]),
  )
}

const alphabet = byteLevelAlphabet()
const bytesToText = (bytes: Iterable<number>): string =>
  Array.from(bytes, byte => (byte < 0x80 ? String.fromCharCode(byte) : escapeByte(byte))).join('')

function byteLevelToken(token: string): string {
  const bytes = Array.from(token, character => alphabet.get(character))
  return bytesToText(bytes.includes(undefined) ? encoder.encode(token) : (bytes as number[]))
}

function byteFallbackToken(token: string): string {
  const byte = byteOfToken(token)
  return byte === undefined ? token : escapeByte(byte)
}

/** Spaces that WordPiece puts before punctuation. */
const cleanups = [' .', ' ?', ' !', ' ,', " ' ", " n't", " 'm", ' do not', " 's", " 've", " 're"].map(
  text => [text, text === ' do not' ? " don't" : text.trim()] as const,
)

const cleanUp = (text: string): string =>
  cleanups.reduce((cleaned, [from, to]) => cleaned.replaceAll(from, to), text)

function wordPiece({ prefix, cleanup }: Component): Step {
  const join = (token: string, i: number): string => {
    if (i === 0) return token
    return token.startsWith(String(prefix)) ? token.slice(String(prefix).length) : ` ${token}`
  }
  return tokens => tokens.map((token, i) => (cleanup === false ? join(token, i) : cleanUp(join(token, i))))
}

function metaspace({ replacement = '▁', prepend_scheme: scheme, add_prefix_space: prefix }: Component): Step {
  const isPrepended = scheme === undefined ? prefix !== false : scheme !== 'never'
  return tokens =>
    tokens.map((token, i) => token.replaceAll(String(replacement), i === 0 && isPrepended ? '' : ' '))
}

function replace({ pattern, content }: Component): Step {
  const from = (pattern as { String?: string } | undefined)?.String
  if (from === undefined) throw tokenizerError('ERR_UNSUPPORTED', 'decoder Replace without a String')
  return tokens => tokens.map(token => token.replaceAll(from, () => String(content)))
}

function strip({ content, start = 0, stop = 0 }: Component): Step {
  return tokens =>
    tokens.map(token => {
      let [begin, end] = [0, token.length]
      while (begin < (start as number) && token[begin] === content) begin++
      while (token.length - end < (stop as number) && end > begin && token[end - 1] === content) end--
      return token.slice(begin, end)
    })
}

const steps: Readonly<Record<string, (component: Component) => Step>> = {
  ByteLevel: () => tokens => [tokens.map(byteLevelToken).join('')],
  ByteFallback: () => tokens => tokens.map(byteFallbackToken),
  Fuse: () => tokens => [tokens.join('')],
  WordPiece: wordPiece,
  Metaspace: metaspace,
  Replace: replace,
  Strip: strip,
  BPEDecoder:
    ({ suffix = '</w>' }) =>
    tokens =>
      tokens.map((token, i) => token.replaceAll(String(suffix), i === tokens.length - 1 ? '' : ' ')),
}

/** The types of a decoder and those of its parts. */
const typesOf = (decoder: Component): string[] =>
  decoder.type === 'Sequence' ? partsOf(decoder, 'decoders').flatMap(typesOf) : [decoder.type]

function stepOf(decoder: Component): Step {
  if (decoder.type === 'Sequence') {
    const parts = partsOf(decoder, 'decoders').map(stepOf)
    return tokens => parts.reduce((texts, part) => part(texts), tokens)
  }
  if (!Object.hasOwn(steps, decoder.type)) {
    const known = [...Object.keys(steps), 'Sequence'].join(', ')
    throw tokenizerError('ERR_UNSUPPORTED', `decoder ${decoder.type}; known: ${known}`)
  }
  return steps[decoder.type]!(decoder)
}

/** Turns tokens into text. */
export class TokenDecoder {
  readonly #step: Step
  readonly #isByteFallback: boolean

  /** @param decoder - of a tokenizer.json; null puts a space between tokens */
  constructor(decoder: Component | null) {
    this.#step = decoder === null ? tokens => [tokens.join(' ')] : stepOf(decoder)
    this.#isByteFallback = decoder !== null && typesOf(decoder).includes('ByteFallback')
  }

  /** Text in which bytes that may belong to a character are escaped ({@link escapeByte}): a prefix of tokens gives a prefix. */
  escaped(tokens: readonly string[]): string {
    return this.#step(tokens).join('')
  }

  /** The text of tokens; bytes that are no UTF-8 become U+FFFD. */
  decode(tokens: readonly string[]): string {
    const text = this.escaped(tokens)
    return this.#isByteFallback ? decodeRuns(text) : decodeLossy(text)
  }
}
