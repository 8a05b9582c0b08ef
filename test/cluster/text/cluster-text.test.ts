// Language models on two and three nodes: the tokens and log probabilities of one, also when a node goes away in the middle.
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { type GenerationOptions, TextModel } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster, type ClusterTextOptions } from '#lib/cluster/cluster.js'
import { modelCosts } from '#lib/cluster/placement/model-costs.js'
import { checkQuestion } from '#lib/cluster/stages/questions.js'
import { StagedDecoder } from '#lib/cluster/text/staged-decoder.js'
import type { WeightStore } from '#lib/cluster/weights/weight-store.js'
import { Pacer } from '#lib/core/paced.js'
import { cutGraph } from '#lib/graph/rewrites/cut.js'
import { decoderCuts } from '#lib/text/architectures/decoder.js'
import { readModel } from '#lib/text/files/model-files.js'
import { LocalNodes } from '../../fixtures/cluster/local-nodes.js'
import { type TextOnNodes, textOnNodes } from '../../fixtures/cluster/text-on-nodes.js'
import { writeChatModel } from '../../fixtures/text/chat-model.js'
import { writeEncoderFolder } from '../../fixtures/text/encoder-folder.js'
import { dataPath, noLanguageData } from '../../fixtures/text/golden-data.js'

const folder = t.testdir({})
const names = ['one', 'two', 'three'] as const

const shape = { backend: 'cpu', threads: 1, cacheTokens: 1024, batchTokens: 64 } as const

const onNodes = (
  t: Test,
  nodes: LocalNodes,
  source: string,
  options: ClusterTextOptions,
): Promise<TextOnNodes> => textOnNodes(t, nodes, source, { ...shape, nodes: 3, ...options })

async function layersOf(source: string): Promise<number> {
  const { layers } = await modelCosts(source)
  return layers.length - 2
}

/** Pins of halves of a model of some layers. */
const halves = (layers: number): string[] => [
  `embedding-${Math.floor(layers / 2) - 1}=one`,
  `${Math.floor(layers / 2)}-head=two`,
]

const ids = (length: number, vocabulary: number, seed = 7): Int32Array =>
  Int32Array.from({ length }, (_, i) => (i * i * 31 + i * seed + 3) % vocabulary)

/** Several requests at a time, whose prompts and lengths differ. */
async function generateAll(model: TextModel, vocabulary: number): Promise<object[]> {
  const all: GenerationOptions[] = [
    { maxTokens: 12, temperature: 0, ignoreEnd: true, logprobs: 2 },
    { maxTokens: 20, ignoreEnd: true, temperature: 0.9, seed: 5, logprobs: 1 },
    { maxTokens: 1, temperature: 0, ignoreEnd: true, logprobs: 1 },
  ]
  return Promise.all(
    all.map(async (options, i) => {
      const generation = model.generate(ids(40 + 33 * i, vocabulary, i), options)
      const result = await generation.result()
      return { result, tokens: generation.generated }
    }),
  )
}

async function compare(t: Test, nodes: LocalNodes, source: string, options: object = {}): Promise<void> {
  using alone = await TextModel.load(source, { ...shape, ...options })
  const { text, events } = await onNodes(t, nodes, source, {
    pins: halves(await layersOf(source)),
    ...options,
  })
  t.equal(text.stages.length, 2)
  t.equal(events.filter(({ type }) => type === 'loaded').length, 2)
  const vocabulary = alone.tokenizer.vocabularySize
  t.strictSame(await generateAll(text.model, vocabulary), await generateAll(alone, vocabulary), 'texts')
  const long = ids(90, vocabulary)
  t.strictSame(
    await text.model.logProbabilities(long),
    await alone.logProbabilities(long),
    'log probabilities',
  )
  await text.dispose()
}

