// Layers that several nodes share: what one machine gives, within rounding, also when a node goes away in the middle.
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster, type ClusterLoadOptions } from '#lib/cluster/cluster.js'
import type { Pipeline, PipelineEvent } from '#lib/cluster/stages/pipeline.js'
import { backends } from '../../fixtures/backends.js'
import { relativeDistance } from '../../fixtures/cluster/ranks.js'
import { StageNodes } from '../../fixtures/cluster/stage-nodes.js'
import { languageModelFile, noModels } from '../../fixtures/models/onnx-models.js'

type Values = Record<string, Tensor<never>>

const folder = t.testdir({})
const nodes = new StageNodes(folder)
const skip = backends.includes('cpu') ? false : 'no native addon here'
/** Nodes of one process wait for each other: their links are as slow as the test machine is busy. */
const anyLink = { maxRttMs: 10_000, backend: 'cpu' as const, threads: 1 }

/** Weights whose products are about as large as what they are multiplied with. */
function weights(shape: number[], terms: number, seed: number): Tensor {
  const tensor = Tensor.random(shape, { seed, distribution: 'normal' })
  const data = tensor.data as Float32Array
  for (let i = 0; i < data.length; i++) data[i]! /= Math.sqrt(terms)
  return tensor
}

async function save(g: GraphBuilder, file: string): Promise<string> {
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  const place = path.join(folder, file)
  await model.save(place, { externalData: true })
  return place
}

/** Layers up and down with a state between: h += down · tanh(up · h + state), and the mean of the inner rows is the next state. */
async function writeLayers(layers: number, width: number, inner: number): Promise<string> {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', ['n', width])
  for (let i = 0; i < layers; i++) {
    const state = g.input(`s${i}`, 'f32', [1, width])
    const up = g.initializer(`up${i}`, weights([width, inner], width, 2 * i + 1))
    const down = g.initializer(`down${i}`, weights([inner, width], inner, 2 * i + 2))
    const a = g.add('Tanh', [g.add('MatMul', [g.add('Add', [h, state]), up])])
    h = g.add('Tanh', [g.add('MatMul', [a, down])])
    g.output(g.add('ReduceMean', [h, Tensor.from([0n])], { keepdims: 1 }), `next_s${i}`)
  }
  g.output(h, 'y')
  return save(g, `layers-${layers}.onnx`)
}

/** Two convolutions of odd numbers of channels, and a classifier. */
async function writeConvolutions(): Promise<string> {
  const g = new GraphBuilder()
  let h = g.input('image', 'f32', ['n', 3, 17, 19])
  for (const [i, [from, to]] of [
    [3, 24],
    [24, 42],
    [42, 15],
  ].entries()) {
    const w = g.initializer(`w${i}`, weights([to!, from!, 3, 3], from! * 9, i + 1))
    h = g.add('Relu', [g.add('Conv', [h, w], { pads: [1, 1, 1, 1], strides: [2, 2] })])
  }
  g.output(
    g.add('MatMul', [g.add('Flatten', [h]), g.initializer('head', weights([15 * 3 * 3, 7], 135, 9))]),
    'scores',
  )
  return save(g, 'convolutions.onnx')
}

async function load(
  t: Test,
  file: string,
  options: ClusterLoadOptions,
): Promise<{ model: Pipeline; events: PipelineEvent[] }> {
  const events: PipelineEvent[] = []
  const onEvent = (event: PipelineEvent): void => void events.push(event)
  const model = await new Cluster(nodes.get('one')).load(file, { ...anyLink, onEvent, ...options })
  t.teardown(() => model.dispose())
  return { model, events }
}

const alone = (file: string): Promise<Model> =>
  Model.load(file, { backend: 'cpu', precision: 'fp32', threads: 1 })

function near(t: Test, given: object, expected: Values, what: string): void {
  for (const [name, tensor] of Object.entries(expected)) {
    const distance = relativeDistance((given as Values)[name]!, tensor)
    t.ok(distance <= 1e-5, `${what}, ${name}: ${distance}`)
  }
}

const idsOf = (...names: string[]): string[] => names.map(name => nodes.get(name).identity.nodeId)

