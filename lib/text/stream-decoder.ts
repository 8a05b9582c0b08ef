// stream-decoder.ts: text from tokens as they come, never half a character.
import { unescapeBytes } from './byte-tokens.js'
import type { TokenDecoder } from './token-decoder.js'

/** Tokens before the new one that decide whether it starts with a space. */
const contextTokens = 4

/** Turns ids into text one by one; made by {@link TextTokenizer.streamDecoder}. */
export class StreamDecoder {
  readonly #decoder: TokenDecoder
  readonly #tokenOf: (id: number) => string | undefined
  #context: string[] = []
  /** Holds back the bytes of a character whose end has not come. */
  readonly #text = new TextDecoder('utf-8', { ignoreBOM: true })

  /**
   * @param decoder - of the tokenizer
   * @param tokenOf - the token of an id; undefined for one that gives no text
   * @internal
   */
  constructor(decoder: TokenDecoder, tokenOf: (id: number) => string | undefined) {
    this.#decoder = decoder
    this.#tokenOf = tokenOf
  }

  /**
   * The text that a token adds: '' for part of a character, and for a token without text.
   * @throws SparkError ERR_ARGUMENT for anything but an integer >= 0
   */
  push(id: number): string {
    const token = this.#tokenOf(id)
    if (token === undefined) return ''
    const tokens = [...this.#context, token]
    const before = this.#decoder.escaped(this.#context)
    const added = this.#decoder.escaped(tokens).slice(before.length)
    this.#context = tokens.slice(-contextTokens)
    return this.#text.decode(unescapeBytes(added), { stream: true })
  }

  /** What is held back at the end of a text: U+FFFD for a character that was not completed; then a new text may begin. */
  flush(): string {
    this.#context = []
    return this.#text.decode()
  }
}
