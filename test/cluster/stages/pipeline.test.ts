// Models on two and three nodes: the same bits as on one, also when a node goes away in the middle.
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster, type ClusterLoadOptions } from '#lib/cluster/cluster.js'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import type { Pipeline, PipelineEvent } from '#lib/cluster/stages/pipeline.js'
import { StageService } from '#lib/cluster/stages/stage-service.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { writeRecurrent } from '../../fixtures/cluster/recurrent.js'
import { languageModelFile, noModels } from '../../fixtures/models/onnx-models.js'

const folder = t.testdir({})
const layers = 6
const width = 48

const names = ['one', 'two', 'three'] as const
const nodes = new Map<string, ClusterNode>()
const ports = new Map<string, number>()

/** All links of nodes, in both directions. */
const links = new Set<FrameStream>()
const { attach } = StageService.prototype
StageService.prototype.attach = function (link, ...rest) {
  links.add(link)
  attach.call(this, link, ...rest)
}

async function start(name: string, options: object = {}): Promise<ClusterNode> {
  const node = await ClusterNode.start({
    ...{ home: path.join(folder, name), name, host: '127.0.0.1', port: ports.get(name)!, mdns: false },
    ...{ statePort: null, pressure: null, ...options },
  })
  nodes.set(name, node)
  return node
}

/** Three nodes of a cluster that have seen each other's devices. */
async function startAll(): Promise<ClusterNode> {
  for (const name of names) ports.set(name, await freePort())
  const first = await start('one', { create: 'lab' })
  const at = { host: '127.0.0.1', port: ports.get('one')! }
  for (const name of names.slice(1)) await start(name, { code: (await first.invite()).code, at })
  return first
}

/** Loads with the layers on the nodes that are named, a part for each. */
async function load(
  t: Test,
  node: ClusterNode,
  file: string,
  where: readonly string[],
  options: ClusterLoadOptions = {},
): Promise<{ model: Pipeline; events: PipelineEvent[] }> {
  const events: PipelineEvent[] = []
  const { graphCosts } = await import('#lib/cluster/placement/graph-costs.js')
  const { readCanonical } = await import('#lib/cluster/stages/staged-model.js')
  const costs = graphCosts('model', await readCanonical(file))
  const count = costs.layers.length
  const pins = where.map((name, i) => {
    const [from, end] = [i, i + 1].map(part => Math.floor((part * count) / where.length))
    return `${from}-${end! - 1}=${name}`
  })
  const model = await new Cluster(node).load(file, {
    ...{ pins, nodes: 3, backend: 'cpu', threads: 1, onEvent: event => events.push(event), ...options },
  })
  t.teardown(() => model.dispose())
  return { model, events }
}

const same = (t: Test, a: Record<string, Tensor<never>>, b: Record<string, unknown>, what: string): void => {
  for (const [name, { data, shape }] of Object.entries(a)) {
    const other = b[name] as Tensor<never>
    t.strictSame([other?.shape, other?.data], [shape, data], `${what}: ${name}`)
  }
}

