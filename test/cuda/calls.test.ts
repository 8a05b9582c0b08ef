// Kernel calls against the fake driver: where operands lie, how promises settle, every failure on the way.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated, withAttributes } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

const head = `${scriptHead}
  const n = 5003
  const cast = (src, dst, count = n) =>
    addon.runCuda(0, 'cast', { srcDtype: 'f32', dstDtype: 'f16', count, saturate: false, src, dst })
  const plain = () => cast(new Float32Array(n), new Uint16Array(n))
  const idle = async () => {
    for (let i = 0; i < 500 && UnifiedBuffer.stats().blocks > 0; ++i) await new Promise(next => setTimeout(next, 10))
    return UnifiedBuffer.stats().blocks
  }
`
// What the fake driver's cast writes, and its launch.
const filled = { kernel: { cast_f32_f16: { fill: 1 } } }
const pattern = 0x4242
const launch = 'launch cast_f32_f16 grid 2 1 1 block 256 1 1 shared 0'

t.test('views of managed memory are used where they are', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const src = await UnifiedBuffer.allocate(n * 4 + 12), dst = await UnifiedBuffer.allocate(n * 2 + 6)
    const out = dst.view(Uint16Array)
    const value = await cast(src.view(Float32Array, 12), out.subarray(1))
    print({ value: value === undefined, before: out[0], first: out[1], last: out[n] })`
  for (const profile of [integrated, discrete]) {
    const { env, lines } = machine(fakeDriver, { ...profile, ...filled })
    t.match(await scriptResult(script, env), { value: true, before: 0, first: pattern, last: pattern })
    t.strictSame(lines('launch'), [launch])
    t.strictSame(
      lines('alloc').map(line => line.split(' ')[1]),
      Array(2).fill('cuMemAllocManaged'),
    )
  }
})

t.test('other arrays are staged and come back', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const out = new Uint16Array(n + 3)
    const host = UnifiedBuffer.allocateSync(n * 4)
    await cast(host.view(Float32Array), out.subarray(1))
    print({ before: out[0], first: out[1], last: out[n], after: [...out.subarray(n + 1)] })`
  const expected = { before: 0, first: pattern, last: pattern, after: [0, 0] }
  const small = machine(fakeDriver, { ...integrated, ...filled })
  t.strictSame(await scriptResult(script, small.env), expected)
  t.strictSame(
    small.lines('alloc').map(line => line.split(' ')[1]),
    Array(2).fill('cuMemHostAlloc'),
  )
  const large = machine(fakeDriver, { ...discrete, ...filled })
  t.strictSame(await scriptResult(script, large.env), expected)
  t.equal(large.lines('alloc cuMemHostAlloc').length, 2)
  t.equal(large.lines('alloc cuMemAlloc ').length, 2)
})

t.test('a device that reads ordinary memory takes host blocks as they are', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const src = UnifiedBuffer.allocateSync(n * 4), dst = await UnifiedBuffer.allocate(n * 2)
    await cast(src.view(Float32Array), dst.view(Uint16Array))
    print(dst.view(Uint16Array)[n - 1])`
  const gb10 = machine(fakeDriver, { ...withAttributes(integrated, { 88: 1, 100: 1 }), ...filled })
  t.equal(await scriptResult(script, gb10.env), pattern)
  t.strictSame(gb10.lines('alloc cuMemHostAlloc'), [])
  // An open driver on x86 reads it by page tables of its own (HMM): page by page, slower than a copy.
  const hmm = machine(fakeDriver, { ...withAttributes(discrete, { 88: 1, 100: 0 }), ...filled })
  t.equal(await scriptResult(script, hmm.env), pattern)
  t.equal(hmm.lines('alloc cuMemHostAlloc').length, 1, 'the operand is staged')
})

t.test('staging memory is used again', async t => {
  const script = `${head}
    await addon.openDevice(0)
    for (let round = 0; round < 300; ++round) await plain()
    await Promise.all([plain(), plain(), plain()])
    print(0)`
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(script, env)
  t.equal(lines('launch').length, 303)
  t.ok(lines('alloc').length <= 12, `${lines('alloc').length} allocations`)
})

t.test('dispose while a kernel works', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const src = await UnifiedBuffer.allocate(n * 4), dst = await UnifiedBuffer.allocate(n * 2)
    const view = dst.view(Uint16Array)
    const call = cast(src.view(Float32Array), view)
    src.dispose()
    dst.dispose()
    const during = UnifiedBuffer.stats().blocks
    await call
    print({ during, length: view.length, after: await idle() })`
  const { env, lines } = machine(fakeDriver, { ...integrated, stream: { delay: 80 } })
  t.strictSame(await scriptResult(script, env), { during: 2, length: 0, after: 0 })
  t.strictSame(lines('free'), Array(2).fill('free cuMemFree'))
})

