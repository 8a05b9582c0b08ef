// Which kind of memory a plan uses on a GPU that shares the host's: the one measured fastest, on the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { type Machine, machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

interface Choice {
  resident: string
  held: string
  passing: string
  measured: { kind: string; resident: number; passing: number }[]
}

// x is cast to f16 in `middle` and back to y; no other allocation has their sizes.
const head = `${scriptHead}
  const n = 50003
  const x = new Float32Array(n), middle = new Uint16Array(n), y = new Float32Array(n + 3)
  const cast = (srcDtype, dstDtype, src, dst) =>
    ({ op: 'cast', args: { srcDtype, dstDtype, count: n, saturate: false, src, dst } })
  const create = () =>
    addon.planCreate([cast('f32', 'f16', x, middle), cast('f16', 'f32', middle, y)], 0, { scratch: [middle.buffer] })
  await addon.openDevice(0)
`
const script = `${head}
  const choice = await addon.measureMemory(0)
  const again = await addon.measureMemory(0)
  const plan = create()
  for (let run = 0; run < 3; ++run) await addon.planRun(plan)
  addon.planDispose(plan)
  print([choice, again])`

/** The calls that allocated each buffer of the plan: x, middle, y. */
const allocations = (played: Machine) =>
  [200012, 100006, 200024].map(bytes =>
    played
      .lines('alloc')
      .filter(line => line.endsWith(` ${bytes}`))
      .map(line => line.split(' ')[1]),
  )

const calls = { device: 'cuMemAlloc', pinned: 'cuMemHostAlloc', managed: 'cuMemAllocManaged' } as const
const kinds = Object.keys(calls) as (keyof typeof calls)[]

/** Milliseconds that slow kinds take longer: more than a busy machine adds to the others. */
const slower = 50

t.test('the fastest kind, measured once', async t => {
  for (const fast of kinds) {
    const slow = kinds.filter(kind => kind !== fast)
    const delay = Object.fromEntries(slow.map(kind => [calls[kind], slower]))
    const played = machine(fakeDriver, { ...integrated, delay })
    const [choice, again] = (await scriptResult(script, played.env)) as [Choice, Choice]
    t.strictSame(again, choice, 'asked again')
    t.match(choice, { resident: fast, passing: fast })
    if (fast !== 'device') t.equal(choice.held, fast)
    t.strictSame(
      choice.measured.map(({ kind }) => kind),
      kinds,
    )
    t.ok(
      choice.measured.every(speed => speed.resident > 0 && speed.passing > 0),
      'rates',
    )
    const moved = ['cuMemAlloc', 'cuMemHostAlloc']
    const passing = fast === 'device' ? moved : [calls[fast]]
    t.strictSame(allocations(played), [passing, [calls[fast]], passing], fast)
    t.equal(
      played.lines('launch').length,
      3 * (4 * 8 + 4) + 4,
      'three kinds were measured, then the plan ran',
    )
    t.strictSame(played.lines('bad'), [])
    t.strictSame(played.lines('free in use'), [])
  }
})

t.test('memory that was measured is given back', async t => {
  const played = machine(fakeDriver, integrated)
  await scriptResult(`${head} await addon.measureMemory(0); print(0)`, played.env)
  t.equal(played.lines('alloc').length, 7, 'two a kind, one more on the way to device memory')
  t.equal(played.lines('free').length, 7)
  const bytes = played.lines('alloc').map(line => Number(line.split(' ')[2]))
  t.ok(Math.max(...bytes) <= 100 << 20, 'at a time')
})

t.test('a kind that cannot be had is left out', async t => {
  const [gpu] = integrated.gpus
  const attributes = { ...gpu!.attributes, 89: 0 }
  const unmanaged = machine(fakeDriver, { ...integrated, gpus: [{ ...gpu, attributes }] })
  const [choice] = (await scriptResult(script, unmanaged.env)) as [Choice]
  t.strictSame(
    choice.measured.map(({ kind }) => kind),
    ['device', 'pinned'],
  )
  const second = { 'fail.cuMemHostAlloc.after': 1, 'fail.cuMemHostAlloc.times': 1 } // after that on the way to device memory
  const full = machine(fakeDriver, { ...integrated, 'fail.cuMemHostAlloc': 2, ...second })
  const [rest] = (await scriptResult(script, full.env)) as [Choice]
  t.strictSame(
    rest.measured.map(({ kind }) => kind),
    ['device', 'managed'],
  )
})

t.test('a kernel that ruins the context while it is measured is an error', async t => {
  const failing = machine(fakeDriver, { ...integrated, 'fail.kernel': 719, 'fail.kernel.times': 1 })
  const found = await scriptResult(`${head} print(await attempt(() => addon.measureMemory(0)))`, failing.env)
  t.match(found, ['ERR_CUDA', /719/])
})

t.test('a GPU with memory of its own has no choice', async t => {
  const played = machine(fakeDriver, discrete)
  const [choice] = (await scriptResult(script, played.env)) as [Choice]
  t.strictSame(choice, { resident: 'device', passing: 'device', held: 'managed', measured: [] })
  const moved = ['cuMemAlloc', 'cuMemHostAlloc']
  t.strictSame(allocations(played), [moved, ['cuMemAlloc'], moved])
  t.equal(played.lines('launch').length, 4)
})

t.test('weights that all plans share lie in memory that JavaScript sees', async t => {
  const held = `
    import { openCudaKernels } from '#lib/kernels/cuda.js'
    const kernels = await openCudaKernels()
    const { array, dispose } = await kernels.hold(new Float32Array(50003).fill(3))
    const last = array[50002]
    dispose()
    console.log(JSON.stringify(last))`
  for (const [slow, call] of [
    ['cuMemHostAlloc', 'cuMemAllocManaged'],
    ['cuMemAllocManaged', 'cuMemHostAlloc'],
  ] as const) {
    const played = machine(fakeDriver, { ...integrated, delay: { [slow]: slower } })
    t.equal(await scriptResult(held, played.env), 3)
    t.strictSame(allocations(played)[0], [call])
  }
})
