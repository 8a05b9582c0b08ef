// The CUDA engine against the fake driver: it opens or says why not, and weights stay on the device.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCompiler, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCompiler) {
  t.plan(0, noCompiler)
  process.exit()
}
const fakeDriver = new FakeDriver()
t.teardown(() => fakeDriver.dispose())

const head = `
  import { DoRALinear, Tensor, UnifiedBuffer } from 'dgx-spark'
  import { openKernels } from 'dgx-spark/kernels'
  const warnings = []
  process.on('warning', ({ code }) => warnings.push(code))
  const print = value => console.log(JSON.stringify(value ?? null))
  const attempt = async call => { try { return await call() } catch (error) { return [error.code, error.message] } }
  const idle = async () => {
    for (let i = 0; i < 500 && UnifiedBuffer.stats().blocks > 0; ++i) await new Promise(next => setTimeout(next, 10))
    return UnifiedBuffer.stats().blocks
  }
`
t.test('the engine', { skip: noCudaCalls }, async t => {
  const script = `${head}
    const kernels = await openKernels({ backend: 'cuda' })
    const args = { weight: { format: 'f32', rows: 1, cols: 1, data: new Float32Array(1) }, out: new Float32Array(1) }
    print([kernels.supports('linear'), await attempt(() => kernels.runSync('weightNorm2', args))])`
  t.match(await scriptResult(script, machine(fakeDriver, integrated).env), [
    true,
    ['ERR_UNSUPPORTED', /weightNorm2.*promise/],
  ])
})

t.test('without a device', async t => {
  const empty = machine(fakeDriver, { ...integrated, gpus: [] })
  const script = `${head} print(await attempt(() => openKernels({ backend: 'cuda' })))`
  t.match(await scriptResult(script, empty.env), ['ERR_NO_CUDA'])
  const second = `${head} print(await attempt(() => openKernels({ backend: 'cuda', device: 7 })))`
  t.match(await scriptResult(second, machine(fakeDriver, integrated).env), ['ERR_NO_CUDA', /7/])
})

t.test('auto', { skip: noCudaCalls }, async t => {
  const script = `${head}
    const kernels = await openKernels()
    await new Promise(resolve => setImmediate(resolve))
    print([kernels.backend, ...warnings])`
  t.strictSame(await scriptResult(script, machine(fakeDriver, integrated).env), ['cuda'])
  const disabled = { ...machine(fakeDriver, integrated).env, DGX_SPARK_ENABLED: '0' }
  t.strictSame(await scriptResult(script, disabled), ['cpu'])
  const broken = machine(fakeDriver, { ...integrated, fail: { cuDevicePrimaryCtxRetain: 999 } })
  t.strictSame(
    await scriptResult(script, broken.env),
    ['cpu', 'SPARK_CUDA'],
    'what does not start is replaced',
  )
})

t.test('a driver that is older than the kernels', { skip: noCudaCalls }, async t => {
  const script = `${head}
    const messages = []
    process.on('warning', ({ message }) => messages.push(message))
    const explicit = await attempt(() => openKernels({ backend: 'cuda' }))
    const { backend } = await openKernels()
    await new Promise(resolve => setImmediate(resolve))
    const { checkSystem } = await import('#lib/diagnostics/check.js')
    const driver = (await checkSystem()).find(({ name }) => name === 'CUDA driver')
    print({ explicit, backend, messages, driver })`
  const needs = /compiled with CUDA 13.0 and the NVIDIA driver runs CUDA 12.8: they need driver 580 or newer/
  for (const code of [200, 209, 222]) {
    const old = machine(fakeDriver, { ...discrete, cudaVersion: 12080, fail: { cuModuleLoadData: code } })
    t.match(await scriptResult(script, old.env), {
      explicit: ['ERR_CUDA', needs],
      backend: 'cpu',
      messages: [needs],
      driver: { status: 'problem', found: needs, next: /580/ },
    })
  }
  const fitting = machine(fakeDriver, { ...discrete, fail: { cuModuleLoadData: 209 } })
  t.match(await scriptResult(script, fitting.env), {
    explicit: ['ERR_CUDA', /no kernels for the GPU/],
    driver: { status: 'ok', found: 'CUDA 13.0' },
  })
  const one = machine(fakeDriver, {
    ...discrete,
    fail: { cuModuleLoadData: 209, 'cuModuleLoadData.times': 1 },
  })
  t.match(await scriptResult(script, one.env), { backend: 'cuda' }, 'one family may be missing')
})

t.test('a layer holds its weight on the device and frees it', { skip: noCudaCalls }, async t => {
  const script = `${head}
    const [rows, cols] = [512, 1024]
    const layer = await DoRALinear.fromLinear({ weight: Tensor.zeros([rows, cols]) }, { backend: 'cuda', rank: 2 })
    for (let i = 0; i < 3; ++i) await layer.forward(Tensor.zeros([2, cols]), { training: true })
    await layer.backward(Tensor.zeros([2, rows]))
    const held = UnifiedBuffer.stats().bytes.managed
    const pending = layer.forward(Tensor.zeros([2, cols]))
    layer.dispose()
    print({ backend: layer.backend, held, shape: (await pending).shape, blocks: await idle() })`
  const slowPinned = { ...integrated, delay: { cuMemHostAlloc: 5 } }
  for (const profile of [slowPinned, discrete]) {
    const { env, lines } = machine(fakeDriver, profile)
    t.strictSame(await scriptResult(script, env), {
      backend: 'cuda',
      held: 512 * 1024 * 4,
      shape: [2, 512],
      blocks: 0,
    })
    t.equal(lines(`alloc cuMemAllocManaged ${512 * 1024 * 4}`).length, 1)
    t.strictSame(lines('free in use'), [])
  }
})
