// word-piece.ts: WordPiece (Schuster and Nakajima 2012) as BERT uses it: the longest token first, from left to right.
import { type TokenizerModel, tokenizerError } from './tokenizer-json.js'

/** Turns a word into ids; one that no tokens make up is the unknown token. */
export class WordPiece {
  readonly #ids: ReadonlyMap<string, number>
  readonly #unknown: number
  readonly #prefix: string
  readonly #maxLength: number

  /**
   * @param model - of a tokenizer.json
   * @param ids - its vocabulary
   */
  constructor(model: TokenizerModel, ids: ReadonlyMap<string, number>) {
    const { unk_token: unknown = '[UNK]', continuing_subword_prefix: prefix = '##' } = model
    const id = ids.get(String(unknown))
    if (id === undefined)
      throw tokenizerError('ERR_FORMAT', `unk_token '${String(unknown)}' is not in the vocabulary`)
    this.#ids = ids
    this.#unknown = id
    this.#prefix = String(prefix)
    this.#maxLength = Number(model.max_input_chars_per_word ?? 100)
  }

  /** Ids of a word. */
  encode(word: string): readonly number[] {
    const characters = Array.from(word)
    if (characters.length > this.#maxLength) return [this.#unknown]
    const found: number[] = []
    for (let start = 0; start < characters.length; ) {
      let [end, id] = [characters.length, undefined as number | undefined]
      for (; end > start && id === undefined; end--)
        id = this.#ids.get((start > 0 ? this.#prefix : '') + characters.slice(start, end).join(''))
      if (id === undefined) return [this.#unknown]
      found.push(id)
      start = end + 1
    }
    return found
  }
}