t.test('outputs that lie between each other bring back their own elements', async t => {
  // Gradients of queries, keys and values in one array [tokens, 3, heads, depth].
  const script = `${head}
    await addon.openDevice(0)
    const [T, H, D] = [5, 2, 4]
    const packed = new Float32Array(T * 3 * H * D), y = new Float32Array(T * H * D)
    const parts = (array) => [0, 1, 2].map(part => array.subarray(part * H * D))
    const strides = [T * 3 * H * D, D, 3 * H * D], dense = [T * H * D, D, H * D]
    const gradients = new Float32Array(T * 3 * H * D).fill(7)
    const [q, k, v] = parts(packed), [dq, dk] = parts(gradients)
    const call = addon.runCuda(0, 'attentionBackward', { batch: 1, heads: H, kvHeads: H, queries: T, keys: T, depth: D, valueDepth: D,
      scale: 1, q, k, v, y, dy: y, logSum: new Float32Array(T * H), qStrides: strides, kStrides: strides, vStrides: strides, yStrides: dense,
      dq, dk })
    gradients.fill(9)
    await call
    const bits = new Uint32Array(gradients.buffer)
    print(Array.from(bits, (value, i) => Math.floor(i / (H * D)) % 3 < 2 ? value === 0x42424242 : gradients[i] === 9).every(Boolean))`
  const kernel = {
    attention_query_gradient_f32: { fill: 0 },
    attention_key_gradient_f32: { fill: 0 },
  }
  for (const profile of [discrete, integrated]) {
    t.equal(await scriptResult(script, machine(fakeDriver, { ...profile, kernel }).env), true)
  }
})

t.test('an output that is detached meanwhile is left alone', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const dst = new Uint16Array(n)
    const call = cast(new Float32Array(n), dst)
    const moved = structuredClone(dst, { transfer: [dst.buffer] })
    await call
    print([dst.length, moved.length, moved[7]])`
  const { env } = machine(fakeDriver, { ...integrated, ...filled, stream: { delay: 30 } })
  t.strictSame(await scriptResult(script, env), [0, 5003, 0])
})

t.test('promises settle in order, off the JavaScript thread, and keep the process alive', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const order = []
    setImmediate(() => order.push('turn'))
    for (const i of [0, 1, 2]) plain().then(() => { if (order.push(i) === 4) print(order) })`
  const { env } = machine(fakeDriver, { ...integrated, stream: { delay: 40 } })
  const order = (await scriptResult(script, env)) as unknown[]
  t.strictSame(
    order.filter(entry => entry !== 'turn'),
    [0, 1, 2],
  )
  t.not(order.at(-1), 'turn', 'the event loop turned meanwhile')
})