t.test('stages on several nodes', async t => {
  const node = await startAll()
  t.teardown(() => Promise.all([...nodes.values()].map(each => each.close())))
  const file = path.join(folder, 'recurrent.onnx')
  await writeRecurrent(file, { layers, width, externalData: true })
  using alone = await Model.load(file, { backend: 'cpu', precision: 'fp32', threads: 1 })
  const x = (n: number, seed: number): Tensor => Tensor.random([n, width], { seed })
  const zeros = Object.fromEntries(
    Array.from({ length: layers }, (_, i) => [`s${i}`, Tensor.zeros([1, width])]),
  )

  const pairs = Object.fromEntries(Array.from({ length: layers }, (_, i) => [`s${i}`, `next_s${i}`]))

  await t.test('runs, several at a time', async t => {
    const { model, events } = await load(t, node, file, ['one', 'two', 'three'])
    t.equal(model.stages.length, 3)
    t.same(
      new Set(events.filter(({ type }) => type === 'loaded').flatMap(event => event.nodes)),
      new Set(names),
    )
    const came = events.flatMap(({ progress }) =>
      progress?.bytes === progress?.total ? (progress ?? []) : [],
    )
    for (const name of ['two', 'three']) {
      const own = came.filter(({ node, device }) => node === name && device === 'cpu')
      const { fetched } = events.find(each => each.type === 'loaded' && each.nodes[0] === name)!
      t.equal(
        own.reduce((sum, { total }) => sum + total, 0),
        fetched,
        `what came to ${name}`,
      )
    }
    const sizes = [1, 3, 1, 7]
    const results = await Promise.all(sizes.map((n, i) => model.run({ x: x(n, i), ...zeros })))
    for (const [i, n] of sizes.entries())
      same(t, await alone.run<Tensor<never>>({ x: x(n, i), ...zeros }), results[i]!, `run ${i}`)
    await t.rejects(model.run({ x: x(1, 1) }), { code: 'ERR_ARGUMENT', message: /s0/ })
    await t.rejects(model.run({ x: Tensor.zeros([2, 5]), ...zeros }), { code: 'ERR_SHAPE' })
  })

  await t.test('a node fetches what its stage reads, once', async t => {
    const { model, events } = await load(t, node, file, ['one', 'three'])
    await model.dispose()
    await t.rejects(model.run({ x: x(1, 1), ...zeros }), { code: 'ERR_DISPOSED' })
    const again = await load(t, node, file, ['one', 'three'])
    t.equal(events.filter(({ type }) => type === 'loaded').length, 2)
    t.notOk(again.events.some(({ type }) => type === 'fetching'))
    for (const event of again.events) if (event.type === 'loaded') t.equal(event.fetched, 0, event.nodes[0])
  })

  await t.test('a sequence goes on when a node leaves, and when it comes back', async t => {
    const steps = 9
    const memory = alone.bindState(pairs)
    t.teardown(() => memory.dispose())
    const { model, events } = await load(t, node, file, ['one', 'two', 'three'], { graceMs: 200 })
    const sequence = model.bindState()
    for (let step = 0; step < steps; step++) {
      if (step === 3) await nodes.get('three')!.close()
      if (step === 6) {
        await start('three')
        await nodes.get('two')!.close()
      }
      if (step === 5) await t.rejects(sequence.run({ x: Tensor.zeros([1, 5]) }), { code: 'ERR_SHAPE' })
      const feeds = { x: x(1, step) }
      same(t, await memory.run<Tensor<never>>(feeds), await sequence.run(feeds), `step ${step}`)
    }
    t.equal(sequence.steps, steps)
    const kinds = events.map(({ type }) => type)
    t.equal(kinds.filter(type => type === 'moved').length, 2, `${kinds}`)
    const missing = events.filter(({ type }) => type === 'lost').map(({ stages }) => stages)
    t.ok(
      missing.every(stages => stages?.every(({ from, end }) => from < end)),
      'the missing parts are named',
    )
    await start('two')
  })

  await t.test('a node that returns in time loads nothing', async t => {
    const { model, events } = await load(t, node, file, ['one', 'two'], { graceMs: 20_000 })
    const sequence = model.bindState()
    using memory = alone.bindState(pairs)
    for (let step = 0; step < 4; step++) {
      if (step === 2) {
        await nodes.get('two')!.close()
        setTimeout(() => start('two').catch(error => t.fail(error.message)), 300)
      }
      const feeds = { x: x(1, step) }
      same(t, await memory.run<Tensor<never>>(feeds), await sequence.run(feeds), `step ${step}`)
    }
    t.match(
      events.find(({ type }) => type === 'returned'),
      { type: 'returned' },
    )
  })

  await t.test('a link that breaks and is there again in time: nothing is loaded again', async t => {
    const [one, two] = ['one', 'two'].map(name => nodes.get(name)!) as [ClusterNode, ClusterNode]
    const uses: string[] = []
    const { onUse } = two.stages
    two.stages.onUse = use => {
      uses.push(use.op)
      onUse(use)
    }
    const { model, events } = await load(t, node, file, ['one', 'two'], { graceMs: 20_000 })
    const sequence = model.bindState()
    using memory = alone.bindState(pairs)
    for (let step = 0; step < 4; step++) {
      if (step === 2)
        for (const link of links)
          if (link.peer.nodeId === one.identity.nodeId) link.destroy(new Error('the cable is out'))
      const feeds = { x: x(1, step) }
      same(t, await memory.run<Tensor<never>>(feeds), await sequence.run(feeds), `step ${step}`)
    }
    t.strictSame(
      events.filter(({ type }) => type !== 'fetching' && type !== 'loaded').map(({ type }) => type),
      ['lost', 'returned'],
    )
    t.equal(uses.filter(op => op === 'load').length, 1)
    t.notOk(uses.includes('free'))
  })

  await t.test('a decoder', { skip: noModels }, async t => {
    const decoder = languageModelFile('stories260K', 'onnx', 'model_opset23.onnx')
    const { model } = await load(t, node, decoder, ['one', 'two'])
    using whole = await Model.load(decoder, { backend: 'cpu', precision: 'fp32', threads: 1 })
    using memory = whole.bindState()
    const sequence = model.bindState()
    for (let step = 0; step < 5; step++) {
      const i64 = (values: number[]): Tensor<'i64'> =>
        Tensor.from(BigInt64Array.from(values, BigInt), { dtype: 'i64', shape: [1, values.length] })
      const all: Record<string, Tensor<'i64'>> = {
        input_ids: i64([step + 5]),
        position_ids: i64([step]),
        attention_mask: i64(new Array(step + 1).fill(1)),
      }
      const wanted = new Set(memory.inputs)
      const feeds = Object.fromEntries(Object.entries(all).filter(([name]) => wanted.has(name)))
      same(t, await memory.run<Tensor<never>>(feeds), await sequence.run(feeds), `token ${step}`)
    }
  })
})
