// added-tokens.ts: finds the tokens in a text that no model splits: those of chat markup, user-defined ones.
import type { AddedToken } from './tokenizer-json.js'
import { Trie } from './trie.js'

/** A stretch of text, or a token that was found. */
export type Section = string | AddedToken

const isWord = (character: string | undefined): boolean =>
  character !== undefined && /[\p{L}\p{N}_]/u.test(character)

/** Splits texts at tokens; of several that begin at the same index the longest is taken. */
export class AddedTokenSplitter {
  readonly #trie = new Trie<AddedToken>()
  readonly #isEmpty: boolean

  /** @param tokens - with the text that each is found by */
  constructor(tokens: readonly (readonly [string, AddedToken])[]) {
    for (const [text, token] of tokens) if (text !== '') this.#trie.set(text, token)
    this.#isEmpty = tokens.length === 0
  }

  /** The sections of a text in their order, none of them empty. */
  split(text: string): Section[] {
    if (this.#isEmpty) return text === '' ? [] : [text]
    const sections: Section[] = []
    let begin = 0
    for (let i = 0; i < text.length; ) {
      const match = this.#longest(text, i)
      if (!match) {
        i++
        continue
      }
      const before = text.slice(begin, i)
      const kept = match.token.lstrip ? before.trimEnd() : before
      if (kept !== '') sections.push(kept)
      sections.push(match.token)
      i = match.end
      while (match.token.rstrip && i < text.length && /\s/.test(text[i]!)) i++
      begin = i
    }
    if (begin < text.length) sections.push(text.slice(begin))
    return sections
  }

  /** The text with `mark` behind the first character of each control token that it spells. */
  marked(text: string, mark: string): string {
    let marked = ''
    let begin = 0
    for (let i = 0; i < text.length; i++) {
      if (!this.#longest(text, i)?.token.special) continue
      marked += text.slice(begin, i + 1) + mark
      begin = i + 1
    }
    return marked + text.slice(begin)
  }

  #longest(text: string, start: number): { token: AddedToken; end: number } | undefined {
    let longest: { token: AddedToken; end: number } | undefined
    this.#trie.prefixes(text, start, (token, end) => {
      if (token.single_word && (isWord(text[start - 1]) || isWord(text[end]))) return
      longest = { token, end }
    })
    return longest
  }
}
