// sentence-piece.ts: tokenizer.model, the protobuf of SentencePiece (sentencepiece_model.proto), as a tokenizer.json.
import { BinaryReader, type WireType } from '@bufbuild/protobuf/wire'
import { mergesByScore, scoredTokenizer, type TokenKind, type Vocabulary } from './scored-vocabulary.js'
import { type Component, type TokenizerJson, type TokenizerSource, tokenizerError } from './tokenizer-json.js'

/** Numbers of ModelProto.SentencePiece.Type. */
const kinds: readonly TokenKind[] = ['normal', 'normal', 'unknown', 'control', 'user', 'unused', 'byte']

/** Calls `field` for each field of a message; it reads the value and returns true, or leaves it. */
function eachField(bytes: Uint8Array, field: (number: number, reader: BinaryReader) => boolean): void {
  const reader = new BinaryReader(bytes)
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag()
    if (!field(number, reader)) reader.skip(type as WireType, number)
  }
}

function readPiece(bytes: Uint8Array): { token: string; score: number; kind: TokenKind } {
  let [token, score, kind] = ['', 0, 'normal' as TokenKind]
  eachField(bytes, (number, reader) => {
    if (number === 1) token = reader.string()
    else if (number === 2) score = reader.float()
    else if (number === 3) kind = kinds[reader.int32()] ?? 'normal'
    return number <= 3
  })
  return { token, score, kind }
}

/** Fields of TrainerSpec and NormalizerSpec that decide how text is split. */
interface Settings {
  modelType: number
  addDummyPrefix: boolean
  removeExtraSpaces: boolean
  normalizer: string
}

function readModel(bytes: Uint8Array): { vocabulary: Vocabulary; settings: Settings } {
  const pieces: ReturnType<typeof readPiece>[] = []
  const settings: Settings = {
    modelType: 1,
    addDummyPrefix: true,
    removeExtraSpaces: true,
    normalizer: '',
  }
  eachField(bytes, (number, reader) => {
    if (number === 1) pieces.push(readPiece(reader.bytes()))
    else if (number === 2)
      eachField(reader.bytes(), (field, inner) => {
        if (field === 3) settings.modelType = inner.int32()
        return field === 3
      })
    else if (number === 3)
      eachField(reader.bytes(), (field, inner) => {
        if (field === 1) settings.normalizer = inner.string()
        else if (field === 3) settings.addDummyPrefix = inner.bool()
        else if (field === 4) settings.removeExtraSpaces = inner.bool()
        return [1, 3, 4].includes(field)
      })
    return number <= 3
  })
  const vocabulary = {
    tokens: pieces.map(({ token }) => token),
    kinds: pieces.map(({ kind }) => kind),
    scores: pieces.map(({ score }) => score),
  }
  return { vocabulary, settings }
}

/** With the model Unigram, which finds the best split by scores instead of merging. */
function unigramTokenizer(json: TokenizerJson, { tokens, scores, kinds }: Vocabulary): TokenizerJson {
  const vocab = tokens.map((token, id) => [token, scores[id]!] as const)
  const model = {
    type: 'Unigram',
    vocab,
    unk_id: kinds.indexOf('unknown'),
    byte_fallback: kinds.includes('byte'),
  }
  return { ...json, model }
}

/**
 * What a tokenizer is made of, from the bytes of a tokenizer.model.
 * @throws SparkError ERR_FORMAT; ERR_UNSUPPORTED for models of words or characters, and for normalizers but the identity
 *   and NFKC
 */
export function sourceOfSentencePiece(bytes: Uint8Array): TokenizerSource {
  const { vocabulary, settings } = parse(bytes)
  if (vocabulary.tokens.length === 0)
    throw tokenizerError('ERR_FORMAT', 'tokenizer.model has no pieces; is it a SentencePiece model?')
  const { addDummyPrefix: addSpacePrefix, normalizer, modelType } = settings
  const plain = scoredTokenizer(vocabulary, { addSpacePrefix })
  if (modelType !== 1 && modelType !== 2)
    throw tokenizerError('ERR_UNSUPPORTED', `SentencePiece model type ${modelType}; known: 1 Unigram, 2 BPE`)
  if (!['identity', '', 'nmt_nfkc', 'nfkc'].includes(normalizer))
    throw tokenizerError('ERR_UNSUPPORTED', `SentencePiece normalizer '${normalizer}'`)
  const json = modelType === 2 ? mergesByScore(plain, vocabulary) : unigramTokenizer(plain, vocabulary)
  const nfkc: Component[] = normalizer.endsWith('nfkc') ? [{ type: 'NFKC' }] : []
  const spaces: Component[] = settings.removeExtraSpaces
    ? [
        { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' },
        { type: 'Strip', strip_left: true, strip_right: true },
      ]
    : []
  const [bos, eos] = ['<s>', '</s>'].map(token => vocabulary.tokens.indexOf(token))
  const before = bos! >= 0 ? [{ SpecialToken: { id: '<s>', type_id: 0 } }] : []
  return {
    json: {
      ...json,
      normalizer: { type: 'Sequence', normalizers: [...nfkc, ...spaces, json.normalizer] },
      post_processor: {
        type: 'TemplateProcessing',
        single: [...before, { Sequence: { id: 'A', type_id: 0 } }],
        special_tokens: { '<s>': { ids: [bos] } },
      },
    },
    special: {
      ...(bos! >= 0 && { bos: bos! }),
      ...(eos! >= 0 && { eos: eos! }),
      unk: vocabulary.kinds.indexOf('unknown'),
    },
    chatTemplate: undefined,
  }
}

function parse(bytes: Uint8Array): ReturnType<typeof readModel> {
  try {
    return readModel(bytes)
  } catch (cause) {
    throw tokenizerError(
      'ERR_FORMAT',
      `tokenizer.model is no SentencePiece model: ${(cause as Error).message}`,
    )
  }
}
