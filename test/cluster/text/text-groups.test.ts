// Language models whose layers nodes share: the tokens of one machine, within rounding, also when a node goes away in the middle.
import { statSync } from 'node:fs'
import path from 'node:path'
import { type GenerationOptions, TextModel } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster, type ClusterTextOptions } from '#lib/cluster/cluster.js'
import { worldWithin } from '#lib/cluster/stages/group-plans.js'
import type { PipelineEvent } from '#lib/cluster/stages/pipeline.js'
import { writeRandomLlama } from '../../../bench/random-llama.js'
import { backends } from '../../fixtures/backends.js'
import { LocalNodes } from '../../fixtures/cluster/local-nodes.js'
import { type TextOnNodes, textOnNodes } from '../../fixtures/cluster/text-on-nodes.js'
import { writeChatModel } from '../../fixtures/text/chat-model.js'
import { dataPath, noLanguageData } from '../../fixtures/text/golden-data.js'

const folder = t.testdir({})
const skip = backends.includes('cpu') ? false : 'no native addon here'
const shape = { backend: 'cpu', threads: 1, cacheTokens: 1024, batchTokens: 64 } as const
/** Nodes of one process wait for each other: their links are as slow as the test machine is busy. */
const anyLink = { ...shape, maxRttMs: 10_000 }

const onNodes = (
  t: Test,
  nodes: LocalNodes,
  source: string,
  options: ClusterTextOptions,
): Promise<TextOnNodes> => textOnNodes(t, nodes, source, { ...anyLink, ...options })

const idsOf = (nodes: LocalNodes, ...names: string[]): string[] =>
  names.map(name => nodes.node(name).identity.nodeId)

const greedy: GenerationOptions = { maxTokens: 24, temperature: 0, ignoreEnd: true }

/** Texts at the same time, whose prompts and lengths differ: their tokens. */
async function tokensOf(model: TextModel): Promise<number[][]> {
  const { vocabularySize } = model.tokenizer
  const ids = (length: number): Int32Array =>
    Int32Array.from({ length }, (_, i) => (i * i * 31 + i * 7 + length) % vocabularySize)
  const results = [70, 9, 40].map((length, i) =>
    model.generate(ids(length), { ...greedy, maxTokens: 8 + 8 * i }).result(),
  )
  return (await Promise.all(results)).map(({ ids }) => [...ids])
}

/** max|a − b| / max|b| of the log probabilities of a text. */
async function distanceOf(model: TextModel, alone: TextModel): Promise<number> {
  const { vocabularySize } = alone.tokenizer
  const text = Int32Array.from({ length: 90 }, (_, i) => (i * i * 31 + i * 7 + 3) % vocabularySize)
  const [given, expected] = await Promise.all([model, alone].map(each => each.logProbabilities(text)))
  const errors = expected!.logprobs.map((value, i) => Math.abs(given!.logprobs[i]! - value))
  return Math.max(...errors) / Math.max(...expected!.logprobs.map(Math.abs))
}

const exact = 1e-5
/** Sums in another order round some keys and values to the neighbour: half a step of f16, and of bytes up to ±127. */
const rounded = { f16: 2 ** -11, i8: 1 / 254 }

const models: readonly (readonly [name: string, options: ClusterTextOptions, tolerance: number])[] = [
  ['lm-golden/models/mixtral', {}, exact],
  ['lm-golden/models/gpt2', { cacheType: 'i8' }, rounded.i8],
  ['lm-golden/models/gpt-oss-mxfp4', {}, exact],
  ['lm-golden/gguf/llama-k.K_M.gguf', { activations: 'int8' }, exact],
  ['llm/stories260K/gguf/stories260K-q4_0.gguf', { cacheType: 'f16' }, rounded.f16],
]

const prompt = 'The lighthouse keeper'

t.test('two nodes', { skip }, async t => {
  const nodes = await LocalNodes.start(path.join(folder, 'pair'), ['one', 'two'])
  t.teardown(() => nodes.close())

  for (const [name, options, tolerance] of models)
    await t.test(`${name}, shared by heads`, { skip: noLanguageData }, async t => {
      const source = dataPath(...name.split('/'))
      using alone = await TextModel.load(source, { ...shape, ...(options as object) })
      const { text } = await onNodes(t, nodes, source, { strategy: 'tensor', nodes: 2, ...options })
      t.match(text.stages, [{ group: idsOf(nodes, 'one', 'two'), layers: /^embedding, layers 0-\d+, head$/ }])
      t.strictSame(await tokensOf(text.model), await tokensOf(alone))
      const distance = await distanceOf(text.model, alone)
      t.ok(distance <= tolerance, `${distance}`)
      await text.dispose()
    })

  const chat = path.join(folder, 'chat')
  writeChatModel(chat)

  await t.test('a session, and vectors of texts', async t => {
    using alone = await TextModel.load(chat, shape)
    const { text } = await onNodes(t, nodes, chat, { strategy: 'tensor', nodes: 2 })
    const answers = async (model: TextModel): Promise<string[]> => {
      const session = model.session({ generation: greedy })
      const first = await session.send('Who is there?').result()
      const second = await session.send('And now?').result()
      return [first.text, second.text]
    }
    t.strictSame(await answers(text.model), await answers(alone))
    const [given, expected] = await Promise.all([text.model, alone].map(model => model.embed(prompt)))
    const distance = Math.max(...expected![0]!.map((value, i) => Math.abs(value - given![0]![i]!)))
    t.ok(distance <= exact, `${distance}`)
  })

  await t.test('a rank fetches the chunks that hold its part of the weights', async t => {
    const source = path.join(folder, 'wide.gguf')
    const sizes = {
      hidden: 512,
      inner: 1024,
      layers: 1,
      heads: 4,
      kvHeads: 2,
      headSize: 64,
      vocabulary: 32_000,
    }
    await writeRandomLlama(source, 'Q8_0', sizes)
    const { size } = statSync(source)
    using alone = await TextModel.load(source, shape)
    const { text, events } = await onNodes(t, nodes, source, { strategy: 'tensor', nodes: 2 })
    const [{ bytes = 0, fetched = 0 }] = events.filter(({ type }) => type === 'loaded') as [PipelineEvent]
    t.ok(bytes < 1.6 * size, `both read ${bytes} of ${size} bytes`)
    t.ok(fetched > 0 && fetched < 0.8 * size, `${fetched} of ${size} bytes`)
    t.strictSame(await tokensOf(text.model), await tokensOf(alone))
    const distance = await distanceOf(text.model, alone)
    t.ok(distance <= exact, `${distance}`)
  })

  await t.test('what is refused', async t => {
    const refused = (options: ClusterTextOptions, expected: { code: string; message: RegExp }) =>
      t.rejects(new Cluster(nodes.node('one')).loadText(chat, { ...anyLink, nodes: 2, ...options }), expected)
    const slow = {
      code: 'ERR_UNSUPPORTED',
      message: /link between one and two takes .* ms .* needs 0.000001/,
    }
    await refused({ strategy: 'tensor', maxRttMs: 1e-6 }, slow)
    await refused({ strategy: 'tensor', backend: 'js' }, { code: 'ERR_UNSUPPORTED', message: /'js'/ })
    const full = { code: 'ERR_OUT_OF_MEMORY', message: /a part of the model needs .* GB/ }
    await refused({ strategy: 'tensor', cacheTokens: 2 ** 40 }, full)
  })
})

