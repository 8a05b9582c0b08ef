// gguf-vocabulary.ts: the vocabulary of a GGUF file as a tokenizer.json.
import { didYouMean } from '../core/did-you-mean.js'
import { preTokenizers } from './gguf-pre-tokenizers.js'
import { mergesByScore, scoredTokenizer, type TokenKind, type Vocabulary } from './scored-vocabulary.js'
import { type Component, type TokenizerJson, type TokenizerSource, tokenizerError } from './tokenizer-json.js'

/** Types of tokens in a GGUF file, by their number. */
const kinds: readonly TokenKind[] = ['normal', 'normal', 'unknown', 'control', 'user', 'unused', 'byte']

/** Reads keys of the metadata, with errors that name them. */
class Metadata {
  readonly #map: ReadonlyMap<string, unknown>

  constructor(map: ReadonlyMap<string, unknown>) {
    this.#map = map
  }

  #key(name: string): string {
    return `tokenizer.ggml.${name}`
  }

  text(name: string): string | undefined {
    const value = this.#map.get(this.#key(name))
    if (value === undefined || typeof value === 'string') return value
    throw tokenizerError('ERR_FORMAT', `${this.#key(name)} must be a text`)
  }

  flag(name: string): boolean | undefined {
    const value = this.#map.get(this.#key(name))
    return value === undefined ? undefined : Boolean(value)
  }

  id(name: string, count: number): number | undefined {
    const value = this.#map.get(this.#key(`${name}_token_id`))
    if (value === undefined) return undefined
    const id = Number(value)
    // Files say −1, or 2^32 − 1, for none.
    if (!Number.isInteger(id) || id < 0 || id >= count) return undefined
    return id
  }

  list<T>(name: string, length?: number): readonly T[] | undefined {
    const value = this.#map.get(this.#key(name))
    if (value === undefined) return undefined
    const list = Array.isArray(value) ? value : ArrayBuffer.isView(value) ? [...(value as never)] : undefined
    if (!list) throw tokenizerError('ERR_FORMAT', `${this.#key(name)} must be a list`)
    if (length !== undefined && list.length !== length)
      throw tokenizerError('ERR_FORMAT', `${this.#key(name)} has ${list.length} entries for ${length} tokens`)
    return list as T[]
  }

  chatTemplate(): string | undefined {
    const value = this.#map.get('tokenizer.chat_template')
    return typeof value === 'string' ? value : undefined
  }
}

function vocabularyOf(metadata: Metadata): Vocabulary {
  const tokens = metadata.list<string>('tokens')
  if (!tokens || tokens.length === 0)
    throw tokenizerError('ERR_FORMAT', 'the GGUF metadata has no tokenizer.ggml.tokens')
  const wrong = tokens.findIndex(token => typeof token !== 'string')
  if (wrong >= 0) throw tokenizerError('ERR_FORMAT', `token ${wrong} of tokenizer.ggml.tokens is no text`)
  const types = metadata.list<number>('token_type', tokens.length)
  const scores = metadata.list<number>('scores', tokens.length)
  return {
    tokens,
    kinds: tokens.map((_, id) => kinds[Number(types?.[id] ?? 1)] ?? 'normal'),
    scores: scores ?? tokens.map(() => 0),
  }
}

/** Added tokens: control tokens and those that users defined; the rest of the vocabulary by token. */
function parts({ tokens, kinds }: Vocabulary): {
  vocab: Record<string, number>
  added: TokenizerJson['added_tokens']
} {
  const isAdded = (id: number): boolean => ['control', 'user', 'unknown'].includes(kinds[id]!)
  return {
    vocab: Object.fromEntries(
      tokens.flatMap((token, id) => (isAdded(id) && kinds[id] !== 'unknown' ? [] : [[token, id]])),
    ),
    added: tokens.flatMap((content, id) =>
      isAdded(id) ? [{ id, content, special: kinds[id] !== 'user', normalized: false }] : [],
    ),
  }
}

const byteLevel: Component = { type: 'ByteLevel', add_prefix_space: false, use_regex: false }

function splits(patterns: readonly string[]): Component {
  const split = (Regex: string) => ({
    type: 'Split',
    pattern: { Regex },
    behavior: 'Isolated',
    invert: false,
  })
  return { type: 'Sequence', pretokenizers: [...patterns.map(split), byteLevel] }
}

/** Byte-level BPE, as of GPT-2. */
function byteLevelTokenizer(metadata: Metadata, vocabulary: Vocabulary): TokenizerJson {
  const name = metadata.text('pre') ?? 'default'
  const found = preTokenizers.get(name)
  if (!found) {
    const known = didYouMean(name, preTokenizers.keys())
    throw tokenizerError('ERR_UNSUPPORTED', `the GGUF pre-tokenizer '${name}' is not known${known}`)
  }
  const { vocab, added } = parts(vocabulary)
  const merges = metadata.list<string>('merges')
  if (!merges) throw tokenizerError('ERR_FORMAT', 'the GGUF metadata has no tokenizer.ggml.merges')
  return {
    model: { type: 'BPE', vocab, merges, ignore_merges: found.ignoreMerges ?? false },
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: splits(found.patterns),
    post_processor: null,
    decoder: { type: 'ByteLevel' },
  }
}

