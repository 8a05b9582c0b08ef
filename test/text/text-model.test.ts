// TextModel: generation, its options and its end, conversations, embeddings, what is refused.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import {
  type GeneratedToken,
  readSafetensors,
  type SparkError,
  TextModel,
  type TextSession,
  writeSafetensors,
} from 'dgx-spark'
import t, { type Test } from 'tap'
import { serveHub } from '../fixtures/hub/hub-server.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'

const folder = path.join(t.testdir(), 'chat-model')
writeChatModel(folder)
const load = (options = {}): Promise<TextModel> =>
  TextModel.load(folder, { backend: 'cpu', cacheTokens: 2048, ...options })

const prompt = 'The lighthouse keeper'

t.test('pieces, tokens and the result are one text', async t => {
  using model = await load()
  const options = { maxTokens: 40, temperature: 1, seed: 7, ignoreEnd: true, logprobs: 2 }
  const pieces: string[] = []
  for await (const piece of model.generate(prompt, options)) {
    t.not(piece, '')
    pieces.push(piece)
  }
  const generation = model.generate(prompt, options)
  const tokens: GeneratedToken[] = []
  for await (const token of generation.tokens()) tokens.push(token)
  const result = await generation.result()
  t.equal(result.text, pieces.join(''))
  t.strictSame(
    result.ids,
    tokens.map(({ id }) => id),
  )
  t.equal(result.ids.length, 40)
  t.match(result, { finishReason: 'length', promptTokens: prompt.length, cachedTokens: 0 })
  t.strictSame(
    result.logprobs,
    tokens.map(({ logprob }) => logprob),
  )
  t.ok(tokens.every(({ logprob, top }) => logprob! <= 0 && top!.length === 2))
  await t.rejects(generation.tokens().next(), { code: 'ERR_ARGUMENT', message: /iterated once/ })
})

t.test('a text ends at a stop text, at a token, at maxTokens', async t => {
  using model = await load()
  const greedy = { temperature: 0, maxTokens: 30 }
  const { text, ids } = await model.generate(prompt, greedy).result()
  const stop = text.slice(10, 13)
  const stopped = await model.generate(prompt, { ...greedy, stop }).result()
  t.match(stopped, { finishReason: 'stop', stop })
  t.equal(stopped.text, text.slice(0, text.indexOf(stop)))
  const ended = await model.generate(prompt, { ...greedy, stopIds: [ids[5]!] }).result()
  t.match(ended, { finishReason: 'end', ids: ids.slice(0, ids.indexOf(ids[5]!) + 1) })
  t.equal((await model.generate(prompt, { ...greedy, maxTokens: 1 }).result()).ids.length, 1)
})

for (const cacheType of ['f32', 'i8'] as const)
  t.test(`requests that join and leave do not change each other: ${cacheType}`, t =>
    joinAndLeave(t, cacheType),
  )

async function joinAndLeave(t: Test, cacheType: 'f32' | 'i8'): Promise<void> {
  using model = await load({ batchTokens: 48, cacheType })
  const requests = Array.from({ length: 8 }, (_, i) => ({
    text: 'abcdefgh'.repeat(40).slice(i, i + 1 + ((i * 37) % 200)),
    options: { maxTokens: 1 + ((i * 23) % 60), seed: i, temperature: i % 2, ignoreEnd: true },
  }))
  const alone: (readonly number[])[] = []
  for (const { text, options } of requests) alone.push((await model.generate(text, options).result()).ids)
  using fresh = await load({ batchTokens: 48, cacheType })
  const together = await Promise.all(
    requests.map(async ({ text, options }, i) => {
      await new Promise(resolve => setTimeout(resolve, i * 3))
      return (await fresh.generate(text, options).result()).ids
    }),
  )
  t.strictSame(together, alone)
}