t.test('three nodes', { skip }, async t => {
  const nodes = await LocalNodes.start(path.join(folder, 'three'), ['one', 'two', 'three'])
  t.teardown(() => nodes.close())
  const [pair, six] = ['pair-of-heads', 'six-heads'].map(name => path.join(folder, name)) as [string, string]
  writeChatModel(pair)
  writeChatModel(six, { heads: 6, kvHeads: 6 })

  await t.test('heads that they do not divide', async t => {
    const refused = new Cluster(nodes.node('one')).loadText(pair, {
      ...anyLink,
      strategy: 'tensor',
      nodes: 3,
    })
    const message = /3 nodes cannot share 4 heads with 2 of keys and values.*embedding-head=/
    await t.rejects(refused, { code: 'ERR_UNSUPPORTED', message })
    const costs = (heads: number, kvHeads: number) =>
      ({ kind: 'language', divisible: { heads, kvHeads, hiddenSize: 64 } }) as never
    t.equal(worldWithin(costs(8, 4), 3), 2)
    t.equal(worldWithin(costs(8, 1), 3), 1)
    t.equal(worldWithin(costs(32, 8), 8), 8)
    t.equal(worldWithin(costs(8, 4), 0), 0, 'nodes without devices')
    t.equal(worldWithin({ kind: 'graph' } as never, 3), 3)
  })

  await t.test('a group in a pipeline', async t => {
    using alone = await TextModel.load(pair, shape)
    const pins = ['embedding-0=one+two', '1-head=three']
    const { text } = await onNodes(t, nodes, pair, { strategy: 'hybrid', nodes: 3, pins, graceMs: 100 })
    t.match(text.stages, [
      { group: idsOf(nodes, 'one', 'two'), layers: 'embedding, layer 0' },
      { nodeId: idsOf(nodes, 'three')[0]!, layers: 'layer 1, head' },
    ])
    t.strictSame(await tokensOf(text.model), await tokensOf(alone))
    t.ok((await distanceOf(text.model, alone)) <= exact)
    const generation = text.model.generate(prompt, { ...greedy, maxTokens: 40 })
    let count = 0
    for await (const _ of generation.tokens()) if (++count === 10) await nodes.end('two')
    const expected = await alone.generate(prompt, { ...greedy, maxTokens: 40 }).result()
    t.strictSame((await generation.result()).ids, expected.ids, 'a rank left')
    t.ok(text.stages.every(({ nodeId, group = [nodeId] }) => !group.includes(idsOf(nodes, 'two')[0]!)))
    await text.dispose()
    await nodes.again('two')
  })

  await t.test('texts go on when a rank leaves, and on the last node', async t => {
    using alone = await TextModel.load(six, shape)
    const { text, events } = await onNodes(t, nodes, six, { strategy: 'tensor', nodes: 3, graceMs: 100 })
    t.equal(text.stages[0]!.group?.length, 3)
    const inputs = [prompt, `${prompt} sees`, prompt.repeat(3)]
    const long = { ...greedy, maxTokens: 60 }
    const expected = await Promise.all(inputs.map(input => alone.generate(input, long).result()))
    const generations = inputs.map(input => text.model.generate(input, long))
    const results = generations.map(generation => generation.result())
    let count = 0
    for await (const _ of generations[0]!.tokens()) {
      count++
      if (count === 10) await nodes.end('three')
      if (count === 30) await nodes.end('two')
    }
    t.strictSame(
      (await Promise.all(results)).map(({ ids }) => ids),
      expected.map(({ ids }) => ids),
    )
    t.match(
      events.filter(({ type }) => type === 'lost').map(event => event.nodes),
      [['three'], ['two']],
    )
    t.match(text.stages, [{ nodeId: idsOf(nodes, 'one')[0]!, group: undefined }])
  })
})
