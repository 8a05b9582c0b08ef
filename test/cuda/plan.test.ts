// Plans against the fake driver: run one by one, captured, replayed; copies, failures, dispose, workers.
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

t.test('the first run is eager, the second is captured, later ones replay', async t => {
  const script = `${head}
    const plan = create(), seen = []
    for (let run = 0; run < 4; ++run) {
      x.fill(run)
      y.fill(-1)
      await addon.planRun(plan)
      seen.push(new Uint32Array(y.buffer)[0] === 0x42424242, addon.planProblem(plan))
    }
    addon.planDispose(plan)
    addon.planDispose(plan)
    print({ seen, disposed: await attempt(() => addon.planRun(plan)) })`
  for (const [profile, copies] of [
    [discrete, 2],
    [integrated, 0],
  ] as const) {
    const { env, lines } = machine(fakeDriver, { ...profile, ...filled })
    t.match(await scriptResult(script, env), {
      seen: Array(4).fill([true, '']).flat(),
      disposed: ['ERR_DISPOSED', /plan has been disposed/],
    })
    t.equal(lines('launch').length, 4, 'twice two: eager and captured')
    t.strictSame(lines('capture'), ['capture'])
    t.strictSame(lines('instantiate'), [`instantiate 2 kernels ${copies} copies`])
    t.equal(lines('replay').length, 3)
  }
})

t.test('memory is placed once, resident memory is copied once', async t => {
  const script = `${head}
    const before = UnifiedBuffer.stats().blocks
    const plan = create()
    const held = UnifiedBuffer.stats().blocks
    await addon.planRun(plan)
    await addon.planRun(plan)
    print({ before, held, after: UnifiedBuffer.stats().blocks })`
  const large = machine(fakeDriver, discrete)
  t.strictSame(await scriptResult(script, large.env), { before: 0, held: 5, after: 5 })
  const small = machine(fakeDriver, integrated)
  t.strictSame(await scriptResult(script, small.env), { before: 0, held: 3, after: 3 })
})

t.test('state stays on the device until it is asked for', async t => {
  const script = `${head}
    const plan = addon.planCreate(steps, 0, { scratch: [middle.buffer], state: [y.buffer] })
    const seen = [], look = () => seen.push(y[0], y[n - 1], y[n])
    const bytes = new Float32Array(new Uint32Array([0x42424242]).buffer)[0]
    y.fill(-1)
    for (let run = 0; run < 3; ++run) await addon.planRun(plan)
    look()
    const fetching = addon.planFetch(plan)
    const busy = await attempt(() => addon.planStore(plan))
    await fetching
    look()
    y.fill(5)
    await addon.planStore(plan)
    y.fill(6)
    await addon.planFetch(plan)
    look()
    addon.planDispose(plan)
    print({ seen: seen.map(value => value === bytes || value), busy, disposed: await attempt(() => addon.planFetch(plan)) })`
  for (const [profile, copies] of [
    [discrete, 1],
    [integrated, 0],
  ] as const) {
    const { env, lines } = machine(fakeDriver, { ...profile, ...filled })
    t.match(await scriptResult(script, env), {
      seen: [-1, -1, -1, true, true, -1, 5, 5, 6],
      busy: ['ERR_ARGUMENT', /plan is running/],
      disposed: ['ERR_DISPOSED', /./],
    })
    t.strictSame(lines('instantiate'), [`instantiate 2 kernels ${copies} copies`], 'of x alone')
  }
})

t.test('what the steps do not write of an ArrayBuffer stays as JavaScript leaves it', async t => {
  // x and two outputs that touch lie in one ArrayBuffer, with neighbours that somebody else writes during each run.
  const script = `${head}
    const all = new Float32Array(4 * n)
    const [from, to] = [all.subarray(7, n + 7), all.subarray(n + 20, 3 * n + 20)]
    const plan = addon.planCreate([cast('f32', 'f16', from, middle),
      cast('f16', 'f32', middle, to.subarray(0, n)), cast('f16', 'f32', middle, to.subarray(n))], 0, { scratch: [middle.buffer] })
    const neighbours = [all.subarray(0, n + 20), all.subarray(3 * n + 20)]
    const seen = []
    for (let run = 1; run <= 4; ++run) {
      all.fill(-1)
      const running = addon.planRun(plan)
      for (const each of neighbours) each.fill(run)
      await running
      seen.push(neighbours.every(each => each.every(value => value === run)))
      seen.push(new Uint32Array(all.buffer, to.byteOffset, 2 * n).every(bits => bits === 0x42424242))
    }
    print(seen)`
  for (const [profile, copies] of [
    [discrete, ['copy 20012', 'copy 40024']],
    [integrated, []],
  ] as const) {
    const { env, lines } = machine(fakeDriver, { ...profile, ...filled })
    t.strictSame(await scriptResult(script, env), Array(8).fill(true))
    t.strictSame(lines('copy'), copies, 'x there, both outputs back')
    t.match(lines('instantiate'), [new RegExp(` ${copies.length} copies`)])
  }
})

