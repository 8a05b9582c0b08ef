// TextTokenizer: ids and texts of the library tokenizers, case by case; hostile text; what is refused.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { TextTokenizer } from '#lib/text/text-tokenizer.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

interface Golden {
  readonly cases: readonly { ids: number[]; ids_special?: number[]; decode?: string; decode_skip?: string }[]
  readonly broken: readonly { ids: number[]; decode: string }[]
}

const tokenizers = noLanguageData ? ['a tokenizer'] : foldersOf('lm-golden', 'tokenizers')
const folderOf = (name: string): string => dataPath('lm-golden', 'tokenizers', name)
const raw = { addSpecialTokens: false, parseSpecial: true }

/** A byte-level vocabulary of a few letters, with a control token and an ordinary added one. */
const tiny = {
  model: { type: 'BPE', vocab: { a: 0, b: 1, ab: 2, '<': 3, '|': 4, x: 5, '>': 6, é: 9 }, merges: ['a b'] },
  added_tokens: [
    { id: 7, content: '<|x|>', special: true },
    { id: 8, content: '<x>', special: false, normalized: false },
  ],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: { type: 'Fuse' },
}

for (const name of tokenizers) {
  t.test(`golden cases of ${name}`, { skip: noLanguageData }, async t => {
    const strings = readJson<string[]>('lm-golden', 'tokenizers', 'strings.json')
    const { cases, broken } = readJson<Golden>('lm-golden', 'tokenizers', name, 'golden.json')
    const tokenizer = await TextTokenizer.load(folderOf(name))
    t.equal(cases.length, strings.length)
    for (const [i, { ids, ids_special: special = ids, ...texts }] of cases.entries()) {
      const text = strings[i]!
      t.same(tokenizer.encode(text, raw), ids, `ids of string ${i}`)
      t.same(tokenizer.encode(text, { parseSpecial: true }), special)
      const { decode = text, decode_skip: skipped = decode } = texts
      t.equal(tokenizer.decode(ids, { skipSpecialTokens: false }), decode)
      t.equal(tokenizer.decode(Int32Array.from(special)), skipped)
    }
    for (const { ids, decode } of broken) t.equal(tokenizer.decode(ids, { skipSpecialTokens: false }), decode)
  })

  t.test(`hostile text for ${name}`, { skip: noLanguageData }, async t => {
    const tokenizer = await TextTokenizer.load(folderOf(name))
    t.same(tokenizer.encode('', { addSpecialTokens: false }), [])
    t.equal(tokenizer.decode([]), '')
    for (const text of [' '.repeat(1e6), 'a'.repeat(1e5), '\ud800'.repeat(1000), '\0'.repeat(1000)]) {
      const ids = tokenizer.encode(text)
      const known = ids.every(id => tokenizer.tokenOf(id) !== undefined)
      t.ok(known, `${ids.length} ids for ${text.length} characters`)
    }
    t.same(tokenizer.encode('a\ud800b', raw), tokenizer.encode('a\ufffdb', raw), 'half a surrogate pair')
    t.equal(tokenizer.decode([10 ** 9]), '', 'an id beyond the vocabulary has no text')
  })
}

t.test('vocabularies of models', { skip: noLanguageData }, async t => {
  for (const [name, hello, text] of [
    ['qwen3', [9707, 11, 1879, 0], 'Hello, world!'],
    ['llama3_1', [128000, 9906, 11, 1917, 0], 'Hello, world!'],
    ['gemma3', [2, 9259, 236764, 1902, 236888], 'Hello, world!'],
  ] as const) {
    const files = ['tokenizer', 'tokenizer_config'].map(file =>
      readJson<object>('llm', 'tokenizers', name, `${file}.json.gz`),
    )
    const tokenizer = await TextTokenizer.fromJson(files[0]!, files[1]!)
    t.same(tokenizer.encode(text), hello, name)
    const sample = 'def f(x):\n    return x  # naïve 你好 😀 1234567 ' + "it's\t\r\n\n"
    t.equal(tokenizer.decode(tokenizer.encode(sample)), sample, `${name} round trip`)
    t.ok(tokenizer.chatTemplate?.includes('messages'), 'has a chat template')
    t.ok(tokenizer.specialTokens.eos && tokenizer.isSpecial(tokenizer.specialTokens.eos.id))
  }
})

