// Products that cuBLASLt may form: what it is asked for, and when, on the fake libraries; the choice in plans.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { type Machine, machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda', 'cublaslt'])
t.teardown(() => fakeDriver.dispose())

// 130 tokens, 104 out, 304 in: rows of x are padded to 320.
const script = `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const f32 = count => new Float32Array(count)
  const [T, O, I] = [130, 104, 304]
  const args = {
    weight: { format: 'bf16', rows: O, cols: I, data: new Uint16Array(O * I) }, compute: 'bf16',
    tokens: T, x: f32(T * I), y: f32(T * O), dy: f32(T * O), dx: f32(T * I),
  }
  await addon.openDevice(0)
  const runs = JSON.parse(process.env.RUNS)
  for (const [op, changes] of runs) await addon.runCuda(0, op, { ...args, ...changes })
  console.log(null)
`

/** The products of `runs`, by kernel or library. */
async function products(runs: [op: string, changes: object][], profile: object = {}, env: object = {}) {
  const played = machine(fakeDriver, { ...discrete, ...profile })
  await scriptResult(script, { ...played.env, RUNS: JSON.stringify(runs), ...env })
  return formed(played)
}

/** What a machine formed, by kernel or library. */
const formed = (played: Machine) =>
  played
    .lines('')
    .filter(line => /^(matmul|launch (linear_mma|product_epilogue)|capture|replay)/.test(line))
    .map(line => line.replace(/^launch (\w+) .*/, '$1'))

const six = (changes: object) => Array.from({ length: 6 }, (): [string, object] => ['linear', changes])
const ours = 'linear_mma_64_bf16'
const rows = 'matmul 104 130 304 trans 1 lda 304 ldb 320 ldd 104 workspace 0'
/** Each way to load its kernels, then three times between events. */
const trial = (own: string, other: string) => [other, own, ...Array(3).fill(own), ...Array(3).fill(other)]
const slow = { stream: { delay: 2 } }
const slowOther = { cublaslt: { delay: 2000 } }

t.test('the faster way is kept: a kernel takes 2 ms, cuBLASLt no time', async t => {
  t.same(await products(six({}), slow), [...trial(ours, rows), ours, ...Array(5).fill(rows)])
})

t.test('and so is ours where cuBLASLt takes longer', async t => {
  t.same(await products(six({}), slowOther), [...trial(ours, rows), ...Array(6).fill(ours)])
})

t.test('a layer with an activation is finished in one pass', async t => {
  const calls = [six({ activation: 'relu' })[0]!]
  const found = await products(calls, slow)
  t.same(found.slice(0, 3), [rows, 'product_epilogue', ours])
})

t.test('columns of the weight', async t => {
  const calls = six({}).map((): [string, object] => ['linearBackward', {}])
  const columns = 'matmul 304 130 104 trans 0 lda 304 ldb 128 ldd 304 workspace 0'
  const backward = 'linear_mma_backward_bf16'
  t.same(await products(calls, slow), [...trial(backward, columns), backward, ...Array(5).fill(columns)])
})

t.test('a workspace', async t => {
  const found = await products(six({}).slice(5), { cublaslt: { workspace: 4096 } })
  t.same(found[0], rows.replace(/0$/, '4096'))
})

t.test('our kernel where cuBLASLt cannot', async t => {
  const always = Array.from({ length: 6 }, () => ours)
  t.same(await products(six({}), { cublaslt: { create: 1 } }), always, 'no handle')
  t.same(await products(six({}), { cublaslt: { heuristic: 15 } }), always, 'no algorithm')
  t.same(await products(six({}), { cublaslt: { workspace: 1e9 } }), always, 'a workspace too large')
  t.same(await products(six({}), {}, { DGX_SPARK_CUBLASLT: '0' }), always, 'turned off')
})

/** What a plan of one product forms in two runs, some of whose operands begin at odd elements of their buffers. */
async function formedAtOddPlaces(changes: string) {
  const played = machine(fakeDriver, { ...discrete, ...slow, 'pointer.alignment': 2 })
  const [head] = script.split('const runs')
  const code = `${head}
    const odd = array => new array.constructor(array.length + 1).subarray(1)
    const handle = addon.planCreate([{ op: 'linear', args: { ...args, ${changes} } }], 0)
    for (let run = 0; run < 2; ++run) await addon.planRun(handle)
    console.log(null)`
  await scriptResult(code, played.env)
  t.same(played.lines('misaligned'), [], `no operand that cuBLASLt would fault at, with ${changes}`)
  return formed(played)
}