t.test('what is wrong with a call is said before anything is enqueued', async t => {
  const script = `${head}
    const closed = await attempt(plain)
    await addon.openDevice(0)
    print({ closed, opened: await attempt(() => addon.openDevice(7)),
      unknown: await attempt(() => addon.runCuda(0, 'paint', {})),
      short: await attempt(() => cast(new Float32Array(n), new Uint16Array(n - 1))),
      dtype: await attempt(() => cast(new Float32Array(n), new Float32Array(n))),
      empty: await attempt(async () => String(await cast(new Float32Array(0), new Uint16Array(0), 0))) })`
  const { env, lines } = machine(fakeDriver, discrete)
  t.match(await scriptResult(script, env), {
    closed: ['ERR_NO_CUDA', /device 0 is not open/],
    opened: ['ERR_NO_CUDA', /no CUDA device 7; the driver reports 1/],
    unknown: ['ERR_UNSUPPORTED', /no operation called 'paint'/],
    short: ['ERR_SHAPE', /dst has 5002 elements but 5003/],
    dtype: ['ERR_DTYPE', /dst/],
    empty: 'undefined',
  })
  t.strictSame(lines('launch'), [])
})

t.test('a failure anywhere is an error, and the next call works', async t => {
  const script = `${head}
    const outcomes = []
    outcomes.push(await attempt(() => addon.openDevice(0)))
    await addon.openDevice(0)
    for (let i = 0; i < 3; ++i) outcomes.push(await attempt(plain))
    print(outcomes)`
  for (const symbol of [
    'cuMemHostAlloc',
    'cuMemAlloc',
    'cuMemcpyAsync',
    'cuModuleGetFunction',
    'cuLaunchKernel',
    'cuEventCreate',
    'cuEventRecord',
    'cuEventSynchronize',
    'kernel',
  ]) {
    for (const code of [1, 999]) {
      const profile = { ...discrete, [`fail.${symbol}`]: code, [`fail.${symbol}.times`]: 1 }
      const { env, lines } = machine(fakeDriver, profile)
      const expected = [null, ['ERR_CUDA', /CUDA_ERROR_/], null, null]
      t.match(await scriptResult(script, env), expected, `${symbol}=${code}`)
      t.strictSame(lines('bad'), [])
      t.strictSame(lines('free in use'), [])
    }
  }
})

t.test('a full device: kept memory is given up before a call fails', async t => {
  const script = `${head}
    await addon.openDevice(0)
    await plain()
    print(await attempt(() => cast(new Float32Array(n * 99), new Uint16Array(n * 99), n * 99)))`
  const once = { 'fail.cuMemHostAlloc': 2, 'fail.cuMemHostAlloc.after': 2, 'fail.cuMemHostAlloc.times': 1 }
  const { env, lines } = machine(fakeDriver, { ...discrete, ...once })
  t.equal(await scriptResult(script, env), null)
  t.equal(lines('free cuMemFreeHost').length, 2)
  const always = machine(fakeDriver, { ...discrete, 'fail.cuMemHostAlloc': 2 })
  t.match(await scriptResult(script, always.env).catch(error => error.message), /ERR_OUT_OF_MEMORY/)
})

t.test('a kernel that ruins the context', async t => {
  const script = `${head}
    await addon.openDevice(0)
    const buffer = await UnifiedBuffer.allocate(n * 4)
    const calls = await Promise.all([1, 2].map(() => attempt(() => cast(buffer.view(Float32Array), new Uint16Array(n)))))
    const later = await attempt(plain)
    const reopened = await attempt(() => addon.openDevice(0))
    buffer.dispose()
    await addon.openDevice(0)
    print({ calls, later, reopened, fresh: await attempt(plain) })`
  const { env } = machine(fakeDriver, {
    ...discrete,
    stream: { delay: 20 },
    'fail.kernel': 719,
    'fail.kernel.times': 1,
  })
  const cause = ['ERR_CUDA', /a kernel failed on device 0.*719.*touched memory/]
  t.match(await scriptResult(script, env), {
    calls: [cause, cause],
    later: cause,
    reopened: ['ERR_CUDA', /cannot be opened again while \d+ buffers/],
    fresh: null,
  })
})

t.test('a driver that does not start', async t => {
  const script = `${head} print([await attempt(() => addon.openDevice(0)), (await UnifiedBuffer.allocate(8)).kind])`
  const { env } = machine(fakeDriver, { ...integrated, cuda: { init: 803 } })
  t.match(await scriptResult(script, env), [['ERR_NO_CUDA', /cuInit failed: CUDA_ERROR_/], 'host'])
})