t.test("SentencePiece's tokenizer.model", { skip: noLanguageData }, async t => {
  const tokenizer = await TextTokenizer.load(dataPath('llm', 'llama2-tokenizer', 'tokenizer.model'))
  const base = dataPath('llm', 'gguf-vocab', 'ggml-vocab-llama-spm.gguf')
  const { readFileSync } = await import('node:fs')
  const texts = readFileSync(`${base}.inp`, 'utf8').split('\n__ggml_vocab_test__\n')
  const ids = readFileSync(`${base}.out`, 'utf8').split('\n')
  for (const [i, text] of texts.entries())
    t.same(
      tokenizer.encode(text, { addSpecialTokens: false }),
      ids[i]!.trim().split(/\s+/).filter(Boolean).map(Number),
    )
  t.same(tokenizer.encode('hi'), [1, 7251])
  t.same(tokenizer.specialTokens.eos, { id: 2, text: '</s>' })
  const folder = t.testdir({ 'tokenizer.model': 'no protobuf at all' })
  await t.rejects(TextTokenizer.load(folder), { code: 'ERR_FORMAT' })
})

t.test('control tokens in text stay text unless asked for', async t => {
  const tokenizer = await TextTokenizer.fromJson(tiny, { eos_token: { content: '<|x|>' } })
  t.same(tokenizer.encode('ab<|x|>'), [2, 3, 4, 5, 4, 6])
  t.same(tokenizer.encode('ab<|x|>', { parseSpecial: true }), [2, 7])
  t.same(tokenizer.encode('a<x>'), [0, 8], 'an ordinary added token is always found')
  t.equal(tokenizer.decode([2, 7]), 'ab')
  t.equal(tokenizer.decode([2, 7], { skipSpecialTokens: false }), 'ab<|x|>')
  t.same(tokenizer.specialTokens, { eos: { id: 7, text: '<|x|>' } })
  t.equal(tokenizer.vocabularySize, 10)
  t.equal(tokenizer.idOf('ab'), 2)
  t.ok(tokenizer.isSpecial(7))
  t.notOk(tokenizer.isSpecial(8))
})

t.test('escaped text of users in a prompt', async t => {
  const tokenizer = await TextTokenizer.fromJson(tiny)
  const special = { parseSpecial: true }
  const escaped = tokenizer.escapeSpecialTokens('ab<|x|><x>')
  t.same(tokenizer.encode(`<|x|>${escaped}<|x|>`, special), [7, 2, 3, 4, 5, 4, 6, 8, 7])
  t.same(tokenizer.encode(escaped), tokenizer.encode('ab<|x|><x>'))
  const twice = tokenizer.escapeSpecialTokens(escaped.replace('\ufdd0', ''))
  t.equal(twice, escaped)
  t.notOk(
    tokenizer.encode(tokenizer.escapeSpecialTokens('<\ufdd0|x|>'), special).includes(7),
    'marks of a user',
  )
  t.equal(tokenizer.escapeSpecialTokens('plain < text'), 'plain < text')
  t.throws(() => tokenizer.escapeSpecialTokens(1 as never), { code: 'ERR_ARGUMENT' })
})

t.test('Unigram finds no control tokens in text', async t => {
  const model = {
    type: 'Unigram',
    vocab: [
      ['<s>', 0],
      ['<', -1],
      ['s', -1],
      ['>', -1],
      ['<unk>', -9],
    ],
    unk_id: 4,
  }
  const tokenizer = await TextTokenizer.fromJson({
    ...tiny,
    model,
    added_tokens: [{ id: 0, content: '<s>', special: true, normalized: false }],
  })
  t.same(tokenizer.encode('<s>'), [1, 2, 3])
  t.same(tokenizer.encode('<s>', { parseSpecial: true }), [0])
  t.same(tokenizer.encode('s??s'), [2, 4, 2], 'neighbouring unknown characters are one token')
})

t.test('a folder', async t => {
  const folder = t.testdir({
    'tokenizer.json': JSON.stringify(tiny),
    'tokenizer_config.json': JSON.stringify({ chat_template: [{ name: 'default', template: 'old' }] }),
  })
  t.equal((await TextTokenizer.load(folder)).chatTemplate, 'old')
  writeFileSync(path.join(folder, 'chat_template.jinja'), 'new')
  t.equal((await TextTokenizer.load(path.join(folder, 'tokenizer.json'))).chatTemplate, 'new')
  writeFileSync(path.join(folder, 'tokenizer.json'), '{')
  await t.rejects(TextTokenizer.load(folder), { code: 'ERR_FORMAT', message: /tokenizer\.json is no JSON/ })
  mkdirSync(path.join(folder, 'empty'))
  await t.rejects(TextTokenizer.load(path.join(folder, 'empty')), { code: 'ERR_IO', message: /neither/ })
})

