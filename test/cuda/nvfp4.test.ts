// Products with compute 'nvfp4' on the fake driver, whose kernels and whose cuBLASLt compute nothing: every way
// that a GPU has is tested in a child process, found wrong, named in one warning, and replaced.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
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

/** A GPU of some compute capability. */
const capable = (computeCapability: string) => ({
  ...discrete,
  gpus: [{ ...discrete.gpus[0], computeCapability }],
})
const blackwell = capable('12.1')

// 130 tokens, 101 out, 320 in.
const head = `
  import { openCudaKernels } from '#lib/kernels/cuda.js'
  const warnings = []
  process.on('warning', ({ name, code, message }) => warnings.push([name, code, message]))
  const attempt = async call => { try { return await call() } catch (error) { return [error.code, error.message] } }
  const [T, O, I] = [130, 101, 320]
  const f32 = count => new Float32Array(count)
  const weight = { format: 'nvfp4', rows: O, cols: I, data: new Uint8Array(O * I / 2), blockScale: new Uint8Array(O * I / 16), tensorScale: 1 }
  const args = (tokens = T) => ({ weight, tokens, x: f32(tokens * I), y: f32(tokens * O), compute: 'nvfp4' })
  const kernels = await openCudaKernels()
  const finish = async value => {
    await new Promise(setImmediate)
    console.log(JSON.stringify({ warnings, value: value ?? null }))
  }
`
interface Answer {
  warnings: [name: string, code: string, message: string][]
  value: unknown
}

/** What two products say and launch. */
async function products(profile: object, env: object = {}, script = '') {
  const played = machine(fakeDriver, { ...profile, pointer: { alignment: 4 } })
  const code = `${head}${script || `await kernels.run('linear', args()); await kernels.run('linear', args())`}; await finish()`
  const { warnings } = (await scriptResult(code, { ...played.env, ...env })) as Answer
  const lines = played.lines('').filter(line => /^(matmul|launch)/.test(line))
  return { warnings, lines: lines.map(line => line.replace(/^launch (\w+) grid (\d+) .*/, '$1 $2')) }
}

// Of the test, with 213 tokens, 272 out, 704 in.
const activation = 'nvfp4_activation_codes 213'
const own = [activation, 'linear_fp4_mma 6']
const swizzled = [activation, 'swizzle_scales 44', 'swizzle_scales 66'] // 2 and 3 by 11 tiles
const matmul = 'matmul fp4 272 213 704 trans 1 lda 704 ldb 768 ldd 272 workspace 0'
const cublaslt = [...swizzled, matmul, 'product_epilogue 42']
/** A product without FP4 tensor cores. */
const fallback = ['nvfp4_activation_bf16 130', 'linear_mma_64_nvfp4 6']

t.test('a GPU of compute capability 12.1: our kernel and cuBLASLt', async t => {
  for (const profile of [blackwell, capable('12.0')]) {
    const { warnings, lines } = await products(profile)
    t.match(warnings, [
      [
        'DgxSparkWarning',
        'SPARK_CUDA',
        /^FP4 tensor cores of CUDA device 0: our kernel differs from the CPU: y\[0, 0\] is nan and should be .*\. cuBLASLt differs .*are formed on its tensor cores for bf16/,
      ],
    ])
    t.equal(warnings.length, 1, 'one warning for two ways and two products')
    t.same(lines, [...own, ...cublaslt, ...fallback, ...fallback])
  }
})

t.test('compute capability 10.0: cuBLASLt alone', async t => {
  const profile = capable('10.0')
  const { warnings, lines } = await products(profile)
  t.match(warnings, [
    ['DgxSparkWarning', 'SPARK_CUDA', /^FP4 tensor cores of CUDA device 0: cuBLASLt differs/],
  ])
  t.same(lines, [...cublaslt, ...fallback, ...fallback])
  const without = await products({ ...profile, cublaslt: { fp4: 15 } })
  t.match(without.warnings, [
    ['DgxSparkWarning', 'SPARK_CUDA', /neither this addon nor cuBLASLt has products/],
  ])
  t.same(without.lines, [...swizzled, ...fallback, ...fallback])
})

t.test('a GPU without FP4, and switches', async t => {
  const hopper = await products(discrete)
  t.same(hopper, { warnings: [], lines: [...fallback, ...fallback] })
  const off = await products(blackwell, { DGX_SPARK_NVFP4: '0' })
  t.same(off, { warnings: [], lines: [...fallback, ...fallback] })
  const ours = await products(blackwell, { DGX_SPARK_CUBLASLT: '0' })
  t.match(ours.warnings, [['DgxSparkWarning', 'SPARK_CUDA', /^[^:]*: our kernel differs((?!cuBLASLt).)*$/]])
  t.same(ours.lines, [...own, ...swizzled, ...fallback, ...fallback])
})

