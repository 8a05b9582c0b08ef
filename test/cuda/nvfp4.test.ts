// Products with compute 'nvfp4' on the stand-in driver, whose kernels and whose cuBLASLt compute nothing: every way
// that a GPU has is asked for, found wrong, named in one warning, and replaced.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { noCudaCalls, StandIn } from '../fixtures/stand-in/stand-in.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const standIn = new StandIn(['cuda', 'cublaslt'])
t.teardown(() => standIn.dispose())

/** A GPU of some compute capability. */
const capable = (computeCapability: string) => ({
  ...discrete,
  gpus: [{ ...discrete.gpus[0], computeCapability }],
})
const blackwell = capable('12.1')

// 130 tokens, 101 out, 304 in.
const head = `
  import { openCudaKernels } from '#lib/runtime/cuda.js'
  const warnings = []
  process.on('warning', ({ name, code, message }) => warnings.push([name, code, message]))
  const attempt = async call => { try { return await call() } catch (error) { return [error.code, error.message] } }
  const [T, O, I] = [130, 101, 304]
  const f32 = count => new Float32Array(count)
  const weight = { dtype: 'nvfp4', rows: O, cols: I, data: new Uint8Array(O * I / 2), blockScale: new Uint8Array(O * I / 16), tensorScale: 1 }
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
  const played = machine(standIn, { ...profile, pointer: { alignment: 4 } })
  const code = `${head}${script || `await kernels.run('linear', args()); await kernels.run('linear', args())`}; await finish()`
  const { warnings } = (await scriptResult(code, { ...played.env, ...env })) as Answer
  const lines = played.lines('').filter(line => /^(matmul|launch)/.test(line))
  return { warnings, lines: lines.map(line => line.replace(/^launch (\w+) grid (\d+) .*/, '$1 $2')) }
}

// Of the test, with 37 tokens, 144 out, 160 in.
const operands = [
  'amax_f32 2',
  'amax_finish 1',
  'nvfp4_activation_codes 16', // 128 rows of 16 blocks
  'swizzle_scales 12', // 2 x 3 tiles
]
const own = [...operands, 'tensor_fp4 2']
const cublaslt = [...operands, 'matmul fp4 144 37 160 trans 1 lda 160 ldb 256 ldd 144 workspace 0']
/** A product without FP4 tensor cores. */
const fallback = ['amax_f32 10', 'amax_finish 1', 'nvfp4_activation_bf16 21', 'tensor_nvfp4 2']

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
  t.same(without.lines, [...operands, ...fallback, ...fallback])
})

t.test('a GPU without FP4, and switches', async t => {
  const hopper = await products(discrete)
  t.same(hopper, { warnings: [], lines: [...fallback, ...fallback] })
  const off = await products(blackwell, { DGX_SPARK_NVFP4: '0' })
  t.same(off, { warnings: [], lines: [...fallback, ...fallback] })
  const ours = await products(blackwell, { DGX_SPARK_CUBLASLT: '0' })
  t.match(ours.warnings, [['DgxSparkWarning', 'SPARK_CUDA', /^[^:]*: our kernel differs((?!cuBLASLt).)*$/]])
  t.same(ours.lines, [...own, ...operands, ...fallback, ...fallback])
})

t.test('few rows are not tested, and need no FP4', async t => {
  const { warnings, lines } = await products(blackwell, {}, `await kernels.run('linear', args(7))`)
  t.same(warnings, [])
  t.same(lines, ['amax_f32 1', 'amax_finish 1', 'nvfp4_activation_bf16 2', 'tensor_8_nvfp4 7'])
})

t.test('a launch that fails in the test is a reason, not an error', async t => {
  const profile = { ...blackwell, 'fail.cuLaunchKernel': 1, 'fail.cuLaunchKernel.times': 1 }
  const { warnings, lines } = await products(profile)
  t.match(warnings, [
    ['DgxSparkWarning', 'SPARK_CUDA', /our kernel failed: launching kernel amax_f32 failed/],
  ])
  t.same(lines.slice(-4), fallback)
})

t.test('a test that ruins the context is not tried again', async t => {
  const script = `
    const outcomes = [await attempt(() => kernels.run('linear', args()))]
    const again = await openCudaKernels()
    outcomes.push(await attempt(() => again.run('linear', args())))
    await finish(outcomes.map(outcome => outcome ?? 'ok'))`
  const played = machine(standIn, { ...blackwell, 'fail.kernel': 715, 'fail.kernel.times': 1 })
  const { warnings, value } = (await scriptResult(head + script, played.env)) as Answer
  t.match(value, [['ERR_CUDA', /715/], 'ok'])
  t.match(warnings, [['DgxSparkWarning', 'SPARK_CUDA', /our kernel failed: waiting for the kernels failed/]])
  t.equal(played.lines('launch tensor_fp4').length, 1)
})

t.test('a plan tests in its first run, which is not captured, and warns once', async t => {
  const script = `
    const plan = kernels.prepare([{ op: 'linear', args: args() }])
    for (let run = 0; run < 3; ++run) await plan.run()
    plan.dispose()`
  const played = machine(standIn, blackwell)
  const { warnings } = (await scriptResult(`${head}${script}; await finish()`, played.env)) as Answer
  t.match(warnings, [['DgxSparkWarning', 'SPARK_CUDA', /^FP4 tensor cores/]])
  t.equal(played.lines('launch tensor_fp4').length, 1)
  t.equal(played.lines('replay').length, 2)
})

t.test('what no product in nvfp4 can be', async t => {
  const script = `
    const bf16 = { dtype: 'bf16', rows: O, cols: I, data: new Uint16Array(O * I) }
    const { y, ...rest } = args()
    const dora = { ...rest, rank: 1, scale: 1, a: f32(I), b: f32(O), gain: f32(O), xa: f32(T), y, mask: f32(T * I) }
    await finish([
      await attempt(() => kernels.run('linear', { ...args(), weight: bf16 })),
      await attempt(() => kernels.run('linearBackward', { ...rest, dy: y, dbias: f32(O) })),
      await attempt(() => kernels.run('doraForward', dora)),
    ])`
  const { value } = (await scriptResult(head + script, machine(standIn, blackwell).env)) as Answer
  t.match(value, [
    ['ERR_UNSUPPORTED', /compute nvfp4 is for weights of nvfp4; this one is bf16/],
    ['ERR_UNSUPPORTED', /compute nvfp4 is for linear layers, not for gradients/],
    ['ERR_UNSUPPORTED', /nvfp4 has no dropout/],
  ])
})