const split = (Regex: string): object => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated' })

t.test('what is refused', async t => {
  const change = (part: object): Promise<TextTokenizer> => TextTokenizer.fromJson({ ...tiny, ...part })
  const refused: readonly [object, string, RegExp][] = [
    [{ model: undefined }, 'ERR_FORMAT', /model is missing/],
    [{ model: { type: 'Neural', vocab: {} } }, 'ERR_UNSUPPORTED', /model Neural; known: BPE/],
    [{ model: { ...tiny.model, vocab: { a: -1 } } }, 'ERR_FORMAT', /the id -1/],
    [{ model: { ...tiny.model, merges: ['a z'] } }, 'ERR_FORMAT', /merge 0, "a z"/],
    [{ model: { ...tiny.model, merges: [2] } }, 'ERR_FORMAT', /merge 0, 2/],
    [{ decoder: { type: 'Sequence', decoders: [null] } }, 'ERR_FORMAT', /decoders must be a list/],
    [
      { pre_tokenizer: { type: 'Sequence', pretokenizers: 'x' } },
      'ERR_FORMAT',
      /pretokenizers must be a list/,
    ],
    [{ model: { ...tiny.model, end_of_word_suffix: '</w>' } }, 'ERR_UNSUPPORTED', /end_of_word_suffix/],
    [{ model: { type: 'Unigram', vocab: [['a', 0]], unk_id: 3 } }, 'ERR_FORMAT', /unk_id 3/],
    [{ model: { type: 'WordPiece', vocab: { a: 0 } } }, 'ERR_FORMAT', /unk_token '\[UNK\]'/],
    [{ normalizer: { type: 'Magic' } }, 'ERR_UNSUPPORTED', /normalizer Magic/],
    [{ pre_tokenizer: { type: 'Magic' } }, 'ERR_UNSUPPORTED', /pre-tokenizer Magic/],
    [{ pre_tokenizer: split('(?:a+)+b') }, 'ERR_UNSUPPORTED', /'\(\?:a\+\)\+b' may hang: it repeats a group/],
    [{ pre_tokenizer: split('(a|ab)*c') }, 'ERR_UNSUPPORTED', /repeats a group/],
    [{ pre_tokenizer: split('((a{2,})|b){3}') }, 'ERR_UNSUPPORTED', /repeats a group/],
    [{ pre_tokenizer: split('x|[\\])(]*(?:a|a+)[b]{1,}') }, 'ERR_UNSUPPORTED', /more than 2 repetitions/],
    [{ pre_tokenizer: split('a'.repeat(10_001)) }, 'ERR_UNSUPPORTED', /more than 10000 characters/],
    [
      { normalizer: { type: 'Replace', pattern: { Regex: '(a*)*' }, content: '' } },
      'ERR_UNSUPPORTED',
      /hang/,
    ],
    [{ decoder: { type: 'CTC' } }, 'ERR_UNSUPPORTED', /decoder CTC; known: ByteLevel/],
    [{ post_processor: { type: 'Magic' } }, 'ERR_UNSUPPORTED', /post_processor Magic/],
    [{ added_tokens: [{ id: 'x' }] }, 'ERR_FORMAT', /added_tokens/],
    [{ normalizer: 3 }, 'ERR_FORMAT', /normalizer must be null/],
  ]
  for (const [part, code, message] of refused)
    await t.rejects(change(part), { code, message }, String(message))
  const tokenizer = await change({})
  for (const call of [
    () => tokenizer.encode(3 as never),
    () => tokenizer.encode('a', { parseSpecial: 1 as never }),
    () => tokenizer.encode('a', { addSpecial: true } as never),
    () => tokenizer.decode('a' as never),
    () => tokenizer.decode([-1]),
    () => tokenizer.decode([1.5]),
    () => tokenizer.decode([1], { skipSpecial: true } as never),
  ])
    t.throws(call, { name: 'SparkError', code: 'ERR_ARGUMENT' }, String(call))
})
