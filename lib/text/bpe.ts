// bpe.ts: byte-pair encoding (Sennrich et al. 2016): the pair of the lowest rank is merged first, of equal ones the left one.
// Ids instead of strings, and a heap of pairs: n log n also for a text without a break, such as a megabyte of spaces.
import { byteTokenIds } from './byte-tokens.js'
import { NumberHeap } from './number-heap.js'
import { type TokenizerModel, tokenizerError } from './tokenizer-json.js'

/** Pieces up to this length are remembered, and how many of them. */
const cached = { length: 64, pieces: 10_000 }
/** Ranks and positions share a number of the heap. */
const positions = 2 ** 31

/** Turns a piece of text into ids by merging neighbours. */
export class Bpe {
  readonly #ids: ReadonlyMap<string, number>
  /** Index of a merge by left id · size + right id. */
  readonly #merges = new Map<number, number>()
  readonly #merged: Int32Array
  readonly #ranks: ArrayLike<number>
  readonly #size: number
  /** Ids of the 256 bytes, where characters without a token fall back to them. */
  readonly #bytes: readonly number[] | undefined
  readonly #unknown: number | undefined
  readonly #fuseUnknown: boolean
  readonly #ignoreMerges: boolean
  readonly #cache = new Map<string, readonly number[]>()
  readonly #encoder = new TextEncoder()

  /**
   * @param model - of a tokenizer.json
   * @param ids - its vocabulary
   */
  constructor(model: TokenizerModel, ids: ReadonlyMap<string, number>) {
    for (const name of ['continuing_subword_prefix', 'end_of_word_suffix']) {
      if (model[name]) throw tokenizerError('ERR_UNSUPPORTED', `${name} '${String(model[name])}' of BPE`)
    }
    this.#ids = ids
    this.#size = [...ids.values()].reduce((max, id) => Math.max(max, id), 0) + 1
    const merges = model.merges ?? []
    this.#merged = new Int32Array(merges.length)
    this.#ranks = model.ranks ?? Int32Array.from(merges, (_, i) => i)
    for (const [i, merge] of merges.entries()) this.#addMerge(merge, i)
    this.#bytes = model.byte_fallback === true ? byteTokenIds(ids) : undefined
    this.#unknown = typeof model.unk_token === 'string' ? ids.get(model.unk_token) : undefined
    this.#fuseUnknown = model.fuse_unk === true
    this.#ignoreMerges = model.ignore_merges === true
  }

  #addMerge(merge: unknown, index: number): void {
    const pair: unknown = typeof merge === 'string' ? merge.split(' ') : merge
    const [left, right] = Array.isArray(pair) ? pair : []
    const isPair = typeof left === 'string' && typeof right === 'string'
    const [a, b, both] = isPair ? [left, right, left + right].map(token => this.#ids.get(token)) : []
    if (a === undefined || b === undefined || both === undefined)
      throw tokenizerError(
        'ERR_FORMAT',
        `merge ${index}, ${JSON.stringify(merge)}, names what is not in the vocabulary`,
      )
    const key = a * this.#size + b
    if (!this.#merges.has(key)) this.#merges.set(key, index)
    this.#merged[index] = both
  }

  /** Ids of a piece of text. */
  encode(piece: string): readonly number[] {
    const whole = this.#ignoreMerges ? this.#ids.get(piece) : undefined
    if (whole !== undefined) return [whole]
    if (piece.length > cached.length) return this.#merge(this.#symbols(piece))
    const known = this.#cache.get(piece)
    if (known) return known
    const ids = this.#merge(this.#symbols(piece))
    if (this.#cache.size >= cached.pieces) this.#cache.clear()
    this.#cache.set(piece, ids)
    return ids
  }

  /** Ids of the characters; those without a token as bytes, or as the unknown token. */
  #symbols(piece: string): number[] {
    const symbols: number[] = []
    let afterUnknown = false
    for (const character of piece) {
      const id = this.#ids.get(character)
      const isUnknown = id === undefined && !this.#bytes
      if (id !== undefined) symbols.push(id)
      else if (this.#bytes)
        for (const byte of this.#encoder.encode(character)) symbols.push(this.#bytes[byte]!)
      else if (this.#unknown !== undefined && !(afterUnknown && this.#fuseUnknown))
        symbols.push(this.#unknown)
      afterUnknown = isUnknown
    }
    return symbols
  }

  /** Merges in place: `next` and `previous` link the symbols that are left, −1 marks one that was merged. */
  #merge(symbols: number[]): readonly number[] {
    const count = symbols.length
    if (count < 2) return symbols
    const next = Int32Array.from(symbols, (_, i) => (i + 1 < count ? i + 1 : -1))
    const previous = Int32Array.from(symbols, (_, i) => i - 1)
    const heap = new NumberHeap()
    const mergeAt = (i: number): number | undefined =>
      next[i]! < 0 ? undefined : this.#merges.get(symbols[i]! * this.#size + symbols[next[i]!]!)
    const offer = (i: number): void => {
      const merge = mergeAt(i)
      if (merge !== undefined) heap.push(this.#ranks[merge]! * positions + i)
    }
    for (let i = 0; i < count - 1; i++) offer(i)
    for (let top = heap.pop(); top !== undefined; top = heap.pop()) {
      const [i, rank] = [top % positions, Math.floor(top / positions)]
      const merge = symbols[i]! < 0 ? undefined : mergeAt(i)
      if (merge === undefined || this.#ranks[merge] !== rank) continue
      const right = next[i]!
      symbols[i] = this.#merged[merge]!
      symbols[right] = -1
      next[i] = next[right]!
      if (next[i]! >= 0) previous[next[i]!] = i
      if (previous[i]! >= 0) offer(previous[i]!)
      offer(i)
    }
    return symbols.filter(id => id >= 0)
  }
}
