// Weights on a device: one copy for all plans, made by the first run.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

// y = n elements of a weight + x.
const head = `${scriptHead}
  const n = 5003
  const x = new Float32Array(n), y = new Float32Array(n)
  const add = a => ({ op: 'binary', args: { fn: 'add', dtype: 'f32', shape: [n], aStrides: [1], bStrides: [1], a, b: x, y } })
  await addon.openDevice(0)
`

t.test('plans share what never changes: one copy, made by the first run, in pieces', async t => {
  // 20 MiB and a little more: two pieces. Other parts of the ArrayBuffer change.
  const script = `${head}
    const memory = new Float32Array(1024 + 5 * 2 ** 20 + 7)
    const weight = memory.subarray(1024), part = weight.subarray(3, n + 3)
    const make = () => addon.planCreate([add(part)], 0, { shared: [weight] })
    const blocks = () => UnifiedBuffer.stats().blocks
    const plans = [make(), make()], seen = [blocks()]
    await Promise.all(plans.map(plan => addon.planRun(plan)))
    addon.planDispose(plans[0])
    for (let run = 0; run < 3; ++run) await addon.planRun(plans[1])
    plans.push(make())
    await addon.planRun(plans[2])
    for (const plan of plans) addon.planDispose(plan)
    for (let i = 0; i < 500 && blocks() > 0; ++i) {
      globalThis.gc?.()
      await new Promise(next => setTimeout(next, 10))
    }
    seen.push(blocks())
    const again = make()
    await addon.planRun(again)
    print(seen)`
  const { env, lines } = machine(fakeDriver, discrete)
  t.strictSame(await scriptResult(script, env), [1 + 2 * 4, 0], 'x and y of each plan, there and here')
  const large = lines('copy').filter(line => Number(line.split(' ')[1]) > 4 * 5003)
  const pieces = ['copy 16777216', `copy ${4 * 2 ** 20 + 4 * 7}`]
  t.strictSame(large, [...pieces, ...pieces], 'once, and once more when nobody had it any more')
})

t.test('models and sizes share weights', async t => {
  const script = `
    import { Model, Tensor } from 'dgx-spark'
    import { Constant } from '#lib/graph/constant.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [null, 96]) }], outputs: [{ name: 'y' }],
      nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
      initializers: new Map([['w', Constant.from('f32', [96, 96], new Float32Array(96 * 96))]]),
    })
    for (let i = 0; i < 2; ++i) {
      const model = await Model.fromGraph(graph, { backend: 'cuda', precision: 'fp32' })
      for (const rows of [2, 3, 5, 40, 2]) await model.run({ x: Tensor.ones([rows, 96]) })
      globalThis.kept = [...(globalThis.kept ?? []), model]
    }
    console.log('null')`
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(script, env)
  const copies = lines('copy').filter(line => line === `copy ${4 * 96 * 96}`)
  t.equal(copies.length, 3, 'there and back for what is computed once of the weight, and there for all plans')
})

t.test('an upload that fails ends the run, and the next one tries again', async t => {
  const script = `${head}
    const weight = new Float32Array(n)
    const plan = addon.planCreate([add(weight)], 0, { shared: [weight] })
    const failed = await attempt(() => addon.planRun(plan))
    print([failed, await attempt(() => addon.planRun(plan))])`
  const { env } = machine(fakeDriver, { ...discrete, 'fail.cuMemcpyAsync': 1, 'fail.cuMemcpyAsync.times': 1 })
  const [failed, again] = (await scriptResult(script, env)) as [string[], null]
  t.match(failed, ['ERR_CUDA', /copying weights failed/])
  t.equal(again, null)
})
