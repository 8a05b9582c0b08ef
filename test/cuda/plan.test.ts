// Plans against the stand-in driver: run one by one, captured, replayed; copies, failures, dispose, workers.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'
import { scriptHead } from '../fixtures/stand-in/script-head.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const standIn = new StandIn(['cuda'])
t.teardown(() => standIn.dispose())

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
    [discrete, 3],
    [integrated, 0],
  ] as const) {
    const { env, lines } = machine(standIn, { ...profile, ...filled })
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
  const large = machine(standIn, discrete)
  t.strictSame(await scriptResult(script, large.env), { before: 0, held: 5, after: 5 })
  const small = machine(standIn, integrated)
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
    const { env, lines } = machine(standIn, { ...profile, ...filled })
    t.match(await scriptResult(script, env), {
      seen: [-1, -1, -1, true, true, true, 5, 5, 5],
      busy: ['ERR_ARGUMENT', /plan is running/],
      disposed: ['ERR_DISPOSED', /./],
    })
    t.strictSame(lines('instantiate'), [`instantiate 2 kernels ${copies} copies`], 'of x alone')
  }
})

t.test('blocks that the device reaches are used where they are', async t => {
  const script = `${head}
    const buffer = await UnifiedBuffer.allocate(n * 4), view = buffer.view(Float32Array)
    const plan = addon.planCreate([cast('f32', 'f16', view, middle), cast('f16', 'f32', middle, view)], 0, { scratch: [middle.buffer] })
    buffer.dispose()
    print(await attempt(() => addon.planRun(plan)))`
  const { env, lines } = machine(standIn, discrete)
  t.match(await scriptResult(script, env), ['ERR_DISPOSED', /has been detached or disposed/])
  t.strictSame(lines('launch'), [])
})

t.test('no address of the host reaches the device, not even that of no elements', async t => {
  const script = `${head}
    const mapped = new Float32Array(1 << 20) // where the stand-in knows an address of the host
    const sum = { op: 'reduce', args: { fn: 'sum', dtype: 'f32', shape: [3], reduced: [0], strides: [0], reducedStrides: [1],
      x: mapped.subarray(0, 0), y } }
    const plan = addon.planCreate([sum], 0)
    print(await attempt(() => addon.planRun(plan)))`
  const { env, lines } = machine(standIn, discrete)
  t.equal(await scriptResult(script, env), null)
  t.equal(lines('launch').length, 1)
})

t.test('one run at a time; dispose while it runs', async t => {
  const script = `${head}
    const plan = create(), run = addon.planRun(plan)
    const second = await attempt(() => addon.planRun(plan))
    addon.planDispose(plan)
    await run
    for (let i = 0; i < 500 && UnifiedBuffer.stats().blocks > 0; ++i) {
      await new Promise(next => setTimeout(next, 10))
    }
    print({ second, blocks: UnifiedBuffer.stats().blocks })`
  const { env, lines } = machine(standIn, { ...discrete, stream: { delay: 50 } })
  t.match(await scriptResult(script, env), { second: ['ERR_ARGUMENT', /plan is running/], blocks: 0 })
  t.strictSame(lines('free in use'), [])
})

t.test('without capture every run is eager', async t => {
  const script = `${head}
    const plan = create()
    for (let run = 0; run < 3; ++run) await addon.planRun(plan)
    print(addon.planProblem(plan))`
  const old = new StandIn(['cuda'], ['NO_cuStreamBeginCapture_v2'])
  t.teardown(() => old.dispose())
  const { env, lines } = machine(old, discrete)
  t.equal(await scriptResult(script, env), 'the NVIDIA driver has no CUDA graphs')
  t.equal(lines('launch').length, 6)
  for (const symbol of ['cuStreamBeginCapture', 'cuStreamEndCapture', 'cuGraphInstantiate']) {
    const { env, lines } = machine(standIn, { ...discrete, fail: { [symbol]: 801 } })
    t.match(await scriptResult(script, env), 'CUDA_ERROR_NOT_SUPPORTED')
    t.strictSame(lines('replay'), [], symbol)
  }
})

t.test('a warning, once, where plans run without graphs', async t => {
  const script = `
    import { openCudaKernels } from '#lib/runtime/cuda.js'
    const warnings = []
    process.on('warning', ({ code, message }) => warnings.push([code, message]))
    const kernels = await openCudaKernels()
    const x = new Float32Array(7), y = new Float32Array(7)
    const plan = kernels.prepare([{ op: 'unary', args: { fn: 'exp', dtype: 'f32', count: 7, x, y } }])
    for (let run = 0; run < 4; ++run) await plan.run()
    plan.dispose()
    await new Promise(setImmediate)
    console.log(JSON.stringify(warnings))`
  const { env } = machine(standIn, { ...discrete, fail: { cuGraphInstantiate: 801 } })
  t.match(await scriptResult(script, env), [['SPARK_CUDA', /plans run without CUDA graphs.*NOT_SUPPORTED/]])
})

t.test('failures are named, and the plan runs again', async t => {
  const script = `${head}
    const unknown = await attempt(() => addon.planCreate([{ op: 'packWeight', args: {} }], 0))
    const plan = create(), seen = []
    for (let run = 0; run < 4; ++run) seen.push(await attempt(() => addon.planRun(plan)))
    print({ unknown, seen })`
  const { env } = machine(standIn, { ...discrete, 'fail.cuLaunchKernel': 2, 'fail.cuLaunchKernel.times': 1 })
  t.match(await scriptResult(script, env), {
    unknown: ['ERR_UNSUPPORTED', /step 0 of the plan, packWeight/],
    seen: [['ERR_OUT_OF_MEMORY', /step 0 of the plan, cast: launching kernel/], null, null, null],
  })
  const replayed = machine(standIn, { ...discrete, 'fail.cuGraphLaunch': 700 })
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
  const { env, lines } = machine(standIn, { ...discrete, stream: { delay: 60 } })
  t.equal(await scriptResult(script, env), 'ended')
  t.strictSame(lines('free in use'), [])
})
