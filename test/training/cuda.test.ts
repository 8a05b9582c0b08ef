// Training on a GPU, on the fake driver: a step is one plan that is enqueued, captured, then replayed; parameters and
// moments stay on the device until a checkpoint or the end asks for them.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readCheckpoint } from '#lib/training/checkpoint.js'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

/** Kernels do nothing but AdamW, which sets the bytes of its tensors: gradients, parameters and moments. */
const marked = { kernel: { adamw_f32: { fill: 0 } } }
const onlyMarks = (bytes: Buffer) => bytes.length > 0 && bytes.every(byte => byte === 0x42)

/** Trains a small network for 6 epochs of 203 samples: by default 12 batches of 16 and one of 11. */
function train(folder: string, profile: object, batchSize = 16) {
  const { env, lines } = machine(fakeDriver, profile)
  const file = path.join(folder, 'result.bin')
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['test/fixtures/training-child.js', path.join(folder, 'checkpoints'), file, 'cuda', String(batchSize)],
    { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '', ...env }, timeout: 120_000 },
  )
  const result = existsSync(file) ? readFileSync(file) : Buffer.alloc(0)
  return { steps: stdout.trim().split('\n').length, stderr, status, result, lines }
}

for (const [name, profile, copies] of [
  ['memory of its own', discrete, 6], // x, target, learning rate, step; loss, gradient norm
  ['the memory of the host', { ...integrated, delay: { cuMemAlloc: 5 } }, 0],
] as const) {
  t.test(`a GPU with ${name}`, async t => {
    const folder = t.testdir()
    const { steps, stderr, status, result, lines } = train(folder, { ...profile, ...marked })
    t.equal(status, 0, stderr)
    t.equal(steps, 78)
    const kernels = /^instantiate (\d+) kernels/.exec(lines('instantiate')[0]!)![1]
    t.strictSame(lines('instantiate'), Array(2).fill(`instantiate ${kernels} kernels ${copies} copies`))
    t.equal(lines('replay').length, steps - 2, 'a graph a step, but for the first of either size of batch')
    const updates = lines('launch adamw_f32').length
    t.equal(updates, 2 * 2, 'both parameters at once, enqueued and captured, for two sizes')
    t.ok(onlyMarks(result), 'the parameters of the device')
    const [file] = readdirSync(path.join(folder, 'checkpoints')).sort()
    const { state } = await readCheckpoint(path.join(folder, 'checkpoints', file!))
    t.ok(onlyMarks(Buffer.from(state.get('w')!.buffer)), 'also in a checkpoint')
    t.ok(onlyMarks(Buffer.from(state.get('w/m')!.buffer)), 'moments as the device has them')
  })
}

t.test('memory of the GPU that is short', t => {
  const { status, stderr } = train(t.testdir(), { ...discrete, memory: { free: 120_000 } }, 203)
  t.equal(status, 1)
  t.match(stderr, /step 1: no memory for a batch of 203; try batchSize (101|50|25|12),/)
  t.end()
})

/** A step of DoRA adapters on 24 layers, each with A, B and a magnitude. */
const adapters = `
  import { createAdapter } from '#lib/dora/model/create-adapter.js'
  import { Constant } from '#lib/graph/constant.js'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  import { ArrayDataset } from '#lib/training/dataset.js'
  import { Trainer } from '#lib/training/trainer.js'

  const width = 16
  const names = Array.from({ length: 24 }, (_, i) => String(i))
  const numbers = Float32Array.from({ length: width ** 2 }, (_, i) => Math.sin(i))
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', width]) }],
    outputs: [{ name: 'y23' }],
    nodes: names.map((name, i) => makeNode('MatMul', [i === 0 ? 'x' : 'y' + (i - 1), 'w' + name], ['y' + name], { name })),
    initializers: new Map(names.map(name => ['w' + name, Constant.from('f32', [width, width], numbers)])),
  })
  const adapter = await createAdapter(graph, { targetModules: '.*', rank: 2, seed: 1, backend: 'cpu' })
  const field = { shape: [4, width], data: new Float32Array(4 * width) }
  const trainer = new Trainer(graph, adapter, { loss: 'mse', epochs: 1, batchSize: 4, backend: 'cuda' })
  await trainer.fit(new ArrayDataset({ x: field, target: field }))
  console.log(adapter.parameters.length)`

t.test('adapters of many layers are clipped and updated in few launches', async t => {
  const { env, lines } = machine(fakeDriver, discrete)
  t.equal(await scriptResult(adapters, env), 72, 'tensors')
  t.equal(lines('launch adamw_f32').length, 2, 'up to 64 tensors in each')
  t.equal(lines('launch adamw_step').length, 2)
  t.ok(lines('launch reduce_').length < 10, 'the gradients are one vector')
})
