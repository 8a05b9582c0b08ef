// Vocabularies of GGUF files: ids of llama.cpp, and of the tokenizer.json that they were made of.
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { TextTokenizer } from '#lib/text/text-tokenizer.js'
import { readMetadata } from '../fixtures/text/gguf-metadata.js'
import { dataPath, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

const vocabularies = noLanguageData
  ? ['a vocabulary']
  : readdirSync(dataPath('llm', 'gguf-vocab')).filter(name => name.endsWith('.gguf.gz'))

for (const name of vocabularies) {
  t.test(`golden ids of ${name}`, { skip: noLanguageData }, async t => {
    const base = dataPath('llm', 'gguf-vocab', name.replace('.gz', ''))
    const tokenizer = await TextTokenizer.fromGguf(readMetadata(`${base}.gz`))
    const texts = readFileSync(`${base}.inp`, 'utf8').split('\n__ggml_vocab_test__\n')
    const ids = readFileSync(`${base}.out`, 'utf8').split('\n')
    t.ok(texts.length > 40)
    for (const [i, text] of texts.entries()) {
      const wanted = ids[i]!.trim().split(/\s+/).filter(Boolean).map(Number)
      t.same(tokenizer.encode(text, { addSpecialTokens: false }), wanted, `text ${i}`)
    }
  })
}

/** GGUF files with the tokenizer that they were written from. */
const pairs = [
  ['gpt2.F32', 'bpe-gpt2'],
  ['llama.F16', 'bpe-llama3'],
  ['qwen2.F16', 'bpe-qwen2'],
  ['llama-spm.Q8_0', 'sp-llama2'],
  ['gemma3.Q8_0', 'sp-gemma'],
] as const

for (const [file, name] of pairs) {
  t.test(`${file}.gguf gives the ids of ${name}`, { skip: noLanguageData }, async t => {
    const tokenizer = await TextTokenizer.fromGguf(
      readMetadata(dataPath('lm-golden', 'gguf', `${file}.gguf`)),
    )
    const strings = readJson<string[]>('lm-golden', 'tokenizers', 'strings.json')
    const same = await TextTokenizer.load(dataPath('lm-golden', 'tokenizers', name))
    for (const [i, text] of strings.entries()) {
      // A GGUF file does not say that text is normalized to NFC.
      const given = text.normalize('NFC')
      const ids = same.encode(given, { addSpecialTokens: false })
      t.same(tokenizer.encode(given, { addSpecialTokens: false }), ids, `string ${i}`)
      t.equal(tokenizer.decode(ids), same.decode(ids))
    }
  })
}

const tiny = (changes: Record<string, unknown>): Map<string, unknown> => {
  const keys = {
    model: 'gpt2',
    pre: 'gpt-2',
    tokens: ['a', 'b', 'ab', '<s>', '</s>'],
    token_type: Int32Array.of(1, 1, 1, 3, 3),
    merges: ['a b'],
    bos_token_id: 3,
    eos_token_id: 4,
    ...changes,
  }
  return new Map(Object.entries(keys).map(([key, value]) => [`tokenizer.ggml.${key}`, value]))
}

t.test('files that name no pre-tokenizer', async t => {
  const metadata = tiny({ tokens: ['a', 'b', '!', '!!', '1', '11', '111', '<s>', '</s>'] })
  for (const key of ['tokenizer.ggml.pre', 'tokenizer.ggml.token_type']) metadata.delete(key)
  metadata.set('tokenizer.ggml.merges', ['! !', '1 1', '11 1'])
  const tokenizer = await TextTokenizer.fromGguf(metadata)
  // Punctuation is apart from all else, and digits are taken by three.
  t.same(tokenizer.encode('a!!b1111', { addSpecialTokens: false }), [0, 3, 1, 6, 4])
})

t.test('control tokens around a text', async t => {
  const ids = async (changes: Record<string, unknown>): Promise<number[]> =>
    (await TextTokenizer.fromGguf(tiny(changes))).encode('ab')
  t.same(await ids({}), [2], 'gpt-2 adds none')
  t.same(await ids({ pre: 'llama-bpe' }), [3, 2], 'llama 3 adds BOS')
  t.same(await ids({ add_bos_token: true, add_eos_token: true }), [3, 2, 4])
  const tokenizer = await TextTokenizer.fromGguf(tiny({ eot_token_id: 2 ** 32 - 1, padding_token_id: 4 }))
  t.same(tokenizer.specialTokens, {
    bos: { id: 3, text: '<s>' },
    eos: { id: 4, text: '</s>' },
    pad: { id: 4, text: '</s>' },
  })
})

t.test('what is refused', async t => {
  for (const [changes, code, message] of [
    [{ model: 'rwkv' }, 'ERR_UNSUPPORTED', /'rwkv' is not known; known: gpt2/],
    [{ model: undefined }, 'ERR_UNSUPPORTED', /model '' is not known/],
    [{ pre: 'lama-bpe' }, 'ERR_UNSUPPORTED', /'lama-bpe' is not known \(did you mean 'llama-bpe'\?\)/],
    [{ tokens: undefined }, 'ERR_FORMAT', /no tokenizer\.ggml\.tokens/],
    [{ tokens: ['a', 3], token_type: undefined }, 'ERR_FORMAT', /token 1 of/],
    [{ token_type: [1] }, 'ERR_FORMAT', /1 entries for 5 tokens/],
    [{ merges: undefined }, 'ERR_FORMAT', /no tokenizer\.ggml\.merges/],
    [{ merges: 'a b' }, 'ERR_FORMAT', /merges must be a list/],
  ] as const)
    await t.rejects(TextTokenizer.fromGguf(tiny(changes)), { code, message }, String(message))
  await t.rejects(TextTokenizer.fromGguf({} as never), { code: 'ERR_ARGUMENT' })
})
