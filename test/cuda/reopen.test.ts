// A device that is opened again after a kernel has ruined its context: nothing that was made in the old one is used or
// destroyed any more, which the fake driver logs as stale.
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

// The device reads ordinary memory, so that a plan holds none of its own but temporary memory: nothing of it is counted.
const [gpu] = integrated.gpus
const pageable = { ...integrated, gpus: [{ ...gpu, attributes: { ...gpu!.attributes, 88: 1, 100: 1 } }] }
const once = (after: number) => ({
  'fail.kernel': 719,
  'fail.kernel.after': after,
  'fail.kernel.times': 1,
})

const head = `${scriptHead}
  const n = 50003
  const x = UnifiedBuffer.allocateSync(n * 4).view(Float32Array), y = UnifiedBuffer.allocateSync(4).view(Float32Array)
  const sum = { op: 'reduce', args: { fn: 'sum', dtype: 'f32', shape: [], reduced: [n], strides: [], reducedStrides: [1], x, y } }
  const create = () => addon.planCreate([sum], 0)
  await addon.openDevice(0)
`
const cause = /a kernel failed on device 0: .*719.*touched memory it may not/
const clean = (lines: (what: string) => string[]) => [...lines('stale'), ...lines('bad')]

t.test('plans of a context that is gone', async t => {
  const script = `${head}
    const old = create(), unused = create(), seen = []
    for (let run = 0; run < 4; ++run) seen.push(await attempt(() => addon.planRun(old)))
    const poisoned = await attempt(() => addon.planRun(old))
    let open = false
    const opening = addon.openDevice(0).then(() => { open = true })
    const meanwhile = new Set()
    while (!open) {
      meanwhile.add((await attempt(() => addon.planRun(old)))[0])
      await new Promise(setImmediate)
    }
    await opening
    const late = [await attempt(() => addon.planRun(old)), await attempt(() => addon.planRun(unused))]
    const fresh = create()
    for (let run = 0; run < 3; ++run) seen.push(await attempt(() => addon.planRun(fresh)))
    addon.planDispose(old)
    addon.planDispose(unused)
    seen.push(await attempt(() => addon.planRun(fresh)))
    addon.planDispose(fresh)
    print({ seen, poisoned, meanwhile: [...meanwhile], late })`
  const { env, lines } = machine(fakeDriver, { ...pageable, ...once(3) })
  const closed = [
    'ERR_CUDA',
    /^device 0 was closed after a failure: make plans, layers and models of it again/,
  ]
  t.match(await scriptResult(script, env), {
    seen: [null, null, null, ['ERR_CUDA', cause], null, null, null, null],
    poisoned: ['ERR_CUDA', cause],
    meanwhile: ['ERR_CUDA'],
    late: [closed, closed],
  })
  t.strictSame(clean(lines), [])
  t.equal(lines('replay').length, 6, 'two of the old plan and the failed one, three of the fresh one')
  t.equal(lines('destroy').length, 1, 'the graph of the fresh plan')
})

t.test('calls that are in flight when the context fails', async t => {
  const script = `${scriptHead}
    const n = 5003
    const cast = () => addon.runCuda(0, 'cast', { srcDtype: 'f32', dstDtype: 'f16', count: n, saturate: false,
      src: new Float32Array(n), dst: new Uint16Array(n) })
    const open = async () => { for (;;) { if (await attempt(() => addon.openDevice(0)) === undefined) return } }
    let failed = 0
    for (let round = 0; round < 30; ++round) {
      await open()
      const results = await Promise.all(Array.from({ length: 5 }, () => attempt(cast)))
      failed += results.filter(Boolean).length
    }
    print(failed > 0)`
  const profile = { ...discrete, ...once(7), 'fail.kernel.times': 40, stream: { delay: 1 } }
  const { env, lines } = machine(fakeDriver, profile)
  t.equal(await scriptResult(script, env), true)
  t.strictSame(clean(lines), [])
})

t.test('a context that somebody else holds comes back as it was', async t => {
  const script = `${head}
    const failed = await attempt(() => addon.planRun(create()))
    print([failed, await attempt(() => addon.openDevice(0)), await attempt(() => addon.openDevice(0)),
      await attempt(() => addon.planRun(create()))])`
  const { env, lines } = machine(fakeDriver, { ...pageable, ...once(0), cuda: { retainers: 1 } })
  const restart = [
    'ERR_CUDA',
    /device 0 has a context that failed before.*ONNX Runtime.*: restart the process/,
  ]
  const closed = ['ERR_CUDA', /^device 0 was closed after a failure/]
  t.match(await scriptResult(script, env), [['ERR_CUDA', cause], restart, restart, closed])
  t.strictSame(clean(lines), [], 'and is given back once for each time that it was taken')
})