t.test('gaps of a strided output stay as JavaScript leaves them', async t => {
  const script = `${head}
    const rows = 5, width = 7
    const table = new Float32Array(3 + rows * width), part = new Float32Array(rows * 2)
    const columns = (at, src) => ({ op: 'copyStrided', args: { dtype: 'f32', shape: [rows, 2],
      srcOffset: 0, srcStrides: [2, 1], dstOffset: 3 + at, dstStrides: [width, 1], src, dst: table } })
    const product = { op: 'matmul', args: { outer: 1, inner: 1, m: rows, n: 2, k: 1, alpha: 1, a: part, aStrides: [0, 0, 1, 1],
      b: part, bStrides: [0, 0, 1, 1], y: table.subarray(3), yStrides: [0, 0, width, 1] } }
    const written = (columns) => Array.from(new Uint32Array(table.buffer), (bits, i) =>
      i >= 3 && columns.includes((i - 3) % width) ? bits === 0x42424242 : table[i] === 9).every(Boolean)
    const run = async (start, columns) => {
      table.fill(5)
      const running = start()
      table.fill(9)
      await running
      return written(columns)
    }
    const seen = []
    for (const [steps, columns_] of [[[columns(1, part)], [1, 2]], [[product], [0, 1]],
      [[columns(1, part), columns(3, part), columns(5, part)], [1, 2, 3, 4, 5, 6]]]) {
      const plan = addon.planCreate(steps, 0)
      for (let i = 0; i < 3; ++i) seen.push(await run(() => addon.planRun(plan), columns_))
      addon.planDispose(plan)
    }
    for (const [{ op, args }, columns_] of [[columns(1, part), [1, 2]], [product, [0, 1]]])
      seen.push(await run(() => addon.runCuda(0, op, args), columns_))
    print(seen)`
  const kernel = { copy_strided_32: { fill: 0 }, matmul_f32: { fill: 0 } }
  for (const profile of [discrete, integrated]) {
    t.strictSame(
      await scriptResult(script, machine(fakeDriver, { ...profile, kernel }).env),
      Array(11).fill(true),
    )
  }
})

t.test('what is read before it is written is copied to the device', async t => {
  const script = `${head}
    const exp = (x, y) => ({ op: 'unary', args: { fn: 'exp', dtype: 'f32', count: x.length, x, y } })
    const run = async (steps, memory) => {
      const plan = addon.planCreate(steps, 0, memory)
      await addon.planRun(plan)
      addon.planDispose(plan)
    }
    const half = x.subarray(0, 100)
    await run([exp(x, x)]) // in place
    await run([exp(x, y), exp(y.subarray(0, n), x)]) // y is written before it is read
    await run([exp(half, half), exp(x, y)]) // a part of it is
    await run([exp(half, y), exp(x.subarray(200, 300), y)], { constant: [half] }) // a constant shares the buffer
    print(null)`
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(script, env)
  const all = 4 * 5003
  const copies = [
    [all, all],
    [all, all, all],
    [all, all, 400],
    [all, 400, 400],
  ].flat()
  t.strictSame(lines('copy').sort(), copies.map(bytes => `copy ${bytes}`).sort())
})

t.test('an input that shares its ArrayBuffer with a constant is copied in each run', async t => {
  const script = `
    import { Constant } from '#lib/graph/constant.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    import { openCudaKernels } from '#lib/kernels/cuda.js'
    import { Plan } from '#lib/plan/plan.js'
    const shared = new Float32Array(300)
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [100]) }], outputs: [{ name: 'y' }],
      nodes: [makeNode('Add', ['x', 'c'], ['y'])],
      initializers: new Map([['c', Constant.from('f32', [100], shared.subarray(0, 100))]]),
    })
    const buffers = new Map([['x', shared.subarray(100, 200)], ['y', shared.subarray(200)]])
    const plan = await Plan.create(graph, await openCudaKernels(), { buffers })
    for (let run = 0; run < 3; ++run) await plan.runBound()
    plan.dispose()
    console.log('null')`
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(script, env)
  t.strictSame(lines('copy'), ['copy 400', 'copy 400', 'copy 400'], 'c once, then x there and y back')
  t.strictSame(lines('instantiate'), ['instantiate 1 kernels 2 copies'])
})

