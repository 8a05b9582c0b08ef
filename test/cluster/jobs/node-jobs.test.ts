// Shared work in running nodes: batches through a model and jobs of the kinds that nodes know, exactly once, whoever does them.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster } from '#lib/cluster/cluster.js'
import { scenarioJobs } from '#lib/cluster/jobs/kinds.js'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import type { ClusterNodeOptions } from '#lib/cluster/node/node-options.js'
import { segmentsIn } from '#lib/cluster/trust/audit-files.js'
import { recordOf } from '#lib/cluster/trust/audit-record.js'
import { idm, laneKeeping } from '#lib/simulation/controllers.js'
import { generateScenarios } from '#lib/simulation/generators.js'
import { ScenarioRunner } from '#lib/simulation/runner.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { needsNats } from '../../fixtures/cluster/nats.js'

const folder = t.testdir({})
const [inner, width] = [33, 7]

async function writeModel(name: string): Promise<string> {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', ['n', width])
  const w = g.initializer('w', Tensor.random([width, inner], { seed: 4, distribution: 'normal' }))
  g.output(g.add('Tanh', [g.add('MatMul', [x, w])]), 'y')
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  const file = path.join(folder, `${name}.onnx`)
  await model.save(file, { externalData: true })
  return file
}

const batch = (i: number) => ({ x: Tensor.random([1 + (i % 3), width], { seed: i }) })

async function start(t: Test, name: string, options: ClusterNodeOptions = {}): Promise<ClusterNode> {
  const fixed = { home: path.join(folder, name), name, host: '127.0.0.1', mdns: false, statePort: null }
  const node = await ClusterNode.start({ port: await freePort(), pressure: null, ...fixed, ...options })
  t.teardown(() => node.close())
  return node
}

/** Records of the audit log of a node that has ended. */
async function audited(name: string): Promise<{ op: string; actor: string; result: string }[]> {
  const [segment] = await segmentsIn(path.join(folder, name, 'audit'))
  const text = await readFile(segment!.file, 'utf8')
  return text.split('\n').flatMap(line => recordOf(Buffer.from(line)) ?? [])
}

t.test('two nodes without a common control plane', async t => {
  const file = await writeModel('embedded')
  const port = await freePort()
  const first = await start(t, 'lead', { create: 'lab', port, jobs: false })
  const { code } = await first.invite()
  const second = await start(t, 'hand', { code, at: { host: '127.0.0.1', port }, jobs: { threads: 1 } })
  const cluster = new Cluster(first)
  using alone = await Model.load(file, { backend: 'cpu', precision: 'fp32' })

  await t.test('batches through a model, in their order', async t => {
    let asked = 0
    const batches = function* () {
      for (; asked < 20; asked++) yield batch(asked)
    }
    let i = 0
    for await (const outputs of cluster.map(file, batches(), { backend: 'cpu', ahead: 4 })) {
      const { y } = await alone.run<Tensor<'f32'>>(batch(i++))
      t.strictSame([outputs.y!.shape, outputs.y!.data], [y!.shape, y!.data])
      t.ok(asked - i <= 4, `${asked} asked for at ${i}`)
    }
    t.equal(i, 20)
  })

  await t.test('the same again, equal batches, and a caller that stops', async t => {
    const seen: unknown[] = []
    const twice = [batch(3), batch(3), batch(50)]
    for await (const { y } of cluster.map(file, twice, { backend: 'cpu' })) seen.push(y!.data)
    t.strictSame(seen[0], seen[1])
    for await (const { y } of cluster.map(file, [batch(1), batch(2), batch(3)], { backend: 'cpu' })) {
      t.equal(y!.shape[1], inner)
      break
    }
  })

  await t.test('jobs of other kinds', async t => {
    const scenarios = [...generateScenarios({ count: 4, seed: 3 })]
    const { results, nodes } = await cluster.mapJobs(scenarioJobs('driving', scenarios, 2))
    const whole = await new ScenarioRunner({ algorithm: [idm(), laneKeeping()] }).runBatch(scenarios)
    const parts = results as unknown as { results: { metrics: unknown }[] }[]
    t.same(
      parts.flatMap(({ results }) => results.map(({ metrics }) => metrics)),
      whole.results.map(({ metrics }) => metrics),
    )
    t.same([...nodes], [[second.identity.nodeId, 2]])
  })

  await t.test('what cannot be mapped', async t => {
    const first = (batches: object[], options: object = {}) =>
      cluster.map(file, batches as never, options).next()
    await t.rejects(first([{ y: 1 }]), { code: 'ERR_ARGUMENT', message: /no input 'y'/ })
    await t.rejects(first([], { backend: 'tpu' }), { code: 'ERR_ARGUMENT' })
    await t.rejects(first([], { ahead: 0 }), { code: 'ERR_ARGUMENT' })
    await t.rejects(cluster.map(path.join(folder, 'none.onnx'), []).next(), { code: 'ERR_IO' })
    await t.rejects(start(t, 'odd', { jobs: { slots: 0 } }), { code: 'ERR_ARGUMENT' })
  })

  await first.close()
  await second.close()
  const records = await audited('hand')
  const of = (op: string) => records.filter(each => each.op === op && each.actor === first.identity.nodeId)
  t.ok(of('compute').length >= 20 + 1 + 2, `${of('compute').length} jobs in the audit log`)
  t.ok(of('transfer').length >= 1, 'the model')
  t.same(
    (await audited('lead')).filter(({ op }) => op === 'compute'),
    [],
    'jobs: false',
  )
})

t.test('two nodes with a common control plane', needsNats, async t => {
  const file = await writeModel('nats')
  const port = await freePort()
  const first = await start(t, 'seed', { create: 'lab', control: 'nats', port })
  const { code } = await first.invite()
  const at = { host: '127.0.0.1', port }
  const second = await start(t, 'second', { code, at, nats: [`127.0.0.1:${port + 3}`] })
  using alone = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  let i = 0
  for await (const { y } of new Cluster(second).map(file, [0, 1, 2, 3].map(batch), { backend: 'cpu' })) {
    const { y: wanted } = await alone.run<Tensor<'f32'>>(batch(i++))
    t.strictSame(y!.data, wanted!.data)
  }
  t.equal(i, 4)
})
