// safe-pattern.ts: refuses regular expressions of tokenizer files that a backtracking matcher can hang on.
import { type Component, tokenizerError } from './tokenizer-json.js'

/** Characters of a pattern, and repetitions without an end in one of its alternatives. Tokenizers in use have at most 2. */
const limits = { length: 10_000, repetitions: 2 }

/** What is known of a group, or of the whole pattern, while it is read. */
interface Group {
  /** Repetitions without an end: in the alternative that is read, and in the one of those before that has the most. */
  open: number
  max: number
  hasAlternatives: boolean
}

const startGroup = (): Group => ({ open: 0, max: 0, hasAlternatives: false })

/** An atom or an operator: an escape, a character class with at most one inside, a repetition, a group's end or start. */
const token =
  /\\.|\[(?:\\.|\[(?:\\.|[^\]\\])*\]|[^\]\\])*\]|\((?:\?(?:<?[=!]|[a-z-]*:|>|<\w+>))?|\{\d*,?\d*\}|[\s\S]/gu

/** Whether a token repeats what is before it, and whether without an end. */
function repetition(text: string): { repeats: boolean; isOpen: boolean } {
  const [, min, comma, max] = text.match(/^\{(\d*)(,?)(\d*)\}$/) ?? []
  const isOpen = text === '*' || text === '+' || (comma === ',' && max === '')
  return { repeats: isOpen || Number(max || min || 0) > 1, isOpen }
}

/** Why a pattern is refused; undefined for a safe one. */
function danger(pattern: string): string | undefined {
  if (pattern.length > limits.length) return `has more than ${limits.length} characters`
  const groups = [startGroup()]
  /** The group that has just ended, which a repetition would repeat. */
  let ended: Group | undefined
  for (const [text] of pattern.matchAll(token)) {
    const group = groups.at(-1)!
    const { repeats, isOpen } = repetition(text)
    if (repeats && ended && (ended.max > 0 || ended.hasAlternatives))
      return 'repeats a group that has repetitions or alternatives of its own'
    ended = undefined
    if (isOpen) group.open++
    else if (text === '|') {
      group.hasAlternatives = true
      group.open = 0
    } else if (text.startsWith('(')) groups.push(startGroup())
    else if (text === ')' && groups.length > 1) {
      ended = groups.pop()!
      groups.at(-1)!.open += ended.max
    }
    const current = groups.at(-1)!
    current.max = Math.max(current.max, current.open)
    if (current.open > limits.repetitions) return `has more than ${limits.repetitions} repetitions in a row`
  }
  return undefined
}

/**
 * Checks the patterns of a component and of its parts: matching takes at most n³ steps for n characters then.
 * @throws SparkError ERR_UNSUPPORTED that shows the pattern
 */
export function expectSafePatterns(component: Component | null): void {
  for (const [name, value] of Object.entries(component ?? {})) {
    if (name === 'Regex' && typeof value === 'string') {
      const reason = danger(value)
      const shown = value.length > 100 ? `${value.slice(0, 100)}…` : value
      if (reason) throw tokenizerError('ERR_UNSUPPORTED', `the pattern '${shown}' may hang: it ${reason}`)
    } else if (typeof value === 'object' && value !== null) expectSafePatterns(value as Component)
  }
}
