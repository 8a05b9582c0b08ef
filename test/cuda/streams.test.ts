// Streams of a device against the fake driver: what runs in order and what runs side by side.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

// f32 to f16 takes a while, which what runs in order behind it waits for; f16 to f32 takes no time.
const delay = 400
const slow = { kernel: { cast_f32_f16: { delay } } }

// The order in which three rounds of runs settle, where each round starts them in the order of their names.
const rounds = `
  const settled = async runs => {
    const order = []
    await Promise.all(Object.entries(runs).map(async ([name, run]) => { await run(); order.push(name) }))
    return order.join(' ')
  }
  const thrice = async runs => [await settled(runs), await settled(runs), await settled(runs)]
`

const plans = `${scriptHead}${rounds}
  const n = 5003
  await addon.openDevice(0)
  const cast = (srcDtype, dstDtype, src, dst, stream) => {
    const args = { srcDtype, dstDtype, count: n, saturate: false, src, dst }
    const plan = addon.planCreate([{ op: 'cast', args }], 0, {}, true, undefined, undefined, stream)
    return () => addon.planRun(plan)
  }
  const slow = stream => cast('f32', 'f16', new Float32Array(n), new Uint16Array(n), stream)
  const fast = stream => cast('f16', 'f32', new Uint16Array(n), new Float32Array(n), stream)
`

t.test('plans on different streams run side by side, those on one in order', async t => {
  const script = `${plans}
    print({
      apart: await thrice({ slow: slow(1), fast: fast(2) }),
      together: await thrice({ slow: slow(3), fast: fast(3) }),
      first: await thrice({ slow: slow(), fast: fast(0) }),
      wrapped: await thrice({ slow: slow(1), fast: fast(5) }),
    })`
  for (const profile of [discrete, integrated]) {
    const { env } = machine(fakeDriver, { ...profile, ...slow })
    const found = (await scriptResult(script, env)) as Record<string, string[]>
    // The first run of a plan is enqueued by a thread, which may be late.
    const later = Object.entries(found).map(([name, [, ...orders]]) => [name, orders])
    t.strictSame(Object.fromEntries(later), {
      apart: ['fast slow', 'fast slow'],
      together: ['slow fast', 'slow fast'],
      first: ['slow fast', 'slow fast'],
      wrapped: ['slow fast', 'slow fast'],
    })
  }
})

t.test('single operations do not wait for plans on other streams', async t => {
  const script = `${plans}
    const args = { srcDtype: 'f16', dstDtype: 'f32', count: n, saturate: false }
    const eager = () => addon.runCuda(0, 'cast', { ...args, src: new Uint16Array(n), dst: new Float32Array(n) })
    print([await thrice({ slow: slow(1), eager }), await thrice({ slow: slow(), eager })])`
  const { env } = machine(fakeDriver, { ...integrated, ...slow })
  const [apart, together] = (await scriptResult(script, env)) as string[][]
  t.strictSame(apart!.slice(1), ['eager slow', 'eager slow'])
  t.strictSame(together!.slice(1), ['slow eager', 'slow eager'])
})

t.test('two models run side by side', async t => {
  const script = `
    import { Model, Tensor } from 'dgx-spark'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    ${rounds}
    const model = async op => {
      const graph = makeGraph({
        inputs: [{ name: 'x', type: tensorType('f32', [64, 64]) }],
        outputs: [{ name: 'y' }],
        nodes: [makeNode(op, ['x'], ['y'])],
      })
      const model = await Model.fromGraph(graph, { backend: 'cuda', precision: 'fp32' })
      return () => model.run({ x: Tensor.ones([64, 64]) })
    }
    console.log(JSON.stringify(await thrice({ slow: await model('Softmax'), fast: await model('Neg') })))`
  const { env, lines } = machine(fakeDriver, { ...discrete, kernel: { softmax_f32: { delay } } })
  const orders = (await scriptResult(script, env)) as string[]
  t.strictSame(orders.slice(1), ['fast slow', 'fast slow'])
  t.ok(lines('launch softmax_f32').length > 0, 'the slow kernel is the one that runs')
})
