// Groups of nodes with GPUs of a fake driver: they sum over a fake NCCL where all of them can, else over their links, on CPUs.
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { scriptResult } from '../../fixtures/child.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { relativeDistance } from '../../fixtures/cluster/ranks.js'
import { FakeDriver, noCudaCalls } from '../../fixtures/fake-driver/fake-driver.js'
import { type Machine, machine } from '../../fixtures/machine-log.js'
import { integrated } from '../../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const [withNccl, without] = [new FakeDriver(['cuda', 'nvml', 'nccl']), new FakeDriver()]
t.teardown(() => {
  withNccl.dispose()
  without.dispose()
})
const width = 64
/** A GPU that says no uuid: two nodes of one process have it, and a node must not claim that of another. */
const [{ uuid: _, ...gpu }] = integrated.gpus as [(typeof integrated.gpus)[number]]
const nameless = { ...integrated, gpus: [gpu] }

async function writeModel(t: Test): Promise<string> {
  const g = new GraphBuilder()
  const weight = (name: string, shape: number[], seed: number): string =>
    g.initializer(name, Tensor.random(shape, { seed, distribution: 'normal' }))
  const [x, s] = ['x', 's'].map(name => g.input(name, 'f32', [1, width])) as [string, string]
  const a = g.add('Tanh', [g.add('MatMul', [g.add('Add', [x, s]), weight('up', [width, 128], 1)])])
  const y = g.add('MatMul', [a, weight('down', [128, width], 2)])
  g.output(y, 'y')
  g.output(g.add('Tanh', [y]), 'next_s')
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  const file = path.join(t.testdir({}), 'model.onnx')
  await model.save(file)
  return file
}

/** Two nodes of a cluster in a process that has the GPU of `env`; \`load\` puts the model on both. */
async function onNodes(t: Test, { env }: Machine, code: string): Promise<unknown> {
  const [file, ports] = [await writeModel(t), [await freePort(), await freePort()]]
  return scriptResult(
    `import { Tensor } from 'dgx-spark'
     import { ClusterNode } from 'dgx-spark/cluster'
     import { wholeOn } from '#lib/cluster/stages/live-plans.js'
     import { Pipeline } from '#lib/cluster/stages/pipeline.js'
     import { StagedModel } from '#lib/cluster/stages/staged-model.js'
     const file = ${JSON.stringify(file)}, at = { host: '127.0.0.1', port: ${ports[0]} }
     const start = (name, options) => ClusterNode.start({
       home: file + '-' + name, name, host: '127.0.0.1', mdns: false, statePort: null, pressure: null, jobs: false, ...options,
     })
     const one = await start('one', { port: at.port, create: 'lab' })
     const two = await start('two', { port: ${ports[1]}, code: (await one.invite()).code, at })
     const ids = [one, two].map(({ identity }) => identity.nodeId)
     while (!one.stages.seat(ids[1]) || !two.stages.seat(ids[0])) await new Promise(resolve => setTimeout(resolve, 10))
     const staged = await StagedModel.open(file, one.stages.store)
     const attempt = async call => { try { return await call() } catch (error) { return [error.code, error.message] } }
     const load = async (options, onEvent = () => {}, graceMs = 20_000) => {
       const model = new Pipeline({
         ...{ model: staged, plans: [wholeOn(ids, staged.graph, options)], graceMs, onEvent },
         seat: nodeId => one.stages.seat(nodeId),
         replan: async () => [wholeOn(ids.slice(0, 1), staged.graph, options)],
       })
       await model.load()
       return model
     }
     const x = Tensor.random([1, ${width}], { seed: 3 }), s = Tensor.zeros([1, ${width}])
     const said = ({ stages: [{ sums, options }] }) => [sums, options.backend]
     const done = []
     ${code}
     await Promise.all([two.close(), one.close()])
     console.log(JSON.stringify(done))
     process.exit()`,
    env,
  )
}

t.test('over NCCL, on GPUs', async t => {
  const both = machine(withNccl, nameless)
  const done = await onNodes(
    t,
    both,
    `const model = await load({})
     done.push(said(model))
     for (let i = 0; i < 3; i++) done.push((await model.run({ x, s })).y.shape)
     const sequence = model.bindState()
     for (let i = 0; i < 3; i++) done.push((await sequence.run({ x })).y.shape)
     await sequence.dispose()
     await model.dispose()
     const encrypted = await load({ sums: 'stream' })
     done.push(said(encrypted))
     await encrypted.dispose()`,
  )
  t.strictSame(done, [['nccl', 'cuda'], ...Array(6).fill([1, width]), ['stream', 'cpu']])
  t.equal(both.lines('capture').length, 4, 'sums are captured, once for each plan of a rank')
})

t.test('over links, where NCCL is missing', async t => {
  const done = await onNodes(
    t,
    machine(without, nameless),
    `const model = await load({})
     done.push(said(model))
     await model.dispose()
     done.push(await attempt(() => load({ sums: 'nccl' })), await attempt(() => load({ backend: 'cuda' })))`,
  )
  const missing = ['ERR_UNSUPPORTED', /rank \d of the group cannot sum over NCCL: .*apt-get install libnccl2/]
  t.match(done, [['stream', 'cpu'], missing, missing])
})

t.test('a rank that goes away ends the sums of the others', async t => {
  const done = await onNodes(
    t,
    machine(withNccl, nameless),
    `const events = []
     const model = await load({}, ({ type }) => events.push(type), 100)
     await model.run({ x, s })
     const runs = Promise.all(Array.from({ length: 20 }, () => model.run({ x, s })))
     await two.close()
     done.push(...new Set((await runs).map(({ y }) => String(y.shape))), model.stages[0].group ?? null)
     done.push(events.includes('moved'))
     await model.dispose()`,
  )
  t.strictSame(done, [`1,${width}`, null, true])
})

t.test('a GPU that fails takes its group to the CPUs', async t => {
  const file = await writeModel(t)
  using alone = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  const { y } = await alone.run<Tensor<never>>({
    x: Tensor.random([1, width], { seed: 3 }),
    s: Tensor.zeros([1, width]),
  })
  const done = (await onNodes(
    t,
    machine(withNccl, { ...nameless, 'fail.kernel': '702' }),
    `const events = []
     const model = await load({}, event => events.push(event))
     const { y } = await model.run({ x, s })
     done.push(said(model), events.find(({ type }) => type === 'failed').why, [...y.data])
     await model.dispose()`,
  )) as [string[], string, number[]]
  t.strictSame(done[0], ['stream', 'cpu'])
  t.match(done[1], /\b702\b/)
  const result = Tensor.of(Float32Array.from(done[2]), [1, width], 'f32')
  t.ok(relativeDistance(result as Tensor<never>, y!) < 1e-5)
})
