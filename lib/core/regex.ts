// regex.ts: regular expressions in the syntax of Python's re, which match in time linear in the lengths of pattern and text.
// RegExp backtracks: a pattern and a name from a file of 300 bytes can keep it busy for years.
import { type ErrorCode, SparkError } from './errors.js'
import { Automaton } from './regex/automaton.js'
import { type CharacterTest, PatternError } from './regex/characters.js'
import { endOf, parsePattern } from './regex/parse.js'

/** Automata may be this much larger than their pattern: counted repetitions are written out. */
const [baseSize, sizePerCharacter] = [2000, 10]

/**
 * A regular expression. All of Python's syntax but back references, conditions, atomic groups, possessive repetitions
 * and the flags a, L and x.
 */
export class Regex {
  readonly #automaton: Automaton
  readonly #groups: number
  readonly #end: readonly CharacterTest[]

  /**
   * @param argument - what holds the pattern, for errors
   * @throws SparkError `code` naming argument and pattern
   */
  constructor(argument: string, pattern: string, code: ErrorCode = 'ERR_ARGUMENT') {
    try {
      const { part, groups } = parsePattern(pattern)
      this.#automaton = new Automaton(part, { left: baseSize + sizePerCharacter * pattern.length })
      this.#groups = groups
      this.#end = endOf(part)
    } catch (error) {
      if (!(error instanceof PatternError)) throw error
      const shown = pattern.length > 100 ? `${pattern.slice(0, 100)}…` : pattern
      const remedy = 'list the names instead'
      const message = `${argument}: Invalid regular expression '${shown}': ${error.message}; ${remedy}`
      throw new SparkError(code, message, { cause: error })
    }
  }

  /** Whether the whole text matches. */
  matches(text: string): boolean {
    const characters = charactersOf(text)
    return this.#endsWell(characters) && this.#automaton.matches(characters)
  }

  /** The text of the last group; undefined unless the whole text matches. */
  lastGroup(text: string): string | undefined {
    const characters = charactersOf(text)
    const found = this.#automaton.group(characters, this.#groups)
    return found && characters.slice(...found).join('')
  }

  #endsWell(characters: readonly string[]): boolean {
    const { length } = characters
    return this.#end.length <= length && this.#end.every((test, i) => test(characters[length - 1 - i]!))
  }
}

let last = { text: '', characters: [] as readonly string[] }

/** The code points of a text. The last one is kept: many patterns are tried on one name. */
function charactersOf(text: string): readonly string[] {
  if (last.text !== text) last = { text, characters: Array.from(text) }
  return last.characters
}
