// Vectors of texts: encoders and decoders, conventions of sentence-transformers, batches, and what is refused.
import { rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { readSafetensors, TextModel } from 'dgx-spark'
import t from 'tap'
import { batchesOf } from '#lib/text/embedding/encoder-engine.js'
import { modules, writeEncoderFolder, writeEncoderGguf } from '../fixtures/text/encoder-folder.js'
import { encoderReference, randomEncoder } from '../fixtures/text/encoder-reference.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

const cpu = { backend: 'cpu' } as const

const lengthOf = (vector: Float32Array): number => Math.hypot(...vector)

/** The reference's mean of a text of the small encoders. */
function meanOf(ids: readonly number[]): number[] {
  const rows = encoderReference('bert', randomEncoder('bert'), ids)
  return rows[0]!.map((_, i) => rows.reduce((sum, row) => sum + row[i]!, 0) / rows.length)
}

const worst = (actual: ArrayLike<number>, expected: ArrayLike<number>): number =>
  Math.max(...Array.from(actual, (value, i) => Math.abs(value - expected[i]!)))

t.test('golden vectors', { skip: noLanguageData }, async t => {
  for (const name of foldersOf('lm-golden', 'embeddings')) {
    const { tolerance, texts } = readJson<{
      readonly tolerance: { readonly embeddings_abs: number }
      readonly texts: readonly string[]
    }>('lm-golden', 'embeddings', name, 'golden.json')
    const folder = dataPath('lm-golden', 'embeddings', name)
    using model = await TextModel.load(folder, cpu)
    const { tensors } = await readSafetensors(path.join(folder, 'golden.safetensors'))
    const expected = tensors.get('embeddings_f64')!.data as Float64Array
    const vectors = await model.embed(texts)
    const size = vectors[0]!.length
    for (const [i, vector] of vectors.entries()) {
      const row = expected.subarray(i * size, (i + 1) * size)
      t.ok(worst(vector, row) <= tolerance.embeddings_abs, `${name}: ${texts[i]}`)
    }
    // Longer than the 64 tokens that the folder asks for.
    const long = 'the keeper rings the bell '.repeat(20)
    const ids = Int32Array.from(model.tokenizer.encode(long, { maxLength: 64 }))
    t.equal(ids.length, 64)
    t.strictSame(await model.embed(long), await model.embed([ids]))
  }
})

t.test('a folder without modules: the mean, normalized', async t => {
  using model = await TextModel.load(await writeEncoderFolder(t.testdir()), cpu)
  t.equal(model.architecture, 'bert')
  t.equal(model.contextLength, 400)
  t.equal(model.cacheTokens, 0)
  const [vector] = await model.embed('The bell rings')
  const mean = meanOf([2, 4, 6, 7, 3])
  t.ok(Math.abs(lengthOf(vector!) - 1) < 1e-6)
  t.ok(
    worst(
      vector!,
      mean.map(value => value / Math.hypot(...mean)),
    ) < 1e-5,
  )
  const [plain] = await model.embed(['the bell rings'], { normalize: false })
  t.ok(worst(plain!, mean) < 2e-5)
  const [short] = await model.embed('the bell rings', { normalize: false, dimensions: 7 })
  t.strictSame(short, plain!.slice(0, 7))
  t.strictSame(await model.embed([]), [])
})

t.test('texts that are cut keep the tokens around them', async t => {
  using model = await TextModel.load(await writeEncoderFolder(t.testdir()), cpu)
  const { tokenizer } = model
  t.strictSame(tokenizer.encode('the bell rings', { maxLength: 5 }), [2, 4, 6, 7, 3])
  t.strictSame(tokenizer.encode('the bell rings', { maxLength: 4 }), [2, 4, 6, 3])
  t.strictSame(tokenizer.encode('the bell rings', { maxLength: 2 }), [2, 3])
  t.strictSame(tokenizer.encode('the bell rings', { maxLength: 1, addSpecialTokens: false }), [4])
  t.throws(() => tokenizer.encode('the bell rings', { maxLength: 1 }), { code: 'ERR_ARGUMENT' })
  t.throws(() => tokenizer.encode('the bell rings', { maxLength: 2.5 }), { code: 'ERR_ARGUMENT' })
})

t.test('many texts: each as if it were alone, in the order they came in', async t => {
  using model = await TextModel.load(await writeEncoderFolder(t.testdir()), { ...cpu, batchTokens: 40 })
  const texts = Array.from({ length: 23 }, (_, i) => `word${i} `.repeat(1 + ((i * 7) % 19)))
  const all = await model.embed(texts)
  for (const [i, text] of texts.entries()) t.strictSame(await model.embed(text), [all[i]])
})

t.test('batches have few tokens of padding and no more tokens than the limit', async t => {
  const texts = [3, 50, 4, 4, 12, 11].map(length => ({ length }))
  t.strictSame(batchesOf(texts, 24), [[1], [4, 5], [2, 3, 0]])
  t.strictSame(batchesOf([], 24), [])
})

t.test('what the modules of a folder say', async t => {
  const prompts = { query: 'query: ', passage: 'passage: ' }
  const folder = await writeEncoderFolder(t.testdir(), {
    ...modules({ pooling_mode_cls_token: true, pooling_mode_mean_tokens: false }, false),
    'sentence_bert_config.json': { max_seq_length: 6 },
    'tokenizer_config.json': { model_max_length: 1e30 },
    'config_sentence_transformers.json': { prompts, default_prompt_name: 'passage' },
  })
  using model = await TextModel.load(folder, cpu)
  const first = (ids: number[]): number[] => encoderReference('bert', randomEncoder('bert'), ids)[0]!
  // [CLS] passage [UNK] red … [SEP]: the colon is not in the vocabulary, and 6 tokens are all there are.
  const [passage] = await model.embed('red blue green the bell')
  t.ok(worst(passage!, first([2, 13, 1, 14, 15, 3])) < 2e-5)
  const [query] = await model.embed('red', { promptName: 'query' })
  t.ok(worst(query!, first([2, 12, 1, 14, 3])) < 2e-5)
  const [bare] = await model.embed('red', { prompt: '', pooling: 'last', maxLength: 400 })
  t.ok(worst(bare!, encoderReference('bert', randomEncoder('bert'), [2, 14, 3]).at(-1)!) < 2e-5)
  await t.rejects(model.embed('red', { promptName: 'title' }), {
    code: 'ERR_ARGUMENT',
    message: /promptName.*query.*passage.*title/,
  })
  await t.rejects(model.embed('red', { promptName: 'query', prompt: 'x' }), { code: 'ERR_ARGUMENT' })
})

t.test('modules that are not supported are named', async t => {
  const load = async (files: Record<string, unknown>) =>
    TextModel.load(await writeEncoderFolder(t.testdir(), files), cpu)
  await t.rejects(load(modules({ pooling_mode_max_tokens: true })), {
    code: 'ERR_UNSUPPORTED',
    message: /1_Pooling.config\.json asks for pooling_mode_max_tokens; supported is one of/,
  })
  const both = { pooling_mode_cls_token: true, pooling_mode_mean_tokens: true }
  await t.rejects(load(modules(both)), { message: /cls_token and pooling_mode_mean_tokens/ })
  const dense = [{ idx: 0, path: '2_Dense', type: 'sentence_transformers.models.Dense' }]
  await t.rejects(load({ 'modules.json': dense }), { message: /modules\.json: modules of type Dense/ })
  const outside = [{ path: '../other', type: 'Pooling' }]
  await t.rejects(load({ 'modules.json': outside }), { code: 'ERR_FORMAT', message: /'\.\.\/other'/ })
  const folder = await writeEncoderFolder(t.testdir(), {
    ...modules({ pooling_mode_mean_tokens: true, include_prompt: false }),
    'config_sentence_transformers.json': { prompts: { query: 'query: ' } },
  })
  using model = await TextModel.load(folder, cpu)
  t.equal((await model.embed('red')).length, 1)
  await t.rejects(model.embed('red', { promptName: 'query' }), { code: 'ERR_UNSUPPORTED' })
})

t.test('a GGUF file gives the vectors of the folder', async t => {
  const folder = t.testdir()
  using model = await TextModel.load(await writeEncoderGguf(path.join(folder, 'bert.gguf')), cpu)
  using same = await TextModel.load(await writeEncoderFolder(folder), cpu)
  const texts = ['the bell rings', 'unknown words', '']
  t.strictSame(await model.embed(texts), await same.embed(texts))
  using first = await TextModel.load(await writeEncoderGguf(path.join(folder, 'cls.gguf'), 2), cpu)
  t.strictSame(await first.embed(texts), await same.embed(texts, { pooling: 'cls' }))
  const rank = await writeEncoderGguf(path.join(folder, 'rank.gguf'), 4)
  await t.rejects(TextModel.load(rank, cpu), { code: 'ERR_UNSUPPORTED', message: /pooling_type 4/ })
})

t.test('arguments that are wrong', async t => {
  const folder = await writeEncoderFolder(t.testdir())
  using model = await TextModel.load(folder, { ...cpu, contextLength: 32 })
  const refused = (input: unknown, options?: unknown) =>
    t.rejects(model.embed(input as string, options as object), { code: 'ERR_ARGUMENT' })
  await refused(7)
  await refused(['x', 7])
  await refused(new Int32Array(0))
  await refused(Int32Array.of(60))
  await refused('x', { pooling: 'max' })
  await refused('x', { normalize: 1 })
  await refused('x', { maxLength: 33 })
  await refused('x', { maxLength: 1 })
  await refused('x', { dimensions: 25 })
  await refused('x', { prompt: 1 })
  await refused('x', { pool: 'mean' })
  await t.rejects(model.embed(new Int32Array(33)), { code: 'ERR_RANGE', message: /33 tokens.* 32/ })
  await t.rejects(model.embed('x', { signal: AbortSignal.abort(new Error('enough')) }), /enough/)
  t.throws(() => model.generate('x'), { code: 'ERR_UNSUPPORTED', message: /type 'bert'.*use embed/ })
  await t.rejects(TextModel.load(folder, { contextLength: 401 }), { code: 'ERR_RANGE' })
  model.dispose()
  await t.rejects(model.embed('x'), { code: 'ERR_DISPOSED' })
})

t.test('files that are broken', async t => {
  const folder = await writeEncoderFolder(t.testdir(), { 'modules.json': [{ path: '' }] })
  await t.rejects(TextModel.load(folder, cpu), { code: 'ERR_FORMAT', message: /module 0 of .*modules\.json/ })
  writeFileSync(path.join(folder, 'modules.json'), '[')
  await t.rejects(TextModel.load(folder, cpu), { code: 'ERR_FORMAT', message: /modules\.json is no JSON/ })
  rmSync(path.join(folder, 'modules.json'))
  writeFileSync(path.join(folder, 'sentence_bert_config.json'), '{"max_seq_length": 0}')
  await t.rejects(TextModel.load(folder, cpu), { code: 'ERR_FORMAT', message: /max_seq_length/ })
})

t.test('decoders: the last token, or a mean', { skip: noLanguageData }, async t => {
  using model = await TextModel.load(dataPath('lm-golden', 'models', 'qwen3'), { ...cpu, cacheTokens: 2048 })
  const [last] = await model.embed('The keeper rings the bell.')
  t.ok(Math.abs(lengthOf(last!) - 1) < 1e-6)
  const [mean] = await model.embed('The keeper rings the bell.', { pooling: 'mean' })
  t.notSame(mean, last)
  const ids = Int32Array.from(model.tokenizer.encode('The keeper rings the bell.'))
  t.strictSame(await model.embed([ids, ids]), [last, last])
  await t.rejects(model.embed('x', { pooling: 'cls' }), { code: 'ERR_UNSUPPORTED' })
})