t.test('few rows need no FP4', async t => {
  const { lines } = await products(blackwell, {}, `await kernels.run('linear', args(7))`)
  const few = ['nvfp4_activation_bf16 7', 'linear_mma_8_nvfp4 7']
  t.same(lines, [...own, ...cublaslt, ...few])
})

t.test('what a way does to the process of its test is a reason, and harms nobody else', async t => {
  const failures: [profile: object, problem: RegExp][] = [
    [
      { 'fail.cuLaunchKernel': 1, 'fail.cuLaunchKernel.times': 1 },
      /our kernel failed: launching kernel nvfp4_activation_codes failed/,
    ],
    [
      { 'kernel.linear_fp4_mma.fault': 715 },
      /our kernel failed: .*ILLEGAL_INSTRUCTION 715 .* cuBLASLt differs/,
    ],
    [{ 'kernel.linear_fp4_mma.fault': 700 }, /our kernel failed: .*700.* cuBLASLt differs/],
    [
      { 'kernel.linear_fp4_mma.signal': 11 },
      /our kernel failed: its test ended with SIGSEGV. cuBLASLt differs/,
    ],
  ]
  for (const [profile, problem] of failures) {
    // What the user has on the GPU goes on: memory, a context, a product after the test.
    const script = `
      import { UnifiedBuffer } from 'dgx-spark'
      const buffer = await UnifiedBuffer.allocate(1 << 16, { kind: 'managed' })
      const outcomes = []
      for (let i = 0; i < 2; ++i) outcomes.push(await attempt(() => kernels.run('linear', args())) ?? 'ok')
      buffer.dispose()
      await finish(outcomes)`
    const once = 'fail.cuLaunchKernel' in profile
    const played = machine(fakeDriver, { ...blackwell, ...profile })
    const { warnings, value } = (await scriptResult(head + script, played.env)) as Answer
    t.match(warnings, [['DgxSparkWarning', 'SPARK_CUDA', problem]])
    t.equal(warnings.length, 1)
    if (!once) t.same(value, ['ok', 'ok'], String(problem))
  }
})

t.test('calls keep their order while the test runs', async t => {
  const script = `
    const order = []
    const note = name => () => order.push(name)
    const norm = { weight: { ...weight }, out: f32(O) }
    await Promise.all([
      kernels.run('linear', args()).then(note('product')),
      kernels.run('weightNorm2', norm).then(note('norm')),
      kernels.run('linear', args()).then(note('second product')),
      kernels.run('weightNorm2', norm).then(note('second norm')),
    ])
    await finish(order)`
  const played = machine(fakeDriver, blackwell)
  const { value } = (await scriptResult(head + script, played.env)) as Answer
  t.same(value, ['product', 'norm', 'second product', 'second norm'])
  const launched = played.lines('launch').map(line => line.split(' ')[1])
  const last = launched.slice(launched.lastIndexOf('product_epilogue') + 1)
  const product = ['nvfp4_activation_bf16', 'linear_mma_64_nvfp4']
  t.same(last, [...product, 'weight_norm2_nvfp4', ...product, 'weight_norm2_nvfp4'])
})

/** The cache of a machine: its only file. */
const cacheOf = (env: Record<string, string>) => path.join(env.XDG_CACHE_HOME!, 'dgx-spark', 'fp4.json')

const product = `await kernels.run('linear', args())`
const launchesTensorFp4 = (played: Machine) => played.lines('launch linear_fp4_mma').length

