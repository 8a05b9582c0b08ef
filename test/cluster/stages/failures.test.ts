// Stages whose GPU fails, whose node cannot load them, or goes while they are loaded: the pipeline goes on with the same results.
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { graphCosts } from '#lib/cluster/placement/graph-costs.js'
import { Pipeline, type PipelineEvent } from '#lib/cluster/stages/pipeline.js'
import { StageHost } from '#lib/cluster/stages/stage-host.js'
import type { Seat, StagePlan } from '#lib/cluster/stages/stage-place.js'
import { StagedModel } from '#lib/cluster/stages/staged-model.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'
import { SparkError } from '#lib/core/errors.js'
import { loadAddon } from '#lib/native.js'
import { writeRecurrent } from '../../fixtures/cluster/recurrent.js'
import { FakeDriver, noCompiler, noCudaCalls } from '../../fixtures/fake-driver/fake-driver.js'
import { profile, runChild } from '../../fixtures/machine.js'

const folder = t.testdir({})
const width = 19

type Ask = (seat: Seat, ...question: Parameters<Seat['ask']>) => ReturnType<Seat['ask']>

/** Two stages on the nodes `a` and `b`, which this process has; `ask` comes between the pipeline and its nodes. */
async function opened(t: Test, ask: Ask, backend: 'auto' | 'cpu') {
  const file = path.join(folder, 'model.onnx')
  await writeRecurrent(file, { layers: 3, width })
  const home = t.testdir({})
  const store = await WeightStore.open(path.join(home, 'weights'))
  const host = new StageHost({
    folder: path.join(home, 'stages'),
    store,
    sources: () => [],
    ranks: () => undefined,
  })
  const model = await StagedModel.open(file, store)
  const ends = graphCosts('model', model.graph).layers.map(({ end }) => end!)
  const half = ends[ends.length >> 1]!
  const options = { backend, threads: 1, precision: 'fp32' } as const
  const plan = (nodeId: string, from: number, end: number): StagePlan => ({ nodeId, from, end, options })
  const whole = ends.at(-1)!
  const events: PipelineEvent[] = []
  const seat = (nodeId: string): Seat => {
    const own: Seat = {
      ...{ nodeId, name: nodeId },
      ask: (question, signal) => host.answer(nodeId, question, signal ?? new AbortController().signal),
    }
    return { ...own, ask: (...question) => ask(own, ...question) }
  }
  const pipeline = new Pipeline({
    ...{ model, plans: [plan('a', 0, half), plan('b', half, whole)], graceMs: 50, seat },
    onEvent: event => events.push(event),
    replan: async () => [plan('a', 0, half), plan('c', half, whole)],
  })
  t.teardown(async () => {
    await pipeline.dispose()
    await host.close()
    await store.close()
  })
  const alone = await Model.load(file, { backend: 'cpu', precision: 'fp32', threads: 1 })
  t.teardown(() => alone.dispose())
  const memory = alone.bindState(Object.fromEntries([0, 1, 2].map(i => [`s${i}`, `next_s${i}`])))
  t.teardown(() => memory.dispose())
  /** Steps of a sequence beside those of one machine. */
  const steps = async (count: number): Promise<void> => {
    const sequence = pipeline.bindState()
    for (let i = 0; i < count; i++) {
      const feeds = { x: Tensor.random([1, width], { seed: i }) }
      const [here, there] = [await memory.run<Tensor<'f32'>>(feeds), await sequence.run(feeds)]
      t.strictSame(there.y!.data, here.y!.data, `step ${i}`)
    }
  }
  return { pipeline, events, steps, host }
}

t.test('a GPU fails in the middle of a sequence: its stage goes to the CPU', async t => {
  let runs = 0
  const { pipeline, events, steps } = await opened(
    t,
    async (seat, question, signal) => {
      const { op, options } = question.words as { op: string; options?: { backend: string } }
      if (seat.nodeId === 'b' && op === 'load' && options?.backend === 'cpu') runs = Number.NEGATIVE_INFINITY
      if (seat.nodeId === 'b' && op === 'run' && ++runs === 3)
        throw new SparkError('ERR_CUDA', 'node b: the launch timed out and was terminated (CUDA error 702)')
      return seat.ask(question, signal)
    },
    'auto',
  )
  await pipeline.load()
  await steps(6)
  t.match(
    events.filter(({ type }) => type === 'failed'),
    [{ nodes: ['b'], why: /CUDA error 702/ }],
  )
  t.same(
    pipeline.stages.map(({ options }) => options.backend),
    ['auto', 'cpu'],
  )
})

t.test('a GPU that fails on the CPU as well is named', async t => {
  const failure = new SparkError('ERR_CUDA', 'GPU 0 is lost')
  const { pipeline } = await opened(
    t,
    async (seat, question, signal) => {
      if (question.words.op === 'run') throw failure
      return seat.ask(question, signal)
    },
    'cpu',
  )
  await pipeline.load()
  const states = Object.fromEntries([0, 1, 2].map(i => [`s${i}`, Tensor.zeros([1, width])]))
  await t.rejects(pipeline.run({ x: Tensor.zeros([1, width]), ...states }), {
    code: 'ERR_CUDA',
    message: /GPU 0/,
  })
})

t.test('a node that cannot load its stage, and a link that breaks while it is loaded', async t => {
  let tries = 0
  const { pipeline, events, steps } = await opened(
    t,
    async (seat, question, signal) => {
      if (question.words.op === 'load' && seat.nodeId === 'a' && tries++ === 0)
        throw new SparkError('ERR_IO', 'the link to node a has ended')
      if (question.words.op === 'load' && seat.nodeId === 'b')
        throw new SparkError('ERR_IO', 'node b: the disk has 0 bytes left')
      return seat.ask(question, signal)
    },
    'cpu',
  )
  await pipeline.load()
  await steps(3)
  t.same(
    pipeline.stages.map(({ nodeId }) => nodeId),
    ['a', 'c'],
  )
  t.ok(events.some(({ type }) => type === 'moved'))
})

const untilAborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
  })

t.test('a pipeline that is disposed while its stages move leaves none behind', async t => {
  let isGone = false
  let begun = (): void => {}
  const moving = new Promise<void>(resolve => {
    begun = resolve
  })
  const { pipeline, host } = await opened(
    t,
    async (seat, question, signal) => {
      const { op } = question.words
      if (isGone && seat.nodeId === 'b' && op !== 'unload') throw new SparkError('ERR_IO', 'b has gone')
      if (seat.nodeId === 'c' && op === 'load') {
        begun()
        await new Promise(resolve => setTimeout(resolve, 50))
      }
      return seat.ask(question, signal)
    },
    'cpu',
  )
  await pipeline.load()
  isGone = true
  const states = Object.fromEntries([0, 1, 2].map(i => [`s${i}`, Tensor.zeros([1, width])]))
  const ended = t.rejects(pipeline.run({ x: Tensor.zeros([1, width]), ...states }), { code: 'ERR_DISPOSED' })
  await moving
  await pipeline.dispose()
  await ended
  t.same(host.stages, [])
})

t.test('a signal ends loading on all nodes, and so does a node that cannot load', async t => {
  for (const [what, message] of [
    ['signal', /enough/],
    ['node', /no such weights/],
  ] as const) {
    const controller = new AbortController()
    const { pipeline, host } = await opened(
      t,
      async (seat, question, signal) => {
        if (question.words.op !== 'load') return seat.ask(question, signal)
        if (seat.nodeId === 'b') return untilAborted(signal!)
        if (what === 'node') throw new SparkError('ERR_FORMAT', 'no such weights')
        setTimeout(() => controller.abort(new Error('enough')))
        return seat.ask(question, signal)
      },
      'cpu',
    )
    await t.rejects(pipeline.load(controller.signal), { message }, what)
    await t.rejects(pipeline.run({}), { code: 'ERR_DISPOSED' })
    t.same(host.stages, [])
  }
})

const loaded = loadAddon()
const noDriver = noCompiler || (loaded.addon ? noCudaCalls : loaded.reason)

/** What a driver does when a GPU fails: codes of cuda.h, and the call that meets them. */
const gpuFailures = {
  'its kernels time out': { why: /\b702\b/, settings: { 'fail.kernel': '702' } },
  'its memory has an error that cannot be corrected': {
    why: /\b214\b/,
    settings: { 'fail.kernel': '214' },
  },
  'it falls off the bus after a run': {
    why: /\b46\b/,
    settings: { 'fail.kernel': '46', 'fail.kernel.after': '3' },
  },
  'it is lost before a copy': {
    why: /\b999\b/,
    settings: { 'fail.cuMemcpyAsync': '999', 'fail.cuMemcpyAsync.after': '10' },
  },
  'it has no access to the memory of its peer': {
    why: /\b217\b/,
    settings: { 'fail.cuLaunchKernel': '217' },
  },
}

for (const [what, { why, settings }] of Object.entries(gpuFailures)) {
  t.test(`a stage goes to the CPU when ${what}`, { skip: noDriver }, async t => {
    const file = path.join(folder, 'model.onnx')
    await writeRecurrent(file, { layers: 3, width })
    const driver = new FakeDriver()
    t.teardown(() => driver.dispose())
    const answer = runChild(
      `import path from 'node:path'
     import { Model, Tensor } from 'dgx-spark'
     import { StagedModel } from '#lib/cluster/stages/staged-model.js'
     import { StageHost } from '#lib/cluster/stages/stage-host.js'
     import { Pipeline } from '#lib/cluster/stages/pipeline.js'
     import { WeightStore } from '#lib/cluster/weights/weight-store.js'
     const [file, home] = ${JSON.stringify([file, t.testdir({})])}
     const store = await WeightStore.open(path.join(home, 'weights'))
     const host = new StageHost({ folder: path.join(home, 'stages'), store, sources: () => [], ranks: () => undefined })
     const model = await StagedModel.open(file, store)
     const plans = [{ nodeId: 'a', from: 0, end: model.graph.nodes.length, options: { backend: 'cuda', precision: 'fp32' } }]
     const events = []
     const seat = nodeId => ({ nodeId, name: nodeId, ask: question => host.answer(nodeId, question, new AbortController().signal) })
     const pipeline = new Pipeline({ model, plans, graceMs: 0, seat, onEvent: event => events.push(event), replan: () => plans })
     await pipeline.load()
     const feeds = { x: Tensor.random([1, ${width}], { seed: 1 }) }
     for (const i of [0, 1, 2]) feeds['s' + i] = Tensor.zeros([1, ${width}])
     const { y } = await pipeline.run(feeds)
     for (let run = 0; run < 8; run++) await pipeline.run(feeds)
     const alone = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
     const wanted = await alone.run(feeds)
     const answer = { events, isSame: Buffer.compare(Buffer.from(y.data.buffer), Buffer.from(wanted.y.data.buffer)) === 0 }
     await pipeline.dispose()
     await host.close()
     await store.close()`,
      driver.env({ ...profile('gb10'), ...settings }),
    )
    t.ok(answer.isSame)
    t.match(
      answer.events.find(({ type }: PipelineEvent) => type === 'failed'),
      { why },
    )
  })
}