t.test('nodes that share layers', { skip }, async t => {
  await nodes.startAll(['one', 'two', 'three'])
  t.teardown(() => nodes.close())
  const [layers, width] = [3, 40]
  const file = await writeLayers(layers, width, 96)
  using whole = await alone(file)
  const x = (n: number, seed: number): Tensor => Tensor.random([n, width], { seed })
  const names = Array.from({ length: layers }, (_, i) => `s${i}`)
  const zeros = Object.fromEntries(names.map(name => [name, Tensor.zeros([1, width])]))
  const pairs = Object.fromEntries(names.map(name => [name, `next_${name}`]))

  await t.test('runs, several at a time, with the same bits each time', async t => {
    const { model, events } = await load(t, file, { strategy: 'tensor', nodes: 3 })
    t.strictSame(new Set(model.stages[0]!.group), new Set(idsOf('one', 'two', 'three')))
    t.equal(model.stages.length, 1)
    const loaded = events.find(({ type }) => type === 'loaded')!
    t.strictSame(new Set(loaded.nodes), new Set(['one', 'two', 'three']))
    const sizes = [1, 5, 1, 3]
    const feeds = sizes.map((n, i) => ({ x: x(n, i), ...zeros }))
    const results = await Promise.all(feeds.map(each => model.run(each)))
    for (const [i, each] of feeds.entries())
      near(t, results[i]!, await whole.run<Tensor<never>>(each), `run ${i}`)
    const again = await model.run(feeds[1]!)
    for (const [name, { data }] of Object.entries(again)) t.strictSame(data, results[1]![name]!.data, name)
    await t.rejects(model.run({ x: Tensor.zeros([2, 5]), ...zeros }), { code: 'ERR_SHAPE' })
    near(t, await model.run(feeds[0]!), await whole.run<Tensor<never>>(feeds[0]!), 'after wrong feeds')
  })

  await t.test('convolutions', async t => {
    const images = await writeConvolutions()
    using expected = await alone(images)
    const { model } = await load(t, images, { strategy: 'tensor', nodes: 3 })
    const image = Tensor.random([2, 3, 17, 19], { seed: 3 })
    near(t, await model.run({ image }), await expected.run<Tensor<never>>({ image }), 'scores')
  })

  await t.test('a decoder, whose caches are in parts', { skip: noModels }, async t => {
    const file = languageModelFile('genai', 'tiny-random-gpt2-fp32', 'past.onnx')
    using whole = await alone(file)
    using memory = whole.bindState()
    const { model } = await load(t, file, { strategy: 'tensor', nodes: 3 })
    const sequence = model.bindState()
    const i32 = (values: number[]): Tensor<'i32'> =>
      Tensor.of(Int32Array.from(values), [1, values.length], 'i32')
    for (let step = 0; step < 4; step++) {
      const feeds = {
        input_ids: i32([step + 5]),
        position_ids: i32([step]),
        attention_mask: i32(new Array(step + 1).fill(1)),
      }
      near(t, await sequence.run(feeds), await memory.run<Tensor<never>>(feeds), `token ${step}`)
    }
    await sequence.dispose()
  })

  await t.test('groups in a pipeline', async t => {
    const pins = ['0-0=one+two', '1-2=three']
    const { model } = await load(t, file, { strategy: 'hybrid', nodes: 3, pins })
    t.strictSame(
      model.stages.map(({ nodeId, group = [nodeId] }) => group),
      [idsOf('one', 'two'), idsOf('three')],
    )
    const feeds = { x: x(4, 1), ...zeros }
    near(t, await model.run(feeds), await whole.run<Tensor<never>>(feeds), 'hybrid')
    await t.rejects(load(t, file, { strategy: 'hybrid', pins: ['0-0=one+four'] }), {
      code: 'ERR_ARGUMENT',
      message: /no node or device 'four'/,
    })
  })

  await t.test('links that cannot carry it', async t => {
    const slow = { strategy: 'tensor', nodes: 3, maxRttMs: 1e-6 } as const
    await t.rejects(load(t, file, slow), {
      code: 'ERR_UNSUPPORTED',
      message:
        /the link between one and \w+ takes [\d.]+ ms there and back; tensor parallelism needs 0.000001 ms/,
    })
    await t.rejects(load(t, file, { strategy: 'tensor', pins: ['0-1=one'] }), { code: 'ERR_ARGUMENT' })
    await t.rejects(load(t, file, { strategy: 'tensor', backend: 'js' }), { code: 'ERR_UNSUPPORTED' })
    await t.rejects(load(t, file, { strategy: 'all' as 'auto' }), { code: 'ERR_ARGUMENT' })
    await t.rejects(load(t, file, { sums: 'ring' as 'auto' }), { code: 'ERR_ARGUMENT' })
    await t.rejects(load(t, file, { sums: 'nccl' }), { code: 'ERR_ARGUMENT', message: /backend 'cpu'/ })
    const { model } = await load(t, file, { ...slow, strategy: 'auto' })
    t.equal(model.stages[0]!.group, undefined, 'auto takes no group then')
  })

  await t.test('a sequence goes on when a rank leaves, and on the last node', async t => {
    using memory = whole.bindState(pairs)
    const { model, events } = await load(t, file, { strategy: 'tensor', nodes: 3, graceMs: 100 })
    const sequence = model.bindState()
    for (let step = 0; step < 6; step++) {
      const feeds = { x: x(1, step) }
      const next = sequence.run(feeds)
      // In the middle of a step.
      if (step === 2) await nodes.get('three').close()
      if (step === 4) await nodes.get('two').close()
      near(t, await next, await memory.run<Tensor<never>>(feeds), `step ${step}`)
    }
    t.strictSame(model.stages, [
      { nodeId: idsOf('one')[0], from: 0, end: model.stages[0]!.end, options: model.stages[0]!.options },
    ])
    t.equal(events.filter(({ type }) => type === 'moved').length, 2)
    t.match(
      events.filter(({ type }) => type === 'lost').map(event => event.nodes),
      [['three'], ['two']],
    )
  })
})