t.test('a verdict is kept for the driver, the GPU and cuBLASLt', async t => {
  const played = machine(fakeDriver, blackwell)
  const run = async (env: object = {}, script = product) =>
    (await scriptResult(`${head}${script}; await finish()`, { ...played.env, ...env })) as Answer
  const first = await run()
  t.equal(launchesTensorFp4(played), 1)
  const again = await run()
  t.equal(launchesTensorFp4(played), 1, 'not tested again')
  t.equal(again.warnings.length, 1, 'and the warning names the file')
  t.match(again.warnings[0]![2], cacheOf(played.env))
  t.match(first.warnings[0]![2], /our kernel differs/)

  const text = readFileSync(cacheOf(played.env), 'utf8')
  const [key] = Object.keys(JSON.parse(text))
  t.match(key, /driver .*13000; NVIDIA GB10|NVIDIA H200 GPU-.* 12.1; cuBLASLt 130100; dgx-spark \d/)
  await run({ DGX_SPARK_CUBLASLT: '0' })
  t.equal(launchesTensorFp4(played), 2, 'without cuBLASLt it is another question')

  writeFileSync(cacheOf(played.env), JSON.stringify({ [key!]: { own: '', cublaslt: null } }))
  t.same((await run()).warnings, [])
  t.equal(launchesTensorFp4(played), 3, 'the product of the user, by what the cache says is right')
  const otherDriver = fakeDriver.env({ ...blackwell, cudaVersion: 13010 })
  const { warnings } = await run({ DGX_SPARK_FAKE_DRIVER: otherDriver.DGX_SPARK_FAKE_DRIVER! })
  t.equal(warnings.length, 1, 'another driver is tested')
  t.equal(Object.keys(JSON.parse(readFileSync(cacheOf(played.env), 'utf8'))).length, 2)
})

t.test(
  'a model with activations in NVFP4 quantizes them and multiplies, in two launches a layer',
  async t => {
    const played = machine(fakeDriver, blackwell)
    await scriptResult(`${head}${product}; await finish()`, played.env)
    const [key] = Object.keys(JSON.parse(readFileSync(cacheOf(played.env), 'utf8')))
    writeFileSync(cacheOf(played.env), JSON.stringify({ [key!]: { own: '', cublaslt: null } }))
    const launchesOf = async (activations: string) => {
      const script = `
      import { GraphBuilder, Model, Tensor } from 'dgx-spark'
      const g = new GraphBuilder()
      const x = g.input('x', 'f32', [T, I])
      const first = g.initializer('first', Tensor.random([I, 128], { seed: 1 }))
      const second = g.initializer('second', Tensor.random([128, O], { seed: 2 }))
      g.output(g.add('MatMul', [g.add('Relu', [g.add('MatMul', [x, first])]), second]), 'y')
      const model = await Model.fromGraph(g.build(), { backend: 'cuda', precision: 'nvfp4', activations: '${activations}' })
      await model.run({ x: f32(T * I) })
      model.dispose()`
      const before = played.lines('launch').length
      await scriptResult(`${head}${script}; await finish()`, played.env)
      const lines = played.lines('launch').slice(before)
      return lines
        .map(line => line.split(' ')[1])
        .filter(name => !/^(fill|cast|elementwise|unary)/.test(name!))
    }
    const layer = ['nvfp4_activation_codes', 'linear_fp4_mma']
    t.same(await launchesOf('nvfp4'), [...layer, ...layer])
    const batch = 'linear_mma_64_nvfp4'
    t.same(
      await launchesOf('f32'),
      ['pack_rows_bf16', batch, batch],
      'the first product rounds for the second',
    )
  },
)

t.test('a product rounds its results with a scale that is given, as it stores them', async t => {
  const script = `
    const wide = { ...weight, rows: 128, data: new Uint8Array(128 * I / 2), blockScale: new Uint8Array(128 * I / 16) }
    for (const tokens of [T, 7])
      await kernels.run('linear', { ...args(tokens), weight: wide, y: undefined, yScale: 1, yRounded: new Uint16Array(tokens * 128) })
    const sizes = { tokens: 70, sequences: 1, heads: 2, kvHeads: 1, depth: 64, rotary: 0, blocks: 5, blockSize: 16, table: 5 }
    const rows = { query: f32(70 * 128), key: f32(70 * 64), value: f32(70 * 64), keyCache: f32(80 * 64), valueCache: f32(80 * 64) }
    const tables = { starts: Int32Array.of(0, 70), past: Int32Array.of(0), block: Int32Array.of(0, 1, 2, 3, 4) }
    const results = { compute: 'bf16', yScale: 1, yRounded: new Uint16Array(70 * 128) }
    await kernels.run('pagedAttention', { ...sizes, ...rows, ...tables, ...results, scale: 1 })`
  const launchesOf = async (played: Machine, env: object) => {
    await scriptResult(`${head}${script}; await finish()`, { ...played.env, ...env })
    return played.lines('launch').map(line => line.split(' ')[1])
  }
  const few = ['nvfp4_activation_bf16', 'linear_mma_8_nvfp4_rounded']
  const hopper = await launchesOf(machine(fakeDriver, discrete), {})
  const attention = ['paged_prepare_f32', 'paged_attention_mma_bf16_f32_64']
  const rounding = 'nvfp4_activation_bf16'
  t.same(hopper, [rounding, 'linear_mma_64_nvfp4', rounding, ...few, ...attention, rounding])
  const played = machine(fakeDriver, blackwell)
  await scriptResult(`${head}${product}; await finish()`, played.env)
  const [key] = Object.keys(JSON.parse(readFileSync(cacheOf(played.env), 'utf8')))
  writeFileSync(cacheOf(played.env), JSON.stringify({ [key!]: { own: '', cublaslt: null } }))
  const before = played.lines('launch').length
  const launches = (await launchesOf(played, {})).slice(before)
  t.same(launches, ['nvfp4_activation_codes', 'linear_fp4_mma_rounded', ...few, ...attention])
})