t.test('many runs in one call replay one captured plan', async t => {
  const script = `
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    import { openCudaKernels } from '#lib/kernels/cuda.js'
    import { Plan } from '#lib/plan/plan.js'
    const graph = makeGraph({
      inputs: [{ name: 'sum', type: tensorType('f32', [100]) }, { name: 'x', type: tensorType('f32', [100]) }],
      nodes: [makeNode('Add', ['sum', 'x'], ['next'])], outputs: [{ name: 'next' }],
      updates: new Map([['sum', 'next']]),
    })
    const states = new Map([['sum', { axis: undefined, capacity: 1 }]])
    const plan = await Plan.create(graph, await openCudaKernels(), { states })
    for (const times of process.env.TIMES.split(',')) await plan.runBound(Number(times))
    plan.dispose()
    console.log('null')`
  for (const times of ['20', '5,15', '1,19']) {
    const { env, lines } = machine(fakeDriver, discrete)
    await scriptResult(script, { ...env, TIMES: times })
    const kernels = Number(lines('instantiate')[0]!.split(' ')[1])
    t.equal(lines('instantiate').length, 1, times)
    t.equal(lines('launch').length, 2 * kernels, 'eager and captured')
    t.equal(lines('replay').length, 19)
  }
})

t.test('blocks that the device reaches are used where they are', async t => {
  const script = `${head}
    const buffer = await UnifiedBuffer.allocate(n * 4), view = buffer.view(Float32Array)
    const plan = addon.planCreate([cast('f32', 'f16', view, middle), cast('f16', 'f32', middle, view)], 0, { scratch: [middle.buffer] })
    buffer.dispose()
    print(await attempt(() => addon.planRun(plan)))`
  const { env, lines } = machine(fakeDriver, discrete)
  t.match(await scriptResult(script, env), ['ERR_DISPOSED', /has been detached or disposed/])
  t.strictSame(lines('launch'), [])
})

t.test('no address of the host reaches the device, not even that of no elements', async t => {
  const script = `${head}
    const mapped = new Float32Array(1 << 20) // where the fake driver knows an address of the host
    const sum = { op: 'reduce', args: { fn: 'sum', dtype: 'f32', shape: [3], reduced: [0], strides: [0], reducedStrides: [1],
      x: mapped.subarray(0, 0), y } }
    const plan = addon.planCreate([sum], 0)
    print(await attempt(() => addon.planRun(plan)))`
  const { env, lines } = machine(fakeDriver, discrete)
  t.equal(await scriptResult(script, env), null)
  t.equal(lines('launch').length, 1)
})

t.test('one run at a time, also after one that is refused; dispose while it runs', async t => {
  const script = `${head}
    const plan = create(), run = addon.planRun(plan)
    const second = await attempt(() => addon.planRun(plan))
    await run
    const profile = await attempt(() => addon.planProfile(plan))
    const last = addon.planRun(plan)
    addon.planDispose(plan)
    await last
    for (let i = 0; i < 500 && UnifiedBuffer.stats().blocks > 0; ++i) {
      await new Promise(next => setTimeout(next, 10))
    }
    print({ second, profile, blocks: UnifiedBuffer.stats().blocks })`
  const { env, lines } = machine(fakeDriver, { ...discrete, stream: { delay: 50 } })
  t.match(await scriptResult(script, env), {
    second: ['ERR_ARGUMENT', /plan is running/],
    profile: ['ERR_UNSUPPORTED', /no clock of their own/],
    blocks: 0,
  })
  t.strictSame(lines('free in use'), [])
})

t.test('without capture every run is eager', async t => {
  const script = `${head}
    const plan = create()
    for (let run = 0; run < 3; ++run) await addon.planRun(plan)
    print(addon.planProblem(plan))`
  const old = new FakeDriver(['cuda'], ['NO_cuStreamBeginCapture_v2'])
  t.teardown(() => old.dispose())
  const { env, lines } = machine(old, discrete)
  t.equal(await scriptResult(script, env), 'the NVIDIA driver has no CUDA graphs')
  t.equal(lines('launch').length, 6)
  for (const symbol of ['cuStreamBeginCapture', 'cuStreamEndCapture', 'cuGraphInstantiate']) {
    const { env, lines } = machine(fakeDriver, { ...discrete, fail: { [symbol]: 801 } })
    t.match(await scriptResult(script, env), 'CUDA_ERROR_NOT_SUPPORTED')
    t.strictSame(lines('replay'), [], symbol)
  }
})