/** BPE over characters with spaces written as ▁, and merges in the file: Gemma 4. */
function spacedTokenizer(metadata: Metadata, vocabulary: Vocabulary): TokenizerJson {
  const { vocab, added } = parts(vocabulary)
  const merges = metadata.list<string>('merges') ?? []
  // A merge of white space has spaces of its own: the one that separates is where both halves are tokens.
  const pairs = merges.map((merge): [string, string] => {
    for (let i = merge.indexOf(' ', 1); i >= 0; i = merge.indexOf(' ', i + 1)) {
      const [left, right] = [merge.slice(0, i), merge.slice(i + 1)]
      if (Object.hasOwn(vocab, left) && Object.hasOwn(vocab, right)) return [left, right]
    }
    throw tokenizerError('ERR_FORMAT', `merge '${merge}' names what is not in the vocabulary`)
  })
  const plain = scoredTokenizer(vocabulary, { addSpacePrefix: false })
  const lines = { type: 'Split', pattern: { Regex: '[^\\n]+|[\\n]+' }, behavior: 'Isolated', invert: false }
  return {
    ...plain,
    model: { ...plain.model, vocab, merges: pairs },
    added_tokens: added,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [lines] },
  }
}

/** WordPiece; GGUF files mark the start of a word, tokenizer.json what continues one. */
function wordPieceTokenizer(vocabulary: Vocabulary): TokenizerJson {
  const { added } = parts(vocabulary)
  const isAdded = new Set(added.map(({ id }) => id))
  const written = (token: string, id: number): string =>
    isAdded.has(id) ? token : token.startsWith('▁') ? token.slice(1) : `##${token}`
  const unknown = added.find(
    ({ id }) => vocabulary.tokens[id] === '[UNK]' || vocabulary.kinds[id] === 'unknown',
  )
  return {
    model: {
      type: 'WordPiece',
      vocab: Object.fromEntries(vocabulary.tokens.map((token, id) => [written(token, id), id])),
      unk_token: unknown?.content ?? '[UNK]',
    },
    added_tokens: added,
    normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, lowercase: true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: null,
    decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
  }
}

/** The ids around a text, as a post-processor. */
function around(vocabulary: Vocabulary, before: number | undefined, behind: number | undefined): Component {
  const token = (id: number) => ({ SpecialToken: { id: vocabulary.tokens[id], type_id: 0 } })
  const list = (id: number | undefined) => (id === undefined ? [] : [id])
  const ids = [...list(before), ...list(behind)]
  return {
    type: 'TemplateProcessing',
    single: [...list(before).map(token), { Sequence: { id: 'A', type_id: 0 } }, ...list(behind).map(token)],
    special_tokens: Object.fromEntries(ids.map(id => [vocabulary.tokens[id], { ids: [id] }])),
  }
}

/** Models of GGUF files: their tokenizer, and whether BOS and EOS are added where the file does not say it. */
const models: Readonly<
  Record<
    string,
    {
      readonly make: (metadata: Metadata, vocabulary: Vocabulary) => TokenizerJson
      readonly bos: boolean
      readonly eos: boolean
    }
  >
> = {
  gpt2: { make: byteLevelTokenizer, bos: false, eos: false },
  gemma4: { make: spacedTokenizer, bos: true, eos: false },
  bert: { make: (_, vocabulary) => wordPieceTokenizer(vocabulary), bos: true, eos: true },
  llama: {
    make: (metadata, vocabulary) => {
      const addSpacePrefix = metadata.flag('add_space_prefix') ?? true
      return mergesByScore(scoredTokenizer(vocabulary, { addSpacePrefix }), vocabulary)
    },
    bos: true,
    eos: false,
  },
}

/**
 * What a tokenizer is made of, from the metadata of a GGUF file. Where BOS and EOS are added, and how text is split,
 * are those of llama.cpp's llama-vocab.cpp.
 * @throws SparkError ERR_FORMAT, ERR_UNSUPPORTED
 */
export function sourceOfGguf(map: ReadonlyMap<string, unknown>): TokenizerSource {
  const metadata = new Metadata(map)
  const name = metadata.text('model') ?? ''
  if (!Object.hasOwn(models, name)) {
    const known = Object.keys(models).join(', ')
    throw tokenizerError('ERR_UNSUPPORTED', `tokenizer.ggml.model '${name}' is not known; known: ${known}`)
  }
  const model = models[name]!
  const vocabulary = vocabularyOf(metadata)
  const id = (token: string): number | undefined => metadata.id(token, vocabulary.tokens.length)
  const pre = name === 'gpt2' ? preTokenizers.get(metadata.text('pre') ?? 'default') : undefined
  const bos = id('bos') ?? id('cls')
  const eos = id('eos') ?? id('seperator')
  const addsBos = metadata.flag('add_bos_token') ?? pre?.addBos ?? model.bos
  const addsEos = metadata.flag('add_eos_token') ?? model.eos
  const special = { bos, eos, eot: id('eot'), pad: id('padding'), unk: id('unknown') }
  const processor = around(vocabulary, addsBos ? bos : undefined, addsEos ? eos : undefined)
  return {
    json: { ...model.make(metadata, vocabulary), post_processor: processor },
    special: Object.fromEntries(Object.entries(special).filter(([, token]) => token !== undefined)),
    chatTemplate: metadata.chatTemplate(),
  }
}
