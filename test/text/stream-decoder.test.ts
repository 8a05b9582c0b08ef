// StreamDecoder: pieces of text as the DecodeStream of the library tokenizers gives them, never half a character.
import t from 'tap'
import { TextTokenizer } from '#lib/text/text-tokenizer.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

interface Golden {
  readonly streams: readonly {
    readonly ids: number[]
    readonly prefixes: string[]
    readonly stream: (string | null)[]
  }[]
}

for (const name of noLanguageData ? ['a tokenizer'] : foldersOf('lm-golden', 'tokenizers')) {
  t.test(`golden streams of ${name}`, { skip: noLanguageData }, async t => {
    const tokenizer = await TextTokenizer.load(dataPath('lm-golden', 'tokenizers', name))
    const { streams } = readJson<Golden>('lm-golden', 'tokenizers', name, 'golden.json')
    t.ok(streams.length > 0)
    for (const { ids, prefixes, stream } of streams) {
      const decoder = tokenizer.streamDecoder()
      t.same(
        ids.map(id => decoder.push(id)),
        stream.map(text => text ?? ''),
      )
      t.equal(decoder.flush(), '')
      for (const [k, prefix] of prefixes.entries()) t.equal(tokenizer.decode(ids.slice(0, k + 1)), prefix)
    }
  })

  t.test(`all strings through a stream of ${name}`, { skip: noLanguageData }, async t => {
    const tokenizer = await TextTokenizer.load(dataPath('lm-golden', 'tokenizers', name))
    const decoder = tokenizer.streamDecoder({ skipSpecialTokens: false })
    for (const text of readJson<string[]>('lm-golden', 'tokenizers', 'strings.json')) {
      const ids = tokenizer.encode(text)
      const pieces = ids.map(id => decoder.push(id))
      const whole = tokenizer.decode(ids, { skipSpecialTokens: false })
      t.equal(pieces.join('') + decoder.flush(), whole)
      if (!whole.includes('\ufffd')) t.notOk(pieces.some(piece => piece.includes('\ufffd')))
    }
  })
}

const bytes = Array.from(
  { length: 256 },
  (_, byte) => [`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, byte] as const,
)

/** Bytes and a few words, as Llama 2's vocabulary has them. */
const byteFallback = {
  model: {
    type: 'BPE',
    vocab: { ...Object.fromEntries(bytes), '▁': 256, '▁hi': 257, x: 258 },
    merges: [],
    byte_fallback: true,
  },
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
}

t.test('characters over several tokens', async t => {
  const decoder = (await TextTokenizer.fromJson(byteFallback)).streamDecoder()
  const push = (...ids: number[]): string[] => ids.map(id => decoder.push(id))
  t.same(push(257, 257, 0xf0, 0x9f, 0x98, 0x80, 258), ['hi', ' hi', '', '', '', '😀', 'x'])
  t.same(push(0xf0, 0x9f, 258), ['', '', '\ufffdx'], 'one that is broken off')
  t.same(push(0xff, 0x80), ['\ufffd', '\ufffd'], 'bytes that begin none are not held back')
  t.same(push(0xe4), [''])
  t.equal(decoder.flush(), '\ufffd', 'one that the text ends in')
  t.same(push(257), ['hi'], 'a new text begins without a space')
  t.same(push(10 ** 6), [''], 'an id without a token')
  for (const id of [-1, 0.5, 'a', Number.NaN])
    t.throws(() => decoder.push(id as number), {
      code: 'ERR_ARGUMENT',
      message: /token id must be an integer/,
    })
})

t.test('a decoder keeps no more than it needs', async t => {
  const decoder = (await TextTokenizer.fromJson(byteFallback)).streamDecoder()
  let text = ''
  for (let i = 0; i < 50_000; i++) text += decoder.push(0xff)
  t.equal(text, '\ufffd'.repeat(50_000), 'a model that emits nothing but wrong bytes')
})
