// characters.ts: character sets of regular expressions: literals, classes and escapes, by the rules of Python.

/** Whether a character, one code point, is in a set. */
export type CharacterTest = (character: string) => boolean

/** A syntax error of a pattern and its position. */
export class PatternError extends Error {}

const matches =
  (set: RegExp): CharacterTest =>
  character =>
    set.test(character)

const not =
  (test: CharacterTest): CharacterTest =>
  character =>
    !test(character)

const isDigit = matches(/^\p{Nd}$/u)
/** What Python's isspace() knows besides: the separators of ASCII, and NEL. It does not know the byte order mark. */
const separators = '\x1c\x1d\x1e\x1f\x85'
const isSpace: CharacterTest = character =>
  separators.includes(character) || (/^\s$/u.test(character) && character !== '\ufeff')
export const isWord = matches(/^[\p{L}\p{N}_]$/u)

const classes: Readonly<Record<string, CharacterTest>> = {
  d: isDigit,
  D: not(isDigit),
  s: isSpace,
  S: not(isSpace),
  w: isWord,
  W: not(isWord),
}

const controls: Readonly<Record<string, string>> = {
  a: '\x07',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  '\\': '\\',
}

const hexDigits: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }

/** The characters of a pattern, read one after the other. */
export class PatternReader {
  readonly #characters: readonly string[]
  /** Index of the next character. */
  at = 0

  constructor(pattern: string) {
    this.#characters = Array.from(pattern)
  }

  /** The next character; empty at the end. */
  get next(): string {
    return this.#characters[this.at] ?? ''
  }

  /** The next `count` characters, or as many as there are. */
  ahead(count: number): string {
    return this.#characters.slice(this.at, this.at + count).join('')
  }

  /** Takes the next character; empty at the end. */
  take(): string {
    const next = this.next
    if (next !== '') this.at++
    return next
  }

  /** Takes `text` if it is what comes next; whether it is. */
  takes(text: string): boolean {
    const found = this.ahead(text.length) === text
    if (found) this.at += text.length
    return found
  }

  /** Takes characters as long as they pass. */
  takeWhile(test: CharacterTest): string {
    let taken = ''
    while (this.next !== '' && test(this.next)) taken += this.take()
    return taken
  }

  /** An error at the next character. */
  error(reason: string): PatternError {
    return new PatternError(`${reason}, at position ${this.at}`)
  }
}

/** A set that holds a character if it holds one of its cases, where `ignoresCase` asks for that. */
function withCase(test: CharacterTest, ignoresCase: boolean): CharacterTest {
  if (!ignoresCase) return test
  return character => test(character) || test(character.toLowerCase()) || test(character.toUpperCase())
}

/** The set of one character. */
export function literal(wanted: string, ignoresCase: boolean): CharacterTest {
  if (!ignoresCase) return character => character === wanted
  const forms = [wanted, wanted.toLowerCase(), wanted.toUpperCase()]
  return withCase(character => forms.includes(character), true)
}

/**
 * What follows a backslash, and stands for a character or a class of them; reads on behind it.
 * @param inSet - between brackets, where \b is a backspace and digits are octal
 * @throws PatternError
 */
export function readEscape(reader: PatternReader, inSet: boolean): string | CharacterTest {
  const letter = reader.take()
  if (letter === '') throw reader.error('a backslash with nothing behind it')
  const known = classes[letter] ?? controls[letter] ?? (inSet && letter === 'b' ? '\b' : undefined)
  if (known !== undefined) return known
  const digits = hexDigits[letter]
  if (digits !== undefined) return hexadecimal(reader, digits)
  if (/[0-9]/.test(letter)) return octal(reader, letter, inSet)
  if (/[a-zA-Z]/.test(letter)) throw reader.error('an escape that means nothing')
  return letter
}

function hexadecimal(reader: PatternReader, count: number): string {
  const digits = reader.ahead(count)
  const code = /^[0-9a-fA-F]+$/.test(digits) && digits.length === count ? Number.parseInt(digits, 16) : -1
  if (code < 0 || code > 0x10ffff) throw reader.error('an escape without its hexadecimal digits')
  reader.at += count
  return String.fromCodePoint(code)
}

function octal(reader: PatternReader, first: string, inSet: boolean): string {
  const form = inSet ? /^[0-7]{1,3}/ : /^(?:0[0-7]{0,2}|[0-7]{3})/
  const digits = form.exec(first + reader.ahead(2))?.[0]
  if (digits === undefined && !inSet) {
    throw reader.error('a reference back to a group, which takes more than linear time')
  }
  const code = Number.parseInt(digits ?? '', 8)
  if (!(code <= 0o377)) throw reader.error('an escape that means nothing')
  reader.at += digits!.length - 1
  return String.fromCodePoint(code)
}

/**
 * A set in brackets, whose opening one has been taken.
 * @throws PatternError
 */
export function readSet(reader: PatternReader, ignoresCase: boolean): CharacterTest {
  const negated = reader.takes('^')
  const tests: CharacterTest[] = []
  for (let first = true; first || reader.next !== ']'; first = false) {
    const from = readMember(reader)
    if (reader.next !== '-' || reader.ahead(2) === '-]') {
      tests.push(typeof from === 'string' ? literal(from, ignoresCase) : from)
      continue
    }
    reader.take()
    const to = readMember(reader)
    if (typeof from !== 'string' || typeof to !== 'string') throw reader.error('a range of classes')
    const [low, high] = [from.codePointAt(0)!, to.codePointAt(0)!]
    if (low > high) throw reader.error(`a range ${from}-${to} that runs backwards`)
    tests.push(character => character.codePointAt(0)! >= low && character.codePointAt(0)! <= high)
  }
  reader.take()
  const isMember = withCase(character => tests.some(test => test(character)), ignoresCase)
  return negated ? not(isMember) : isMember
}

function readMember(reader: PatternReader): string | CharacterTest {
  const member = reader.take()
  if (member === '') throw reader.error('a set without its closing bracket')
  return member === '\\' ? readEscape(reader, true) : member
}
