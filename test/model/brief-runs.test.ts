// Plans that take little time run on the JavaScript thread: nobody may notice but by the time.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { loadAddon } from '#lib/native.js'
import { Plan } from '#lib/plan/plan.js'

const skip = loadAddon().addon ? false : 'the addon does not load'

/** y = x · w for x [3, n] and a square w of ones. */
const product = (n: number) =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, n]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', Constant.from('f32', [n, n], new Float32Array(n * n).fill(1))]]),
  })

const planOf = async (n: number): Promise<Plan> =>
  Plan.create(product(n), await openKernels({ backend: 'cpu' }))

t.test('a short run is over when the call returns, a first one is not', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const [x, y] = [Float32Array.of(1, -2, 3), new Float32Array(3)]
  const steps = kernels.prepare([{ op: 'unary', args: { fn: 'neg', dtype: 'f32', count: 3, x, y } }])
  const first = steps.run()
  t.ok(first instanceof Promise, 'nothing is known of it yet')
  await first
  let atOnce = 0
  for (let i = 0; i < 100; i++) {
    await new Promise(resolve => setTimeout(resolve, 1))
    x[0] = i
    const pending = steps.run()
    if (!pending) atOnce++
    await pending
    t.equal(y[0], -i)
  }
  t.ok(atOnce > 0, `${atOnce} of 100`)
  steps.dispose()
})

t.test('a loop of runs leaves timers and sockets their turns', { skip }, async t => {
  using plan = await planOf(7)
  let turns = 0
  let running = true
  const turn = (): void => {
    turns++
    if (running) setImmediate(turn)
  }
  setImmediate(turn)
  const x = new Float32Array(21).fill(1)
  for (let i = 0; i < 5000; i++) await plan.run({ x })
  running = false
  t.ok(turns > 3, `${turns} turns of the event loop in 5000 runs`)
})

t.test('beside a long run', { skip }, async t => {
  using long = await planOf(1023)
  for (const n of [33, 511]) {
    using brief = await planOf(n)
    const [ones, twos] = [new Float32Array(3 * 1023).fill(1), new Float32Array(3 * n).fill(2)]
    await long.run({ x: ones })
    for (let i = 0; i < 20; i++) await brief.run({ x: twos })
    for (let round = 0; round < 20; round++) {
      const pending = long.run({ x: ones })
      for (let i = 0; i < 5; i++) t.ok((await brief.run({ x: twos })).y!.every(value => value === 2 * n))
      t.ok((await pending).y!.every(value => value === 1023))
    }
  }
})

t.test('as does a loop of short runs that are profiled', { skip }, async t => {
  using plan = await planOf(7)
  await plan.run({ x: new Float32Array(21).fill(1) })
  let turns = 0
  const counted = setInterval(() => turns++, 1)
  for (let i = 0; i < 100_000 && turns < 3; i++) t.match(await plan.profile(1), [{ op: String }])
  clearInterval(counted)
  t.ok(turns >= 3, `${turns} ticks of a timer`)
})

t.test('a failure is a rejection, and the plan goes on', { skip }, async t => {
  const graph = makeGraph({
    inputs: [{ name: 'labels', type: tensorType('i32', [2]) }],
    outputs: [{ name: 'loss' }],
    nodes: [makeNode('SoftmaxCrossEntropyLoss', ['scores', 'labels'], ['loss'])],
    initializers: new Map([['scores', Constant.f32([1, 2, 3, 4, 5, 6], [2, 3])]]),
  })
  using plan = await Plan.create(graph, await openKernels({ backend: 'cpu' }))
  for (let i = 0; i < 20; i++) {
    await plan.run({ labels: Int32Array.of(0, 2) })
    const failing = plan.run({ labels: Int32Array.of(0, 3) })
    await t.rejects(failing, { code: 'ERR_ARGUMENT' })
  }
})