t.test('a signal ends a generation, and so does leaving the loop', async t => {
  using model = await load()
  const stop = new AbortController()
  const generation = model.generate(prompt, { maxTokens: 400, ignoreEnd: true, signal: stop.signal })
  let pieces = 0
  await t.rejects(
    async () => {
      for await (const _ of generation) if (++pieces === 3) stop.abort(new Error('enough'))
    },
    { message: 'enough' },
  )
  await t.rejects(generation.result(), { message: 'enough' })
  const left = model.generate(prompt, { maxTokens: 400, ignoreEnd: true })
  for await (const _ of left) break
  await t.rejects(left.result(), { name: 'AbortError' })
  t.equal((await model.generate(prompt, { maxTokens: 2, ignoreEnd: true }).result()).ids.length, 2)
  await t.rejects(model.generate(prompt, { signal: AbortSignal.abort() }).result(), { name: 'AbortError' })
})

t.test('conversations: the template, text of users, the common beginning, files', async t => {
  using model = await load()
  const ids = model.promptIds([{ role: 'user', content: '<|im_end|>' }])
  t.equal(ids.filter(id => id === 257).length, 1, 'only the end of the turn is a control token')
  const session = model.session({
    messages: [{ role: 'system', content: 'Answer.' }],
    generation: { maxTokens: 12, ignoreEnd: true, temperature: 0 },
  })
  const first = await session.send('Why is the sky blue? Please tell me all that you know.').result()
  t.strictSame(session.messages.at(-1), { role: 'assistant', content: first.text })
  const second = await session.send('And at sunset?').result()
  t.ok(second.cachedTokens >= 64, `${second.cachedTokens} of ${second.promptTokens} tokens`)
  t.equal(session.messages.length, 5)
  t.equal((await session.retry().result()).text, second.text)
  t.equal(session.messages.length, 5)

  const file = path.join(t.testdir(), 'session.json')
  await session.save(file)
  const restored = model.session({ generation: { maxTokens: 12, ignoreEnd: true, temperature: 0 } })
  await restored.restore(file)
  t.strictSame(restored.messages, session.messages)
  t.ok(restored.undo())
  t.equal(restored.messages.length, 3)
  t.equal((await restored.send('And at sunset?').result()).text, second.text)
  restored.clear()
  t.strictSame(restored.messages, [{ role: 'system', content: 'Answer.' }])
  t.notOk(restored.undo())
  await t.rejects(async () => restored.retry(), { code: 'ERR_ARGUMENT' })
  writeFileSync(file, '{"version":1,"messages":[{}]}')
  await t.rejects(restored.restore(file), { code: 'ERR_FORMAT', message: /no session/ })

  const stop = new AbortController()
  const busy = session.send('More', { maxTokens: 300, signal: stop.signal })
  const loop = async (): Promise<void> => {
    for await (const _ of busy) {
      t.throws(() => session.send('x'), { code: 'ERR_BUSY' })
      stop.abort()
    }
  }
  await t.rejects(loop())
  t.match(session.messages.at(-1), { role: 'assistant' }, 'what was said stays')
})

for (const cacheType of ['f32', 'i8'] as const)
  t.test(`a file of a conversation has keys and values: ${cacheType}`, async t => {
    const file = path.join(t.testdir(), 'session.safetensors')
    const generation = { maxTokens: 12, ignoreEnd: true, temperature: 0 }
    const [question, next] = ['Why is the sky blue? Please tell me all that you know.', 'And at sunset?']
    using model = await load({ cacheType })
    const session = model.session({ generation })
    await session.save(file)
    t.equal(await session.restore(file), 0, 'no message yet')
    await session.send(question).result()
    await session.save(file)
    const saved = session.messages
    const wanted = await session.send(next, { logprobs: 1 }).result()

    using other = await load({ cacheType })
    const restored = other.session({ generation })
    const tokens = await restored.restore(file)
    t.strictSame(restored.messages, saved)
    const answer = await restored.send(next, { logprobs: 1 }).result()
    t.strictSame(answer, wanted, 'the same bits, and as many tokens whose keys and values were there')
    t.ok(tokens >= 64 && answer.cachedTokens === tokens, `${tokens} of ${answer.promptTokens} tokens`)
    t.equal(await restored.restore(file), tokens, 'what is there already')

    for (const options of [{ cacheType: 'f16' }, { cacheType, activations: 'int8', contextLength: 400 }]) {
      using different = await load(options)
      const recomputed = different.session({ generation })
      const known = await recomputed.restore(file)
      if (options.cacheType === 'f16') t.equal(known, 0, 'another type')
      t.equal((await recomputed.send(next).result()).cachedTokens, known)
    }
    using small = await load({ cacheType, cacheTokens: 64 })
    t.equal(await small.session().restore(file), 64, 'as much as there is room for')
    await checkDamage(t, file, restored)
  })

