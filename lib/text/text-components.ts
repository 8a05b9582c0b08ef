// text-components.ts: normalizers and pre-tokenizers of a tokenizer.json, those of @huggingface/tokenizers, with what
// differs from the library tokenizers replaced.
import * as library from '@huggingface/tokenizers'
import { expectSafePatterns } from './safe-pattern.js'
import { type Component, partsOf, tokenizerError } from './tokenizer-json.js'

/** What is used of the package, whose declarations do not resolve in ES modules. */
const { SequenceNormalizer, SequencePreTokenizer } = library as unknown as {
  readonly SequenceNormalizer: new (config: object) => { normalize(text: string): string }
  readonly SequencePreTokenizer: new (
    config: object,
  ) => { pre_tokenize(text: string, options: { readonly section_index: number }): readonly string[] }
}

/** Chinese characters, which BERT separates: the blocks of BertNormalizer's is_chinese_char. */
const chinese =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu

/** A component, or an error that names it: the package throws its own ones. */
function made<T>(what: string, component: Component, make: () => T): T {
  try {
    return make()
  } catch (cause) {
    const { message } = cause as Error
    throw tokenizerError('ERR_UNSUPPORTED', `${what} ${component.type} can not be used: ${message}`)
  }
}

const replaceTypes = (component: Component, list: string, one: (part: Component) => Component): Component => {
  const parts = component[list]
  if (!Array.isArray(parts)) return one(component)
  return { ...component, [list]: parts.map(part => replaceTypes(part, list, one)) }
}

const contains = (component: Component, list: string, test: (part: Component) => boolean): boolean => {
  const parts = component[list]
  return Array.isArray(parts) ? parts.some(part => contains(part, list, test)) : test(component)
}

/** What a normalizer makes of a text. */
export function normalizerOf(component: Component | null): (text: string) => string {
  if (component === null) return text => text
  expectSafePatterns(component)
  // The package looks at halves of characters beyond U+FFFF.
  const separates = (part: Component): boolean =>
    part.type === 'BertNormalizer' && part.handle_chinese_chars !== false
  const isBert = contains(component, 'normalizers', separates)
  const plain = replaceTypes(component, 'normalizers', part =>
    separates(part) ? { ...part, handle_chinese_chars: false } : part,
  )
  const normalizer = made(
    'normalizer',
    component,
    () => new SequenceNormalizer({ type: 'Sequence', normalizers: [plain] }),
  )
  return text => normalizer.normalize(isBert ? text.replace(chinese, ' $& ') : text)
}

/** Splits the pieces of a section of a text further; sections count from 0. */
type Splitter = (pieces: readonly string[], section: number) => readonly string[]

/** Spaces as ▁, one at the start; every ▁ begins a piece (tokenizers' Metaspace, which the package does not split). */
function metaspace(component: Component): Splitter {
  const { replacement = '▁', split = true, add_prefix_space: hasPrefix } = component
  const scheme = component.prepend_scheme ?? (hasPrefix === false ? 'never' : 'always')
  const mark = String(replacement)
  const write = (piece: string, isFirst: boolean): string => {
    const text = piece.replaceAll(' ', mark)
    const isPrepended = scheme === 'always' || (scheme === 'first' && isFirst)
    return isPrepended && !text.startsWith(mark) ? mark + text : text
  }
  return (pieces, section) => {
    const texts = pieces.map((piece, i) => write(piece, section === 0 && i === 0))
    return split === false ? texts : texts.flatMap(text => splitBefore(text, mark))
  }
}

/** The parts of a text that begin with `mark`, and what is before the first. */
function splitBefore(text: string, mark: string): readonly string[] {
  const [head = '', ...rest] = text.split(mark)
  const parts = rest.map(part => mark + part)
  return head === '' ? parts : [head, ...parts]
}

/** Digits of the package are those of ASCII. */
function withNumbers(part: Component): Component {
  if (part.type !== 'Digits') return part
  const pattern = { Regex: part.individual_digits === true ? '\\p{N}' : '\\p{N}+' }
  return { type: 'Split', pattern, behavior: 'Isolated', invert: false }
}

/** The package splits as if the behaviour were Isolated, which is the same where the text has no match. */
function expectIsolated(part: Component, hasSpaces: boolean): void {
  const merges = part.type === 'Split' && /^(Merged|Contiguous)/.test(String(part.behavior))
  const isSpace = (part.pattern as { String?: string } | undefined)?.String === ' '
  if (merges && (hasSpaces || !isSpace))
    throw tokenizerError('ERR_UNSUPPORTED', `a pre-tokenizer Split that is ${String(part.behavior)}`)
}

function splitterOf(component: Component, hasSpaces: boolean): Splitter {
  if (component.type === 'Metaspace') return metaspace(component)
  if (component.type === 'Sequence') {
    const parts = partsOf(component, 'pretokenizers').map(part => splitterOf(part, hasSpaces))
    return (pieces, section) => parts.reduce((split, part) => part(split, section), pieces)
  }
  expectIsolated(component, hasSpaces)
  const config = { type: 'Sequence', pretokenizers: [withNumbers(component)] }
  const preTokenizer = made('pre-tokenizer', component, () => new SequencePreTokenizer(config))
  return (pieces, section) =>
    pieces.flatMap(piece => preTokenizer.pre_tokenize(piece, { section_index: section }))
}

/** The pieces that a pre-tokenizer makes of a section of a text. */
export function preTokenizerOf(
  component: Component | null,
  normalize: (text: string) => string,
): (text: string, section: number) => readonly string[] {
  if (component === null) return text => [text]
  expectSafePatterns(component)
  const splitter = splitterOf(component, normalize('a b').includes(' '))
  return (text, section) => splitter([text], section)
}
