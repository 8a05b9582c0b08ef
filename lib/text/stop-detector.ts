// stop-detector.ts: ends a stream of text at a stop text, of which no part is shown before it is complete.
import { argumentError, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'

/** Stop texts at most, and characters of one. */
const limits = { texts: 256, characters: 1000 }

/** What {@link StopDetector.push} lets through. */
export interface StoppedText {
  /** Text that can be shown; what may be the beginning of a stop text is held back. */
  readonly text: string
  /** The stop text that was found; nothing follows then. */
  readonly stop?: string
}

/**
 * Looks for stop texts in a text that comes in pieces.
 * @example
 * const detector = new StopDetector(['\nUser:'])
 * detector.push('Hello\nUs') // { text: 'Hello' }
 * detector.push('er: Hi') // { text: '', stop: '\nUser:' }
 */
export class StopDetector {
  readonly #stops: readonly string[]
  #held = ''
  #isStopped = false

  /**
   * @param stops - texts to stop at; the one that begins first counts, of several the longest
   * @throws SparkError ERR_ARGUMENT
   */
  constructor(stops: readonly string[]) {
    if (!Array.isArray(stops)) throw argumentError('stops', 'a list of texts', stops)
    if (stops.length > limits.texts)
      throw new SparkError('ERR_ARGUMENT', `stops has ${stops.length} texts; at most ${limits.texts}`)
    for (const [i, stop] of stops.entries()) {
      expectText(`stops[${i}]`, stop)
      if (stop.length > limits.characters)
        throw new SparkError(
          'ERR_ARGUMENT',
          `stops[${i}] has ${stop.length} characters; at most ${limits.characters}`,
        )
    }
    this.#stops = [...stops]
  }

  /** Whether a stop text was found. */
  get isStopped(): boolean {
    return this.#isStopped
  }

  /** Takes a piece of text in and gives out what can be shown. */
  push(piece: string): StoppedText {
    if (typeof piece !== 'string') throw argumentError('piece', 'a string', piece)
    if (this.#isStopped) return { text: '' }
    const text = this.#held + piece
    const found = this.#find(text)
    const heldFrom = this.#heldFrom(text)
    // A longer stop text may have begun before the one that is complete.
    if (found && found.index <= heldFrom) {
      this.#isStopped = true
      this.#held = ''
      return { text: text.slice(0, found.index), stop: found.stop }
    }
    this.#held = text.slice(heldFrom)
    return { text: text.slice(0, heldFrom) }
  }

  /** What is held back at the end of the text, a complete stop text in it included. */
  flush(): StoppedText {
    const text = this.#held
    this.#held = ''
    const found = this.#isStopped ? undefined : this.#find(text)
    if (!found) return { text }
    this.#isStopped = true
    return { text: text.slice(0, found.index), stop: found.stop }
  }

  #find(text: string): { index: number; stop: string } | undefined {
    return this.#stops
      .map(stop => ({ index: text.indexOf(stop), stop }))
      .filter(({ index }) => index >= 0)
      .sort((a, b) => a.index - b.index || b.stop.length - a.stop.length)[0]
  }

  /** Where the longest end of the text begins that is a beginning of a stop text, but not the whole. */
  #heldFrom(text: string): number {
    const longest = this.#stops.reduce((max, stop) => Math.max(max, stop.length - 1), 0)
    for (let i = Math.max(0, text.length - longest); i < text.length; i++) {
      const end = text.slice(i)
      if (this.#stops.some(stop => stop.length > end.length && stop.startsWith(end))) return i
    }
    return text.length
  }
}
