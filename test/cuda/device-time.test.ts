// The time that runs of a plan take on the device, by events of the fake driver.
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

// x is cast to f16 in `middle` and back to y.
const head = `${scriptHead}
  const n = 5003
  const x = new Float32Array(n), middle = new Uint16Array(n), y = new Float32Array(n + 3)
  const cast = (srcDtype, dstDtype, src, dst) =>
    ({ op: 'cast', args: { srcDtype, dstDtype, count: n, saturate: false, src, dst } })
  const steps = [cast('f32', 'f16', x, middle), cast('f16', 'f32', middle, y)]
  const create = () => addon.planCreate(steps, 0, { scratch: [middle.buffer] })
  await addon.openDevice(0)
`
const filled = { kernel: { cast_f16_f32: { fill: 1 } } }

t.test('events tell how long a run took on the device, from the first question on', async t => {
  const script = `${head}
    const plan = create()
    await addon.planRun(plan)
    const asked = addon.planDeviceMs(plan)
    const unmeasured = addon.planDeviceMs(plan)
    await addon.planRun(plan)
    const once = addon.planDeviceMs(plan)
    await addon.planRun(plan, false, 5)
    const repeated = addon.planDeviceMs(plan)
    const running = addon.planRun(plan)
    const busy = await attempt(() => addon.planDeviceMs(plan))
    await running
    addon.planDispose(plan)
    const onCpu = addon.planCreate([cast('f32', 'f16', x, middle)])
    print({ asked, unmeasured, once, repeated, busy, cpu: addon.planDeviceMs(onCpu) })`
  const { env, lines } = machine(fakeDriver, { ...discrete, ...filled })
  const told = (await scriptResult(script, env)) as Record<'once' | 'repeated', number>
  t.match(told, { asked: null, unmeasured: null, busy: ['ERR_ARGUMENT', /running/], cpu: null })
  t.ok(told.once >= 0 && told.repeated >= 0, `${told.once} ms, ${told.repeated} ms`)
  t.equal(lines('replay').length, 7)
})
