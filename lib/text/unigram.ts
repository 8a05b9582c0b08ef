// unigram.ts: the unigram language model (Kudo 2018): the split of a text whose tokens have the highest sum of scores.
import { byteTokenIds } from './byte-tokens.js'
import { type TokenizerModel, tokenizerError } from './tokenizer-json.js'
import { Trie } from './trie.js'

/** How much worse than the worst token a character without one is. */
const unknownPenalty = 10

const characterLength = (text: string, index: number): number => (text.codePointAt(index)! > 0xffff ? 2 : 1)

/** Turns a piece of text into ids by Viterbi's algorithm. */
export class Unigram {
  readonly #trie = new Trie<number>()
  readonly #scores: readonly number[]
  readonly #unknown: number
  readonly #unknownScore: number
  readonly #bytes: readonly number[] | undefined
  readonly #encoder = new TextEncoder()

  /**
   * @param model - of a tokenizer.json
   * @param special - ids of control tokens, which no text spells
   */
  constructor(model: TokenizerModel, special: ReadonlySet<number>) {
    const vocab = model.vocab as readonly (readonly [string, number])[]
    const unknown = model.unk_id
    if (!Number.isInteger(unknown) || !vocab[unknown as number])
      throw tokenizerError('ERR_FORMAT', `unk_id ${String(unknown)} of Unigram is not in its vocabulary`)
    this.#unknown = unknown as number
    this.#scores = vocab.map(([, score]) => score)
    this.#unknownScore = this.#scores.reduce((a, b) => Math.min(a, b)) - unknownPenalty
    const ids = new Map(vocab.map(([token], id) => [token, id]))
    for (const [token, id] of ids) if (token !== '' && !special.has(id)) this.#trie.set(token, id)
    this.#bytes = model.byte_fallback === true ? byteTokenIds(ids) : undefined
  }

  /** Ids of a piece of text; neighbouring characters without a token are one unknown token, or bytes. */
  encode(piece: string): readonly number[] {
    const { starts, ids } = this.#bestPaths(piece)
    const found: number[] = []
    for (let end = piece.length; end > 0; end = starts[end]!) {
      const id = ids[end]!
      if (id !== this.#unknown) found.push(id)
      else if (this.#bytes)
        for (const byte of this.#encoder.encode(piece.slice(starts[end]!, end)).reverse())
          found.push(this.#bytes[byte]!)
      else if (found.at(-1) !== this.#unknown) found.push(id)
    }
    return found.reverse()
  }

  /** For each index, where the last token of the best split up to it starts, and its id. */
  #bestPaths(piece: string): { starts: Int32Array; ids: Int32Array } {
    const scores = new Float64Array(piece.length + 1).fill(Number.NEGATIVE_INFINITY)
    const starts = new Int32Array(piece.length + 1)
    const ids = new Int32Array(piece.length + 1)
    scores[0] = 0
    for (let start = 0; start < piece.length; start += characterLength(piece, start)) {
      const behind = start + characterLength(piece, start)
      let single = false
      const offer = (id: number, end: number, score: number): void => {
        if (scores[start]! + score <= scores[end]!) return
        scores[end] = scores[start]! + score
        starts[end] = start
        ids[end] = id
      }
      this.#trie.prefixes(piece, start, (id, end) => {
        offer(id, end, this.#scores[id]!)
        single ||= end === behind
      })
      if (!single) offer(this.#unknown, behind, this.#unknownScore)
    }
    return { starts, ids }
  }
}
