// trie.ts: strings by their characters, to find those that begin at an index of a text.

interface TrieNode<T> {
  readonly next: Map<number, TrieNode<T>>
  value?: T
}

const node = <T>(): TrieNode<T> => ({ next: new Map() })

/** Values by string; a search reads no more of the text than the longest string has. */
export class Trie<T> {
  readonly #root = node<T>()

  set(text: string, value: T): void {
    let at = this.#root
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i)
      const next = at.next.get(unit) ?? node<T>()
      at.next.set(unit, next)
      at = next
    }
    at.value = value
  }

  /** Calls `found` for each string that begins at `start`, the shortest first, with its value and the index behind it. */
  prefixes(text: string, start: number, found: (value: T, end: number) => void): void {
    let at: TrieNode<T> | undefined = this.#root
    for (let i = start; i < text.length; i++) {
      at = at.next.get(text.charCodeAt(i))
      if (!at) return
      if (at.value !== undefined) found(at.value, i + 1)
    }
  }
}