const models = {
  'lm-golden/models/mistral-window16': {},
  'lm-golden/models/mixtral': {},
  'lm-golden/models/gpt-oss-mxfp4': {},
  'lm-golden/models/gemma3': { cacheType: 'i8' },
  'lm-golden/gguf/llama-k.K_M.gguf': { activations: 'int8' },
  'llm/stories260K/gguf/stories260K-q4_0.gguf': { cacheType: 'f16' },
  'llm/stories260K/hf': {},
}

t.test('language models on several nodes', async t => {
  const nodes = await LocalNodes.start(folder, names)
  t.teardown(() => nodes.close())

  for (const [name, options] of Object.entries(models))
    await t.test(name, { skip: noLanguageData }, t =>
      compare(t, nodes, dataPath(...name.split('/')), options),
    )

  const chat = path.join(folder, 'chat')
  mkdirSync(chat)
  writeChatModel(chat)
  const prompt = 'The lighthouse keeper'
  const sampled = (seed: number): GenerationOptions => ({
    maxTokens: 60,
    temperature: 1,
    seed,
    ignoreEnd: true,
  })

  await t.test('a node fetches the matrices of its layers', { skip: noLanguageData }, async t => {
    for (const name of ['qwen3', 'llama.Q8_0.gguf', 'mixtral', 'gpt2', 'gpt-oss-mxfp4']) {
      const source = dataPath('lm-golden', name.endsWith('.gguf') ? 'gguf' : 'models', name)
      const { store } = nodes.node('one').stages
      const inChunks = {
        addFile: (file, given) => store.addFile(file, { ...given, chunkBytes: 4096 }),
      } as WeightStore
      const model = await readModel(source, new Pacer())
      const form = { blocks: 1, blockSize: 8, cacheType: 'f32', activations: 'bf16' } as const
      const staged = await StagedDecoder.open(source, model, form, inChunks)
      const ends = decoderCuts(staged.graph, [1, 2])
      const stages = cutGraph(staged.graph, ends)
      const sizes = stages.map((_, i) => {
        const { files } = staged.partsOf(stages, ends, i, new Map())
        return files.flatMap(({ ranges }) => ranges).reduce((sum, { begin, end }) => sum + end - begin, 0)
      })
      const { files } = staged.partsOf([staged.graph], [], 0, new Map())
      const whole = files.reduce((sum, { manifest }) => sum + manifest.bytes, 0)
      t.ok(sizes[1]! < 0.7 * whole, `${name}: ${sizes} of ${whole}`)
      const total = sizes.reduce((sum, size) => sum + size)
      // The first and the last stage may both need the table of the vocabulary.
      t.ok(total > whole && total < 1.3 * whole, `${name}: ${total} of ${whole}`)
    }
  })

  const pinned = (first: string, second: string): string[] => [`embedding-0=${first}`, `1-head=${second}`]

  await t.test('one that is not wanted any more ends, and the others go on', async t => {
    using alone = await TextModel.load(chat, shape)
    const { text } = await onNodes(t, nodes, chat, { pins: pinned('one', 'two') })
    const controller = new AbortController()
    const cancelled = text.model.generate(prompt, { ...sampled(4), signal: controller.signal })
    const other = text.model.generate(prompt.repeat(2), sampled(5)).result()
    let count = 0
    const iterated = (async () => {
      for await (const _ of cancelled.tokens()) if (++count === 5) controller.abort(new Error('not wanted'))
    })()
    await t.rejects(iterated, /not wanted/)
    t.ok(count < 60)
    t.strictSame((await other).ids, (await alone.generate(prompt.repeat(2), sampled(5)).result()).ids)
    const late = text.model.generate(prompt, sampled(6)).result()
    const ended = t.rejects(late, { code: 'ERR_DISPOSED' })
    await text.dispose()
    await ended
    await text.dispose()
  })

  await t.test('a node that returns in time keeps its stage, and a link that breaks its cache', async t => {
    using alone = await TextModel.load(chat, shape)
    const { text, events } = await onNodes(t, nodes, chat, { pins: pinned('one', 'two'), graceMs: 20_000 })
    const generation = text.model.generate(prompt, sampled(8))
    let count = 0
    for await (const _ of generation.tokens())
      if (++count === 20) {
        await nodes.end('two')
        setTimeout(() => nodes.again('two').catch(error => t.fail(error.message)), 100)
      }
    const { ids } = await generation.result()
    t.strictSame(ids, (await alone.generate(prompt, sampled(8)).result()).ids)
    const kinds = events.map(({ type }) => type)
    t.ok(kinds.includes('returned') && !kinds.includes('moved'), `${kinds}`)
  })

  await t.test('what is refused', async t => {
    const one = new Cluster(nodes.node('one'))
    const refused = (source: string, options: object, expected: { code?: string; message: RegExp }) =>
      t.rejects(one.loadText(source, { ...shape, nodes: 3, waitMs: 100, ...options }), expected)
    await refused(path.join(folder, 'nothing'), {}, { code: 'ERR_IO', message: /nothing/ })
    await refused(
      chat,
      { contextLenght: 5 },
      { code: 'ERR_ARGUMENT', message: /contextLenght.*contextLength/ },
    )
    await refused(chat, { cacheType: 'f33' }, { code: 'ERR_ARGUMENT', message: /cacheType.*f33/ })
    await refused(chat, { contextLength: 5000 }, { code: 'ERR_RANGE', message: /5000.*512/ })
    await refused(chat, { pins: ['embedding-9=one'] }, { code: 'ERR_ARGUMENT', message: /embedding-9=one/ })
    await refused(chat, { cacheTokens: 2 ** 40 }, { message: /needs .* free/ })
    await refused(chat, { nodes: 9 }, { code: 'ERR_IO', message: /3 of 9 nodes/ })
    const form = { blocks: 1, blockSize: 8, cacheType: 'f32', activations: 'f32' } as const
    const { store } = nodes.node('one').stages
    const staged = await StagedDecoder.open(chat, await readModel(chat, new Pacer()), form, store)
    const parts = staged.partsOf([staged.graph], [], 0, new Map())
    const asked = (decoder: object): object =>
      checkQuestion({ op: 'load', stage: 'a', options: {}, parts: { ...parts, decoder } })
    t.match(asked(form), { parts: { decoder: form } })
    for (const wrong of [{ blocks: -1 }, { blockSize: 2 ** 40 }, { cacheType: 'f33' }, { activations: 1 }])
      t.throws(() => asked({ ...form, ...wrong }), { code: 'ERR_FORMAT' }, JSON.stringify(wrong))
    const encoder = path.join(folder, 'encoder')
    await writeEncoderFolder(encoder)
    await refused(encoder, {}, { code: 'ERR_UNSUPPORTED', message: /encoder makes vectors of texts/ })
  })

  await t.test('a text goes on when a node leaves, and when it comes back', async t => {
    using alone = await TextModel.load(chat, shape)
    const { text, events } = await onNodes(t, nodes, chat, {
      pins: pinned('one', 'three'),
      graceMs: 100,
    })
    const requests = [1, 2, 3].map(seed => ({ input: prompt.repeat(seed), options: sampled(seed) }))
    const expected = await Promise.all(
      requests.map(({ input, options }) => alone.generate(input, options).result()),
    )
    const generations = requests.map(({ input, options }) => text.model.generate(input, options))
    const results = generations.map(generation => generation.result())
    let count = 0
    for await (const _ of generations[0]!.tokens()) {
      count++
      if (count === 20) await nodes.end('three')
    }
    const found = await Promise.all(results)
    t.strictSame(
      found.map(result => result.ids),
      expected.map(result => result.ids),
    )
    t.ok(
      events.some(({ type }) => type === 'moved'),
      events.map(({ type }) => type).join(),
    )
    await nodes.again('three')
    t.strictSame((await text.model.generate(prompt, sampled(1)).result()).ids, expected[0]!.ids)
  })
})
