// Managed and pinned memory against the fake driver: kinds, hints, every failure an allocation can meet.
import t from 'tap'
import { runScript, scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated, withoutManaged } from '../fixtures/machines.js'

if (noCompiler) {
  t.plan(0, noCompiler)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

t.test('auto chooses what the device has', async t => {
  const script = `${scriptHead}
    const buffer = await UnifiedBuffer.allocate(5001)
    const zeros = buffer.view(Uint8Array).every(byte => byte === 0)
    buffer.view(Uint8Array, 5000)[0] = 3
    const raw = await UnifiedBuffer.allocate(33, { zeroed: false })
    const result = { kind: buffer.kind, zeroCopy: buffer.zeroCopy, zeros, stats: UnifiedBuffer.stats() }
    buffer.dispose(); raw.dispose()
    print({ ...result, after: UnifiedBuffer.stats().blocks })`
  for (const [profile, kind] of [
    [integrated, 'managed'],
    [discrete, 'managed'],
    [withoutManaged, 'pinned'],
  ] as const) {
    const { env, lines } = machine(fakeDriver, profile)
    const bytes = { managed: 0, pinned: 0, device: 0, host: 0, [kind]: 5034 }
    t.match(await scriptResult(script, env), {
      kind,
      zeroCopy: true,
      zeros: true,
      stats: { blocks: 2, bytes, peakBytes: 5034 },
      after: 0,
    })
    t.equal(lines('alloc').length, 2)
    t.equal(lines('free').length, 2, 'the driver got its memory back')
    t.strictSame(lines('bad'), [])
  }
})

t.test('explicit kinds are given or refused', async t => {
  const script = `${scriptHead}
    const kinds = {}
    for (const kind of ['managed', 'pinned', 'host'])
      kinds[kind] = await attempt(async () => (await UnifiedBuffer.allocate(9, { kind })).kind)
    kinds.other = await attempt(() => UnifiedBuffer.allocate(9, { device: 3 }))
    print(kinds)`
  t.match(await scriptResult(script, machine(fakeDriver, discrete).env), {
    managed: 'managed',
    pinned: 'pinned',
    host: 'host',
    other: ['ERR_NO_CUDA', /device is 3, which no GPU has; there are 0 \(NVIDIA H200, GPU-/],
  })
  t.match(await scriptResult(script, machine(fakeDriver, withoutManaged).env), {
    managed: ['ERR_UNSUPPORTED', /no managed memory; use kind 'pinned'/],
    pinned: 'pinned',
  })
  t.match(await scriptResult(script, { ...machine(fakeDriver, discrete).env, DGX_SPARK_ENABLED: '0' }), {
    managed: ['ERR_DISABLED', /DGX_SPARK_ENABLED=0/],
    pinned: ['ERR_DISABLED', /use kind 'host'/],
    host: 'host',
  })
})

t.test('unified memory off', async t => {
  const script = `${scriptHead}
    const warnings = []
    process.on('warning', warning => warnings.push(warning.code))
    const auto = await UnifiedBuffer.allocate(9), again = await UnifiedBuffer.allocate(9)
    const managed = await UnifiedBuffer.allocate(9, { kind: 'managed' })
    await new Promise(resolve => setImmediate(resolve))
    print([auto.kind, auto.zeroCopy, auto.view(Uint8Array).length, managed.kind, managed.zeroCopy, warnings])`
  const { env } = machine(fakeDriver, integrated)
  t.strictSame(await scriptResult(script, { ...env, DGX_SPARK_UNIFIED_MEMORY: '0' }), [
    'host',
    false,
    9,
    'managed',
    true,
    ['SPARK_NO_ZERO_COPY'],
  ])
})

t.test('hints reach the driver for managed memory only', async t => {
  const script = `${scriptHead}
    const managed = await UnifiedBuffer.allocate(9), pinned = await UnifiedBuffer.allocate(9, { kind: 'pinned' })
    print([managed.prefetch('gpu'), managed.prefetch('cpu'), managed.advise('accessedBy'),
      managed.advise('preferredLocation', 'cpu'), pinned.prefetch('gpu'), pinned.advise('readMostly')])`
  const { env, lines } = machine(fakeDriver, integrated)
  t.strictSame(await scriptResult(script, env), [true, true, true, true, false, false])
  t.strictSame(lines('prefetch'), ['prefetch 0 gpu', 'prefetch 0 cpu'])
  t.strictSame(lines('advise'), ['advise 5 gpu', 'advise 3 cpu'])

  const old = new FakeDriver(['cuda'], ['NO_cuMemAdvise_v2', 'NO_cuMemPrefetchAsync_v2'])
  t.teardown(() => old.dispose())
  t.strictSame(await scriptResult(script, old.env(integrated)), Array(6).fill(false))
})

t.test('every failure of an allocation is an error and leaves nothing behind', async t => {
  const script = `${scriptHead}
    const outcomes = []
    for (let i = 0; i < 3; ++i)
      outcomes.push(await attempt(async () => { (await UnifiedBuffer.allocate(999)).dispose(); return 'ok' }))
    print({ outcomes, blocks: UnifiedBuffer.stats().blocks })`
  for (const symbol of [
    'cuDevicePrimaryCtxRetain',
    'cuStreamCreate',
    'cuMemAllocManaged',
    'cuMemsetD8Async',
    'cuStreamSynchronize',
  ]) {
    for (const code of [1, 2, 999]) {
      const { env, lines } = machine(fakeDriver, {
        ...integrated,
        [`fail.${symbol}`]: code,
        [`fail.${symbol}.times`]: 1,
      })
      const first = code === 2 ? 'ERR_OUT_OF_MEMORY' : 'ERR_CUDA'
      const result = await scriptResult(script, env)
      t.match(result, { outcomes: [[first, /CUDA_ERROR_/], 'ok', 'ok'], blocks: 0 }, `${symbol}=${code}`)
      t.equal(lines('alloc').length, lines('free').length, `${symbol}=${code}: everything is freed`)
    }
  }
})

t.test('out of memory says what to do', async t => {
  const { env } = machine(fakeDriver, { ...integrated, fail: { cuMemAllocManaged: 2 } })
  const script = `${scriptHead} print(await attempt(() => UnifiedBuffer.allocate(12345)))`
  t.match(await scriptResult(script, env), [
    'ERR_OUT_OF_MEMORY',
    /allocating 12345 bytes of managed memory failed on device 0: CUDA_ERROR_OUT_OF_MEMORY.*dispose buffers/,
  ])
})

t.test('a ruined context poisons the device until its buffers are gone', async t => {
  const script = `${scriptHead}
    const survivor = await UnifiedBuffer.allocate(16)
    const view = survivor.view(Uint8Array)
    const first = await attempt(() => UnifiedBuffer.allocate(16))
    const second = await attempt(() => UnifiedBuffer.allocate(16))
    const run = await attempt(() => addon.runCuda(0, 'cast', {}))
    const hint = await attempt(() => survivor.prefetch('gpu'))
    view[3] = 5 // still readable and writable
    survivor.dispose()
    const fresh = await UnifiedBuffer.allocate(16)
    print({ first, second, run, hint, kind: fresh.kind, zero: fresh.view(Uint8Array)[3] })`
  const { env } = machine(fakeDriver, {
    ...integrated,
    'fail.cuMemAllocManaged': 700,
    'fail.cuMemAllocManaged.after': 1,
    'fail.cuMemAllocManaged.times': 1,
  })
  const cause = /allocating 16 bytes.*CUDA_ERROR_ILLEGAL_ADDRESS/
  t.match(await scriptResult(script, env), {
    first: ['ERR_CUDA', cause],
    second: ['ERR_CUDA', /cannot be opened again while 1 buffers.*dispose them.*ILLEGAL_ADDRESS/],
    run: ['ERR_CUDA', cause],
    hint: ['ERR_CUDA', cause],
    kind: 'managed',
    zero: 0,
  })
})

t.test('1,000 rounds of create and dispose end where they began', async t => {
  const script = `${scriptHead}
    for (let round = 0; round < 1000; ++round) {
      const buffer = await UnifiedBuffer.allocate(1 + round * 37, { kind: ['managed', 'pinned', 'host'][round % 3] })
      buffer.view(Uint8Array)[round] = 1
      buffer.dispose()
    }
    print(UnifiedBuffer.stats())`
  const { env, lines } = machine(fakeDriver, discrete)
  t.match(await scriptResult(script, env), {
    blocks: 0,
    bytes: { managed: 0, pinned: 0, device: 0, host: 0 },
  })
  t.equal(lines('alloc').length, 667)
  t.equal(lines('free').length, 667)
})

t.test('the process ends by itself with buffers alive', async t => {
  const { env } = machine(fakeDriver, integrated)
  const outcome = await runScript(
    `${scriptHead} globalThis.kept = await UnifiedBuffer.allocate(1 << 20)`,
    env,
  )
  t.match(outcome, { code: 0, signal: null, stderr: '' })
})
