// scored-vocabulary.ts: vocabularies of SentencePiece, tokens with scores, as a tokenizer.json.
import type { TokenizerJson } from './tokenizer-json.js'

/** What a token is for. */
export type TokenKind = 'normal' | 'unknown' | 'control' | 'user' | 'unused' | 'byte'

/** Tokens by id, with what they are for and their scores. */
export interface Vocabulary {
  readonly tokens: readonly string[]
  readonly kinds: readonly TokenKind[]
  readonly scores: readonly number[]
}

/** The tokenizer of a vocabulary that writes spaces as ▁ and falls back to bytes, still without merges. */
export function scoredTokenizer(
  { tokens, kinds }: Vocabulary,
  { addSpacePrefix }: { readonly addSpacePrefix: boolean },
): TokenizerJson {
  const unknown = kinds.indexOf('unknown')
  const spaces = { type: 'Replace', pattern: { String: ' ' }, content: '▁' }
  const prefix = { type: 'Prepend', prepend: '▁' }
  const decoders = [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
  ]
  const strip = { type: 'Strip', content: ' ', start: 1, stop: 0 }
  return {
    model: {
      type: 'BPE',
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [],
      unk_token: tokens[unknown],
      fuse_unk: true,
      byte_fallback: true,
    },
    added_tokens: tokens.flatMap((content, id) =>
      ['control', 'unknown', 'user'].includes(kinds[id]!)
        ? [{ id, content, special: kinds[id] !== 'user', normalized: false }]
        : [],
    ),
    normalizer: { type: 'Sequence', normalizers: addSpacePrefix ? [prefix, spaces] : [spaces] },
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Sequence', decoders: addSpacePrefix ? [...decoders, strip] : decoders },
  }
}

/**
 * With the merges that SentencePiece's BPE makes: any two tokens that make a third, the one of the highest score first
 * and the left one of equal scores.
 */
export function mergesByScore(json: TokenizerJson, { tokens, kinds, scores }: Vocabulary): TokenizerJson {
  const ids = new Map(tokens.map((token, id) => [token, id]))
  const merges: [string, string][] = []
  const mergeScores: number[] = []
  tokens.forEach((token, id) => {
    if (['control', 'byte', 'unknown'].includes(kinds[id]!)) return
    let units = 0
    for (const character of token) {
      units += character.length
      const [left, right] = [token.slice(0, units), token.slice(units)]
      if (right === '' || !ids.has(left) || !ids.has(right)) continue
      merges.push([left, right])
      mergeScores.push(scores[id]!)
    }
  })
  const order = [...new Set(mergeScores)].sort((a, b) => b - a)
  const rankOf = new Map(order.map((score, rank) => [score, rank]))
  const ranks = mergeScores.map(score => rankOf.get(score)!)
  return { ...json, model: { ...json.model, merges, ranks } }
}
