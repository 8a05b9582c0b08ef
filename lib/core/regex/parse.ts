// parse.ts: parser for the subset of Python's re that can be matched in linear time.
import { type CharacterTest, isWord, literal, PatternReader, readEscape, readSet } from './characters.js'

/** A part of a regular expression. */
export type Part =
  | { readonly type: 'character'; readonly test: CharacterTest }
  | { readonly type: 'sequence' | 'choice'; readonly parts: readonly Part[] }
  | {
      readonly type: 'repeat'
      readonly part: Part
      readonly min: number
      readonly max: number
      readonly lazy: boolean
    }
  | { readonly type: 'group'; readonly part: Part; readonly number: number }
  | {
      readonly type: 'look'
      readonly part: Part
      readonly negated: boolean
      /** Characters that a look-behind goes back. */
      readonly back: number
    }
  | { readonly type: 'assertion'; readonly holds: PositionTest }

/** Whether something is true of a assertion between the characters of a text. */
export type PositionTest = (text: readonly string[], at: number) => boolean

interface Flags {
  readonly ignoreCase: boolean
  readonly multiline: boolean
  readonly dotAll: boolean
}

/** Groups in groups: deeper ones would exhaust the stack of a recursive reader. */
const maxDepth = 200

const atStart: PositionTest = (_text, at) => at === 0
const atEnd: PositionTest = (text, at) => at === text.length
const atLineStart: PositionTest = (text, at) => at === 0 || text[at - 1] === '\n'
const atLineEnd: PositionTest = (text, at) => at === text.length || text[at] === '\n'
const atLastLineEnd: PositionTest = (text, at) =>
  at === text.length || (at === text.length - 1 && text[at] === '\n')
const atWordEdge: PositionTest = (text, at) => isWord(text[at - 1] ?? '') !== isWord(text[at] ?? '')
const insideOrOutsideWord: PositionTest = (text, at) => text.length > 0 && !atWordEdge(text, at)

const assertions: Readonly<Record<string, PositionTest>> = {
  A: atStart,
  Z: atEnd,
  b: atWordEdge,
  B: insideOrOutsideWord,
}

/**
 * Parses a regular expression.
 * @throws PatternError for what is none, or needs more than linear time
 */
export function parsePattern(pattern: string): { part: Part; groups: number } {
  return new Parser(pattern).parse()
}

class Parser {
  readonly #reader: PatternReader
  readonly #names = new Set<string>()
  #flags: Flags = { ignoreCase: false, multiline: false, dotAll: false }
  /** Where the flags at the start of the pattern end. */
  #flagsEnd = 0
  #groups = 0
  #depth = 0

  constructor(pattern: string) {
    this.#reader = new PatternReader(pattern)
  }

  parse(): { part: Part; groups: number } {
    const part = this.#choice()
    if (this.#reader.next !== '') throw this.#reader.error('a closing parenthesis without an opening one')
    return { part, groups: this.#groups }
  }

  #choice(): Part {
    const reader = this.#reader
    if (this.#depth > maxDepth) throw reader.error(`groups nested more than ${maxDepth} deep`)
    const parts = [this.#sequence()]
    while (reader.takes('|')) parts.push(this.#sequence())
    return parts.length === 1 ? parts[0]! : { type: 'choice', parts }
  }

  #sequence(): Part {
    const reader = this.#reader
    const parts: Part[] = []
    while (reader.next !== '' && reader.next !== '|' && reader.next !== ')') {
      const part = this.#atom()
      if (part) parts.push(this.#repeated(part))
    }
    return parts.length === 1 ? parts[0]! : { type: 'sequence', parts }
  }

  /** undefined for what stands for nothing, such as a comment. */
  #atom(): Part | undefined {
    const reader = this.#reader
    const { ignoreCase, multiline, dotAll } = this.#flags
    if (this.#counts()) throw reader.error('a repetition of nothing')
    const character = reader.take()
    switch (character) {
      case '(':
        return this.#group()
      case '[':
        return { type: 'character', test: readSet(reader, ignoreCase) }
      case '.':
        return { type: 'character', test: dotAll ? () => true : found => found !== '\n' }
      case '^':
        return { type: 'assertion', holds: multiline ? atLineStart : atStart }
      case '$':
        return { type: 'assertion', holds: multiline ? atLineEnd : atLastLineEnd }
    }
    const assertion = character === '\\' ? assertions[reader.next] : undefined
    if (assertion) {
      reader.take()
      return { type: 'assertion', holds: assertion }
    }
    const found = character === '\\' ? readEscape(reader, false) : character
    return { type: 'character', test: typeof found === 'string' ? literal(found, ignoreCase) : found }
  }

  #repeated(part: Part): Part {
    const reader = this.#reader
    const counts = this.#counts()
    if (!counts) return part
    if (reader.next === '+') throw reader.error('a possessive repetition, which takes more than linear time')
    const lazy = reader.takes('?')
    if (this.#counts()) throw reader.error('a repetition of a repetition')
    return { type: 'repeat', part, lazy, ...counts }
  }

  #counts(): { min: number; max: number } | undefined {
    const reader = this.#reader
    if (reader.takes('*')) return { min: 0, max: Number.POSITIVE_INFINITY }
    if (reader.takes('+')) return { min: 1, max: Number.POSITIVE_INFINITY }
    if (reader.takes('?')) return { min: 0, max: 1 }
    const start = reader.at
    if (!reader.takes('{') || reader.next === '}') return this.#backTo(start)
    const isDigit: CharacterTest = character => /^[0-9]$/.test(character)
    const low = reader.takeWhile(isDigit)
    const high = reader.takes(',') ? reader.takeWhile(isDigit) : low
    if (!reader.takes('}')) return this.#backTo(start)
    const counts = { min: Number(low), max: high === '' ? Number.POSITIVE_INFINITY : Number(high) }
    if (counts.min > counts.max) throw reader.error('a repetition whose limits are in the wrong order')
    return counts
  }

  #backTo(start: number): undefined {
    this.#reader.at = start
  }

  #group(): Part | undefined {
    const reader = this.#reader
    if (!reader.takes('?')) return this.#captured()
    if (reader.takes(':')) return this.#inner()
    if (reader.takes('#')) return this.#comment()
    if (reader.takes('P<')) return this.#named()
    for (const [sign, back, negated] of looks) {
      if (reader.takes(sign)) return this.#look(back, negated)
    }
    const costly = costlyGroups.find(([sign]) => reader.takes(sign))
    if (costly) throw reader.error(`${costly[1]}, which takes more than linear time`)
    return this.#flagged()
  }

  #captured(): Part {
    const number = ++this.#groups
    return { type: 'group', part: this.#inner(), number }
  }

  #named(): Part {
    const reader = this.#reader
    const name = reader.takeWhile(character => character !== '>')
    const isName = /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && reader.takes('>')
    if (!isName || this.#names.has(name)) throw reader.error(`a group that cannot have the name '${name}'`)
    this.#names.add(name)
    return this.#captured()
  }

  #comment(): undefined {
    this.#reader.takeWhile(character => character !== ')')
    this.#close()
  }