t.test(
  'DGX_SPARK_CUDA_GRAPHS=0: every run is eager, with the same results and without a warning',
  async t => {
    const script = `
    import { openCudaKernels } from '#lib/kernels/cuda.js'
    const warnings = [], seen = []
    process.on('warning', ({ code }) => warnings.push(code))
    const x = new Float32Array(7), y = new Float32Array(9)
    const plan = (await openCudaKernels()).prepare([{ op: 'unary', args: { fn: 'exp', dtype: 'f32', count: 7, x, y } }])
    for (let run = 0; run < 4; ++run) {
      y.fill(run)
      await plan.run()
      seen.push(...new Uint32Array(y.buffer))
    }
    plan.dispose()
    await new Promise(setImmediate)
    console.log(JSON.stringify({ warnings, seen }))`
    const profile = { ...discrete, kernel: { unary_float: { fill: 0 } } }
    const replayed = machine(fakeDriver, profile)
    const eager = machine(fakeDriver, profile)
    const result = await scriptResult(script, { ...eager.env, DGX_SPARK_CUDA_GRAPHS: '0' })
    t.strictSame(result, await scriptResult(script, replayed.env))
    t.match(result, { warnings: [], seen: [0x42424242] })
    t.equal(replayed.lines('replay').length, 3)
    t.strictSame(eager.lines('capture'), [])
    t.equal(eager.lines('launch').length, 4)
  },
)

t.test('a warning, once, where plans run without graphs', async t => {
  const script = `
    import { openCudaKernels } from '#lib/kernels/cuda.js'
    const warnings = []
    process.on('warning', ({ code, message }) => warnings.push([code, message]))
    const kernels = await openCudaKernels()
    const x = new Float32Array(7), y = new Float32Array(7)
    const plan = kernels.prepare([{ op: 'unary', args: { fn: 'exp', dtype: 'f32', count: 7, x, y } }])
    for (let run = 0; run < 4; ++run) await plan.run()
    plan.dispose()
    await new Promise(setImmediate)
    console.log(JSON.stringify(warnings))`
  const { env } = machine(fakeDriver, { ...discrete, fail: { cuGraphInstantiate: 801 } })
  t.match(await scriptResult(script, env), [['SPARK_CUDA', /plans run without CUDA graphs.*NOT_SUPPORTED/]])
})

t.test('failures are named, and the plan runs again', async t => {
  const script = `${head}
    const unknown = await attempt(() => addon.planCreate([{ op: 'packWeight', args: {} }], 0))
    const plan = create(), seen = []
    for (let run = 0; run < 4; ++run) seen.push(await attempt(() => addon.planRun(plan)))
    print({ unknown, seen })`
  const { env } = machine(fakeDriver, {
    ...discrete,
    'fail.cuLaunchKernel': 2,
    'fail.cuLaunchKernel.times': 1,
  })
  t.match(await scriptResult(script, env), {
    unknown: ['ERR_UNSUPPORTED', /step 0 of the plan, packWeight/],
    seen: [['ERR_OUT_OF_MEMORY', /step 0 of the plan, cast: launching kernel/], null, null, null],
  })
  const replayed = machine(fakeDriver, { ...discrete, 'fail.cuGraphLaunch': 700 })
  const { seen } = (await scriptResult(script, replayed.env)) as { seen: unknown[] }
  t.match(seen, [null, ['ERR_CUDA', /launching a plan/], ['ERR_CUDA', /./], ['ERR_CUDA', /./]])
})

t.test('a worker that ends while its plan runs', async t => {
  const source = head.replaceAll(/import (.*) from '(.*)'/g, "const $1 = await import('$2')")
  const script = `
    import { Worker } from 'node:worker_threads'
    const source = ${JSON.stringify(source)} + \`
      const plan = create()
      await addon.planRun(plan)
      addon.planRun(plan)
      const { parentPort } = await import('node:worker_threads')
      parentPort.postMessage('running')\`
    const worker = new Worker(\`(async () => { \${source} })()\`, { eval: true })
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    await worker.terminate()
    console.log(JSON.stringify('ended'))`
  const { env, lines } = machine(fakeDriver, { ...discrete, stream: { delay: 60 } })
  t.equal(await scriptResult(script, env), 'ended')
  t.strictSame(lines('free in use'), [])
})