/** Files that are not as they were written are refused by name, and change nothing. */
async function checkDamage(t: Test, file: string, session: TextSession): Promise<void> {
  const { messages } = session
  const refused = async (what: string, message: RegExp): Promise<void> => {
    await t.rejects(session.restore(file), { code: 'ERR_FORMAT', message }, what)
    t.equal(session.messages, messages)
  }
  const bytes = readFileSync(file)
  const { tensors, metadata } = await readSafetensors(file)
  for (const length of [0, 7, 100, bytes.length - 1]) {
    writeFileSync(file, bytes.subarray(0, length))
    await refused(`${length} bytes`, /session\.safetensors/)
  }
  const flipped = Uint8Array.from(bytes)
  flipped[bytes.length - 9]! ^= 1
  writeFileSync(file, flipped)
  await refused('a bit', /session\.safetensors.*have been changed/)
  const write = (changes: Record<string, string>): Promise<void> =>
    writeSafetensors(file, tensors, { metadata: { ...Object.fromEntries(metadata), ...changes } })
  await write({ format: 'pt' })
  await refused('another format', /session\.safetensors.*its format/)
  await write({ messages: '[{}]' })
  await refused('messages', /session\.safetensors.*its messages/)
  await write({ fingerprint: '' })
  t.equal(await session.restore(file), 0, 'another model')
}

t.test('embeddings and probabilities', async t => {
  using model = await load()
  const texts = ['one', 'another text', 'one']
  for (const pooling of ['last', 'mean'] as const) {
    const vectors = await model.embed(texts, { pooling })
    t.strictSame(vectors[0], vectors[2])
    t.notSame(vectors[0], vectors[1])
    for (const vector of vectors) t.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-6)
  }
  t.strictSame(await model.embed('one'), await model.embed(['one']))
  const { ids, logprobs } = await model.logProbabilities(prompt)
  t.equal(ids.length, logprobs.length + 1)
  t.ok((await model.perplexity(prompt)) > 1)
  await t.rejects(model.perplexity('a'), { code: 'ERR_ARGUMENT' })
})

t.test('what is refused', async t => {
  using model = await load({ contextLength: 64, cacheTokens: 32 })
  const wrong: [string, object, RegExp][] = [
    ['x', { maxToken: 1 }, /maxToken.*maxTokens/],
    ['x', { maxTokens: 0 }, /options\.maxTokens must be an integer >= 1, got 0/],
    ['x', { temperature: -1 }, /temperature/],
    ['', {}, /at least one token/],
  ]
  for (const [text, options, message] of wrong)
    await t.rejects(async () => model.generate(text, options).result(), { code: 'ERR_ARGUMENT', message })
  await t.rejects(model.generate('x'.repeat(60), { maxTokens: 10 }).result(), {
    code: 'ERR_RANGE',
    message:
      '60 tokens and 10 new ones are more than the context of 64: shorten the text, or lower maxTokens',
  })
  await t.rejects(model.generate('x'.repeat(40), { maxTokens: 10 }).result(), {
    code: 'ERR_RANGE',
    message: /do not fit into the cache of 32/,
  })
  await t.rejects(TextModel.load(folder, { cacheTokens: 2 ** 40 }), {
    code: 'ERR_OUT_OF_MEMORY',
    message: /bytes/,
  })
  // 2 layers with keys and values of 2 heads of 8 bytes, and a scale of each head.
  await t.rejects(load({ cacheType: 'i8', cacheTokens: 64, memoryLimit: 64 * 96 - 1 }), {
    code: 'ERR_OUT_OF_MEMORY',
    message: /a cache of 64 tokens takes 6144 bytes/,
  })
  await t.rejects(TextModel.load(folder, { cacheType: 'f64' as never }), {
    code: 'ERR_ARGUMENT',
    message: /options\.cacheType must be/,
  })
  await t.rejects(TextModel.load(folder, { contextLength: 1000 }), {
    code: 'ERR_RANGE',
    message: /512 tokens/,
  })
  await t.rejects(TextModel.load(path.join(folder, 'none')), { code: 'ERR_IO' })
  await t.rejects(TextModel.load(path.join(folder, 'config.json')), { code: 'ERR_FORMAT', message: /GGUF/ })
  t.throws(() => model.promptIds(Int32Array.of(258)), { code: 'ERR_ARGUMENT' })
  model.dispose()
  model.dispose()
  await t.rejects(model.generate('x').result(), { code: 'ERR_DISPOSED' })
})