  #look(isBack: boolean, negated: boolean): Part {
    const part = this.#inner()
    const back = isBack ? widthOf(part) : 0
    if (back === undefined) throw this.#reader.error('a look-behind that has no fixed length')
    return { type: 'look', part, negated, back }
  }

  /** (?i) at the start of the pattern, (?i:...) and (?-i:...) anywhere. */
  #flagged(): Part | undefined {
    const reader = this.#reader
    const isStart = reader.at === this.#flagsEnd + '(?'.length
    const outer = this.#flags
    const isLetter: CharacterTest = character => /^[a-zA-Z]$/.test(character)
    const [on, off] = [reader.takeWhile(isLetter), reader.takes('-') ? reader.takeWhile(isLetter) : '']
    const unknown =
      [...on, ...off].find(flag => !'imsu'.includes(flag)) ?? (on + off === '' ? reader.next : undefined)
    if (unknown !== undefined) throw reader.error(`an unknown extension (?${unknown}`)
    const flag = (letter: string, before: boolean): boolean =>
      (before || on.includes(letter)) && !off.includes(letter)
    const flags = {
      ignoreCase: flag('i', outer.ignoreCase),
      multiline: flag('m', outer.multiline),
      dotAll: flag('s', outer.dotAll),
    }
    this.#flags = flags
    if (reader.takes(':')) {
      const part = this.#inner()
      this.#flags = outer
      return part
    }
    if (!isStart || off !== '') throw reader.error('flags that are not at the start of the pattern')
    this.#close()
    this.#flagsEnd = reader.at
    return undefined
  }

  /** Parses the content of a group up to and including its closing parenthesis. */
  #inner(): Part {
    this.#depth++
    const part = this.#choice()
    this.#depth--
    this.#close()
    return part
  }

  #close(): void {
    if (!this.#reader.takes(')')) throw this.#reader.error('a group without its closing parenthesis')
  }
}

const looks = [
  ['=', false, false],
  ['!', false, true],
  ['<=', true, false],
  ['<!', true, true],
] as const

const costlyGroups = [
  ['P=', 'a reference back to a group'],
  ['(', 'a condition on a group'],
  ['>', 'an atomic group'],
] as const

/** How many characters a part matches, where that is always the same number. */
function widthOf(part: Part): number | undefined {
  switch (part.type) {
    case 'character':
      return 1
    case 'assertion':
    case 'look':
      return 0
    case 'group':
      return widthOf(part.part)
    case 'repeat': {
      const width = widthOf(part.part)
      return part.min === part.max && width !== undefined ? width * part.min : undefined
    }
  }
  const widths = part.parts.map(widthOf)
  if (widths.some(width => width === undefined)) return undefined
  if (part.type === 'sequence') return widths.reduce<number>((sum, width) => sum + width!, 0)
  return widths.every(width => width === widths[0]) ? widths[0] : undefined
}

/** The characters that every match must end with, last one first: nearly all names fail here. */
export function endOf(part: Part): CharacterTest[] {
  return readBack(part).tests
}

/** The tests of the end of a part, and whether they are all that it consists of. */
function readBack(part: Part): { tests: CharacterTest[]; whole: boolean } {
  switch (part.type) {
    case 'character':
      return { tests: [part.test], whole: true }
    case 'assertion':
    case 'look':
      return { tests: [], whole: true }
    case 'group':
      return readBack(part.part)
    case 'sequence': {
      const tests: CharacterTest[] = []
      for (const inner of part.parts.toReversed()) {
        const end = readBack(inner)
        for (const test of end.tests) tests.push(test)
        if (!end.whole) return { tests, whole: false }
      }
      return { tests, whole: true }
    }
  }
  return { tests: [], whole: false }
}
