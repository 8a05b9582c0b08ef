// Model.trim and TextModel.trim: memory falls, and results are the same bit for bit.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { GraphBuilder, Model, Tensor, TextModel } from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Bytes of arrays that are alive. */
async function arrayBytes(): Promise<number> {
  for (let i = 0; i < 3; i++) {
    collect()
    await new Promise<void>(resolve => setImmediate(resolve))
  }
  return process.memoryUsage().arrayBuffers
}

const width = 256

/** Two products with softmaxes between them, on any number of rows. */
function wideGraph() {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', ['rows', width])
  const weight = (name: string, seed: number) => g.initializer(name, Tensor.random([width, width], { seed }))
  const hidden = g.add('Softmax', [g.add('MatMul', [x, weight('a', 1)])], { axis: 0 })
  const again = g.add('Softmax', [g.add('MatMul', [hidden, weight('b', 2)])], { axis: -1 })
  g.output(g.add('ReduceSum', [again, Tensor.from([0n])], { keepdims: 0 }), 'y')
  return g.build()
}

for (const backend of backends)
  t.test(`plans and their memory go on ${backend}`, async t => {
    const rows = backend === 'js' ? 100 : 8000
    using model = await Model.fromGraph(wideGraph(), { backend })
    const feeds = (count: number) => ({ x: Tensor.random([count, width], { seed: count }) })
    const run = async (count: number) => (await model.run<{ y: 'f32' }>(feeds(count))).y
    const before = [await run(rows), await run(17), await run(1)]
    const [stats, held] = [model.stats, await arrayBytes()]
    t.ok(stats.plans >= 3)
    await model.trim()
    t.equal(model.stats.plans, 0)
    t.equal(model.stats.compilations, stats.compilations, 'what was compiled stays')
    const left = await arrayBytes()
    const fell = held - left
    t.ok(fell > rows * width * 4, `${fell} bytes of ${held} went`)
    t.same([await run(rows), await run(17), await run(1)], before, 'the same, bit for bit')
    t.equal(model.stats.compilations, stats.compilations)
    const running = run(rows)
    const trimmed = model.trim()
    t.same(await running, before[0], 'a run that was asked for comes first')
    await trimmed
    await model.trim()
  })

t.test('a model that was disposed is not trimmed', async t => {
  const model = await Model.fromGraph(wideGraph(), { backend: 'js' })
  model.dispose()
  await t.rejects(model.trim(), { code: 'ERR_DISPOSED' })
})

t.test('states stay, their plans go', async t => {
  const g = new GraphBuilder()
  const [x, past] = [g.input('x', 'f32', ['n', 4]), g.input('past', 'f32', ['m', 4])]
  const present = g.add('Concat', [past, x], { axis: 0 })
  g.output(present, 'present')
  g.output(g.add('ReduceSum', [present, Tensor.from([0n])], { keepdims: 0 }), 'sum')
  for (const backend of backends) {
    using model = await Model.fromGraph(g.build(), { backend })
    using plain = model.bindState()
    using trimmed = model.bindState()
    for (let i = 1; i < 6; i++) {
      const feeds = { x: Tensor.random([i, 4], { seed: i }) }
      const wanted = await plain.run(feeds)
      t.same(await trimmed.run(feeds), wanted, `run ${i} on ${backend}`)
      await trimmed.trim()
      await model.trim()
    }
    t.equal(trimmed.length, 15)
  }
})

t.test('a language model forgets what no text uses, and says the same again', async t => {
  const folder = t.testdir()
  writeChatModel(folder)
  const model = await TextModel.load(folder, { backend: 'js', cacheTokens: 16_384 })
  const options = { maxTokens: 12, temperature: 1, seed: 7 }
  const text = async (prompt: string) => (await model.generate(prompt, options).result()).text
  const prompt = 'a prompt that is longer than a block of the cache, so that it would be found again'
  const first = await text(prompt)
  const held = await arrayBytes()
  await model.trim()
  const fell = held - (await arrayBytes())
  t.ok(fell > 16_384 * 2 * 2 * 8 * 4, `${fell} bytes of ${held} went: more than the keys of a layer`)
  t.equal(await text(prompt), first)
  t.equal(await text(prompt), first, 'found again')
  const running = text(prompt)
  await model.trim()
  const [during, beside] = await Promise.all([running, text('another one')])
  t.equal(during, first, 'trimmed while it is generated')
  t.equal(await text('another one'), beside)
  model.dispose()
  await t.rejects(model.trim(), { code: 'ERR_DISPOSED' })
})