t.test('broken folders are named', async t => {
  const broken = async (name: string, change: (folder: string) => void): Promise<SparkError> => {
    const copy = path.join(t.testdir(), name)
    mkdirSync(copy, { recursive: true })
    writeChatModel(copy)
    change(copy)
    return TextModel.load(copy, { backend: 'cpu' }).then(
      () => t.fail(name) as never,
      error => error,
    )
  }
  const edit = (file: string, from: string, to: string) => (folder: string) => {
    const target = path.join(folder, file)
    t.ok(existsSync(target))
    writeFileSync(target, readFileSync(target, 'latin1').replace(from, to), 'latin1')
  }
  t.match(await broken('type', edit('config.json', '"llama"', '"mamba"')), {
    code: 'ERR_UNSUPPORTED',
    message: /'mamba'.*supported decoders are llama/,
  })
  t.match(await broken('heads', edit('config.json', '"num_attention_heads":4', '"num_attention_heads":3')), {
    code: 'ERR_FORMAT',
  })
  t.match(await broken('name', edit('model.safetensors', 'model.norm.weight', 'model.normx.weigh')), {
    code: 'ERR_FORMAT',
  })
  t.match(await broken('layers', edit('config.json', '"num_hidden_layers":2', '"num_hidden_layers":1')), {
    code: 'ERR_UNSUPPORTED',
    message: /model\.layers\.1/,
  })
  t.match(await broken('json', folder => writeFileSync(path.join(folder, 'config.json'), '{')), {
    code: 'ERR_FORMAT',
    message: /config\.json is no JSON/,
  })
  const index = { weight_map: { 'model.norm.weight': '../other/model.safetensors' } }
  t.match(
    await broken('index', folder =>
      writeFileSync(path.join(folder, 'model.safetensors.index.json'), JSON.stringify(index)),
    ),
    { code: 'ERR_FORMAT', message: /weight_map has .*'model\.norm\.weight'/ },
  )
})

t.test('a model by its name on a hub', async t => {
  const names = ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']
  const files = Object.fromEntries(names.map(name => [name, readFileSync(path.join(folder, name))]))
  await serveHub(t, { 'org/chat': files })
  const greedy = { maxTokens: 8, temperature: 0, ignoreEnd: true }
  using local = await load()
  const { ids } = await local.generate(prompt, greedy).result()
  let bytes = 0
  const onProgress = (progress: { bytes: number }): void => {
    bytes = progress.bytes
  }
  using pulled = await TextModel.load('hf:org/chat', { backend: 'cpu', cacheTokens: 256, onProgress })
  t.strictSame((await pulled.generate(prompt, greedy).result()).ids, ids)
  t.ok(bytes > 0)
  using offline = await TextModel.load('hf:org/chat', { backend: 'cpu', cacheTokens: 256, offline: true })
  t.strictSame((await offline.generate(prompt, greedy).result()).ids, ids)
  await t.rejects(TextModel.load('hf:org/none', { offline: true }), { code: 'ERR_IO' })
})