t.test('an output at an odd element takes its sums by way of aligned memory', async t => {
  const finish = 'product_epilogue'
  const expected = [...trial(ours, rows), rows, finish, 'capture', rows, finish, 'replay']
  t.same(await formedAtOddPlaces('y: odd(args.y)'), expected)
})

t.test('a weight at an odd element is left to our kernel, an activation is packed', async t => {
  const weight = await formedAtOddPlaces('weight: { ...args.weight, data: odd(args.weight.data) }')
  t.same(weight, [ours, 'capture', ours, 'replay'])
  const x = await formedAtOddPlaces('x: odd(args.x)')
  t.same(x, [...trial(ours, rows), rows, 'capture', rows, 'replay'])
})

t.test('a device has one handle, however often and from where it is opened', async t => {
  const played = machine(fakeDriver, discrete)
  const code = `
    import { Worker } from 'node:worker_threads'
    import { requireAddon } from '#lib/native.js'
    const addon = requireAddon()
    const path = new URL('dist/native.js', 'file://' + process.cwd() + '/').href
    const open = 'import(' + JSON.stringify(path) + ').then(({ requireAddon }) => requireAddon().openDevice(0))'
    const workers = [1, 2].map(() => new Worker(open, { eval: true }))
    const ends = workers.map(worker => new Promise(resolve => worker.on('exit', resolve)))
    await Promise.all([addon.openDevice(0), addon.openDevice(0), ...ends])
    await addon.openDevice(0)
    console.log(null)`
  await scriptResult(code, played.env)
  t.equal(played.lines('create').length, 1)
})

/** What `count` plans of `uses` equal products each form in four runs. */
async function planned(uses: number, profile: object, count = 1) {
  const played = machine(fakeDriver, { ...discrete, ...profile })
  const [head] = script.split('const runs')
  const code = `${head}
    for (let plan = 0; plan < ${count}; ++plan) {
      const steps = Array.from({ length: ${uses} }, () => ({ op: 'linear', args: { ...args, y: f32(T * O) } }))
      const handle = addon.planCreate(steps, 0)
      for (let run = 0; run < 4; ++run) await addon.planRun(handle)
    }
    console.log(null)`
  await scriptResult(code, played.env)
  return { steps: formed(played), into: played.lines('into') }
}

t.test('a plan tries both ways in its first run, and stores what its later runs store', async t => {
  const replays = Array(3).fill('replay')
  for (const uses of [1, 2]) {
    const each = (way: string) => Array(uses).fill(way)
    const other = await planned(uses, slow)
    t.same(other.steps, [...trial(ours, rows), ...each(rows), 'capture', ...each(rows), ...replays])
    const own = await planned(uses, slowOther)
    t.same(own.steps, [...trial(ours, rows), ...each(ours), 'capture', ...each(ours), ...replays])
  }
})

t.test('the next plan of a process knows', async t => {
  const once = [rows, 'capture', rows, ...Array(3).fill('replay')]
  t.same((await planned(1, slow, 2)).steps, [...trial(ours, rows), ...once, ...once])
})

t.test('a trial writes to memory of its own', async t => {
  const { into } = await planned(1, slow)
  const [warm, ...others] = into
  t.same(others.slice(0, 3), Array(3).fill(warm))
  t.not(others[3], warm, 'the run')
  t.same(others.slice(3), Array(2).fill(others[3]), 'the run and the captured one')
})

t.test('a trial that fails is no failure of the product', async t => {
  const profile = { ...slow, 'fail.cuEventElapsedTime': 1 }
  const expected = [...trial(ours, rows), ours, 'capture', ours, ...Array(3).fill('replay')]
  t.same((await planned(1, profile)).steps, expected, 'no times')
  const full = { ...slow, 'fail.cuEventCreate': 2, 'fail.cuEventCreate.times': 1 }
  t.same((await planned(1, full)).steps, [rows, ours, ...expected.slice(8)], 'no event')
})

t.test('a device that is opened again asks with a handle of its own', async t => {
  const [head] = script.split('const runs')
  const code = `${head}
    const failed = await addon.runCuda(0, 'linear', args).catch(error => error.code)
    await addon.openDevice(0)
    for (let run = 0; run < 3; ++run) await addon.runCuda(0, 'linear', { ...args, y: f32(T * O) })
    console.log(JSON.stringify(failed))`
  const played = machine(fakeDriver, { ...discrete, ...slow, 'fail.kernel': 719, 'fail.kernel.times': 1 })
  t.equal(await scriptResult(code, played.env), 'ERR_CUDA')
  t.same(formed(played).slice(8), [ours, ...trial(ours, rows), ours, rows, rows])
  t.same(played.lines('stale'), [])
})