t.test('products that read the same rows have them rounded once', async t => {
  const launchesOf = async (played: Machine, tokens: number) => {
    const script = `
      import { GraphBuilder, Model, Tensor } from 'dgx-spark'
      const g = new GraphBuilder()
      const x = g.input('x', 'f32', [${tokens}, I])
      const products = (rows, count) => {
        for (let i = 0; i < count; ++i)
          g.output(g.add('MatMul', [rows, g.initializer('w' + rows + i, Tensor.random([I, 128], { seed: i }))]), rows + i)
      }
      const scale = g.initializer('scale', Tensor.random([I], { seed: 9 }))
      products(g.add('LayerNormalization', [x, scale]), 3)
      products(g.add('Abs', [x]), 2)
      const model = await Model.fromGraph(g.build(), { backend: 'cuda', precision: 'nvfp4', activations: 'nvfp4' })
      await model.run({ x: f32(${tokens} * I) })
      model.dispose()`
    const before = played.lines('launch').length
    await scriptResult(`${head}${script}; await finish()`, { ...played.env, DGX_SPARK_CUBLASLT: '0' })
    const lines = played.lines('launch').slice(before)
    return lines.map(line => line.split(' ')[1]!).filter(name => /^(norm|nvfp4|linear)/.test(name))
  }
  const expected = (form: string, product: string) => [
    ...[`norm_nvfp4_${form}`, product, product, product],
    ...[`nvfp4_activation_${form}`, product, product],
  ]
  const hopper = machine(fakeDriver, discrete)
  t.same(await launchesOf(hopper, 130), expected('bf16', 'linear_mma_64_nvfp4'))
  t.same(await launchesOf(hopper, 5), expected('bf16', 'linear_mma_8_nvfp4'), 'few rows')
  const played = machine(fakeDriver, blackwell)
  await launchesOf(played, 130)
  const [key] = Object.keys(JSON.parse(readFileSync(cacheOf(played.env), 'utf8')))
  writeFileSync(cacheOf(played.env), JSON.stringify({ [key!]: { own: '', cublaslt: null } }))
  t.same(await launchesOf(played, 130), expected('codes', 'linear_fp4_mma'), 'FP4 tensor cores')
})

t.test('a cache that is damaged or cannot be written is done without', async t => {
  const damages = ['', '{', '[]', 'null', '{"a":null,"b":{"own":1}}', '\0'.repeat(100)]
  for (const damage of damages) {
    const played = machine(fakeDriver, blackwell)
    mkdirSync(path.dirname(cacheOf(played.env)), { recursive: true })
    writeFileSync(cacheOf(played.env), damage)
    await scriptResult(`${head}${product}; await finish()`, played.env)
    t.equal(launchesTensorFp4(played), 1, damage)
    t.equal(Object.keys(JSON.parse(readFileSync(cacheOf(played.env), 'utf8'))).length, 1, 'and is replaced')
  }
  const played = machine(fakeDriver, blackwell)
  writeFileSync(played.env.XDG_CACHE_HOME!, 'a file in the place of the folder')
  const { warnings } = (await scriptResult(`${head}${product}; await finish()`, played.env)) as Answer
  t.equal(warnings.length, 1, 'the test is there for this process')
})

t.test('where no test gives an answer, products go to tensor cores for bf16 and nothing is kept', async t => {
  // As under --permission, which the runner of these tests does not bear.
  const denied = `
    const { default: child } = await import('node:child_process')
    child.execFile = () => { throw new Error('Access to this API has been restricted') }
    ;(await import('node:module')).syncBuiltinESMExports()`
  const refused: [why: RegExp, profile: object, before: string][] = [
    [/OUT_OF_MEMORY/, { fail: { cuMemHostAlloc: 2 } }, ''],
    [/ENOENT|EACCES/, {}, `process.execPath = '/nowhere/node'`],
    [/ended with 1$/, {}, `process.execPath = '/bin/false'`],
    [/restricted/, {}, denied],
  ]
  for (const [why, profile, before] of refused) {
    const played = machine(fakeDriver, { ...blackwell, ...profile })
    const code = `${head}${before}; await attempt(() => kernels.run('linear', args())); await finish()`
    const { warnings } = (await scriptResult(code, played.env)) as Answer
    const ours = warnings.filter(([, code]) => code === 'SPARK_CUDA')
    t.equal(ours.length, 1)
    t.match(ours[0]?.[2], /could not be tested, so products .* for bf16, of the same numbers: /)
    t.match(ours[0]?.[2], why)
    t.throws(() => readFileSync(cacheOf(played.env)), { code: 'ENOENT' })
  }
})

t.test('a kernel that never ends is killed', async t => {
  const { env } = machine(fakeDriver, { ...blackwell, 'kernel.linear_fp4_mma.delay': 100_000 })
  const script = `
    import { testFp4 } from '#lib/kernels/fp4-test.js'
    console.log(JSON.stringify(await testFp4('${blackwell.gpus[0]!.uuid}', 'own', 4000)))`
  t.equal(await scriptResult(script, env), 'failed: its test did not end in 4 s')
})

t.test('a plan tests before its first run, which is not captured, and warns once', async t => {
  const script = `
    const plan = kernels.prepare([{ op: 'linear', args: args() }])
    for (let run = 0; run < 3; ++run) await plan.run()
    plan.dispose()`
  const played = machine(fakeDriver, blackwell)
  const { warnings } = (await scriptResult(`${head}${script}; await finish()`, played.env)) as Answer
  t.match(warnings, [['DgxSparkWarning', 'SPARK_CUDA', /^FP4 tensor cores/]])
  t.equal(played.lines('launch linear_fp4_mma').length, 1)
  t.equal(played.lines('replay').length, 2)
})

t.test('workers warn each, and one answer holds for all', async t => {
  const script = `
    import { Worker } from 'node:worker_threads'
    await kernels.run('linear', args())
    const text = \`
      import { parentPort } from 'node:worker_threads'
      import { openCudaKernels } from '\${new URL('dist/kernels/cuda.js', 'file://' + process.cwd() + '/')}'
      const warnings = []
      process.on('warning', ({ message }) => warnings.push(message))
      const [T, O, I] = [130, 101, 320]
      const weight = { format: 'nvfp4', rows: O, cols: I, data: new Uint8Array(O * I / 2), blockScale: new Uint8Array(O * I / 16), tensorScale: 1 }
      const kernels = await openCudaKernels()
      await kernels.run('linear', { weight, tokens: T, x: new Float32Array(T * I), y: new Float32Array(T * O), compute: 'nvfp4' })
      await new Promise(setImmediate)
      parentPort.postMessage(warnings.length)\`
    const worker = new Worker(text, { eval: true })
    await finish(await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject)))`
  const played = machine(fakeDriver, blackwell)
  const { warnings, value } = (await scriptResult(head + script, played.env)) as Answer
  t.equal(warnings.length, 1)
  t.equal(value, 1)
  t.equal(launchesTensorFp4(played), 1, 'tested once: the worker reads the cache')
})

t.test('what no product in nvfp4 can be', async t => {
  const script = `
    const bf16 = { format: 'bf16', rows: O, cols: I, data: new Uint16Array(O * I) }
    const { y, ...rest } = args()
    const dora = { ...rest, rank: 1, scale: 1, a: f32(I), b: f32(O), gain: f32(O), xa: f32(T), y, mask: f32(T * I) }
    await finish([
      await attempt(() => kernels.run('linear', { ...args(), weight: bf16 })),
      await attempt(() => kernels.run('linearBackward', { ...rest, dy: y, dbias: f32(O) })),
      await attempt(() => kernels.run('doraForward', dora)),
    ])`
  const { value } = (await scriptResult(head + script, machine(fakeDriver, blackwell).env)) as Answer
  t.match(value, [
    ['ERR_UNSUPPORTED', /compute nvfp4 is for weights of nvfp4; this one is bf16/],
    ['ERR_UNSUPPORTED', /compute nvfp4 is for linear layers, not for gradients/],
    ['ERR_UNSUPPORTED', /nvfp4 has no dropout/],
  ])
})
