// What the GPU suite launches, on the fake driver, which checks every launch against the machine code of its
// kernel: no launch is refused, and no kernel of any family is left out.
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

const nameIn = (line: string) => line.split(' ')[1]!

/** What the suite does not come to: products that cuBLASLt does faster. */
const rest = `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const f32 = count => new Float32Array(count)
  const [tokens, rows, cols] = [130, 104, 304]
  const weight = { format: 'bf16', rows, cols, data: new Uint16Array(rows * cols) }
  const product = { weight, tokens, x: f32(tokens * cols), y: f32(tokens * rows), compute: 'bf16', activation: 'relu' }
  await addon.openDevice(0)
  for (let i = 0; i < 6; ++i) await addon.runCuda(0, 'linear', product)
  const half = { ...product, weight: { ...weight, format: 'f16' }, compute: 'f16' }
  for (let i = 0; i < 6; ++i) await addon.runCuda(0, 'linear', half)
  console.log(null)`

/** What only a GPU with FP4 tensor cores launches, by our kernel, or by a cuBLASLt that may have no such product. */
const fp4 = (own: boolean) => `
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  const [tokens, rows, cols] = [130, 104, 320]
  const weight = { format: 'nvfp4', rows, cols, data: new Uint8Array(rows * cols / 2), blockScale: new Uint8Array(rows * cols / 16), tensorScale: 1 }
  const [x, rounded] = [new Float32Array(tokens * cols), new Uint16Array(tokens * cols)]
  const product = { weight, tokens, y: new Float32Array(tokens * rows), compute: 'nvfp4' }
  await addon.openDevice(0)
  addon.allowFp4(0, ${own}, ${!own})
  await addon.runCuda(0, 'linear', { ...product, x, xRounded: rounded })
  await addon.runCuda(0, 'norm', { rows: tokens, cols, groups: 1, inner: 1, centered: true, eps: 0, x, yRounded: rounded })
  await addon.runCuda(0, 'linear', { ...product, x: rounded, xDtype: 'nvfp4' })
  const wide = { ...weight, rows: 128, data: new Uint8Array(128 * cols / 2), blockScale: new Uint8Array(128 * cols / 16) }
  await addon.runCuda(0, 'linear', { weight: wide, tokens, x, compute: 'nvfp4', yScale: 1, yRounded: new Uint16Array(tokens * 128) })
  console.log(JSON.stringify(await addon.testFp4(0, 'own')))`

t.test('every kernel is launched, and every launch is right', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver(['cuda', 'nvml', 'cublaslt'])
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, discrete)
  const { stdout } = spawnSync(process.execPath, ['test/gpu/kernels.test.js'], {
    encoding: 'utf8',
    env: { ...process.env, ...env, DGX_SPARK_GPU_SIZES: 'small' },
    timeout: 240_000,
    maxBuffer: 64 << 20,
  })
  const [unchecked] = lines('unchecked')
  if (unchecked) {
    t.pass('kernels that can be read', { skip: unchecked })
    return
  }
  const refused = stdout.split('\n').filter(line => /ERR_|CUDA_ERROR|argument \d+ of kernel/.test(line))
  t.strictSame(refused, [], 'refused launches')

  const slow = machine(fakeDriver, { ...discrete, stream: { delay: 2 } })
  await scriptResult(rest, slow.env)
  const blackwell = machine(fakeDriver, integrated)
  const without = machine(fakeDriver, { ...integrated, cublaslt: { fp4: 15 } })
  const fp4Runs: [own: boolean, env: Record<string, string>][] = [
    [true, blackwell.env],
    [false, blackwell.env],
    [false, without.env],
  ]
  for (const [own, env] of fp4Runs) {
    const result = await scriptResult(fp4(own), env)
    t.notMatch(result, /ERR_|CUDA_ERROR|argument \d+ of kernel/)
  }
  const kernels = new Set(lines('kernel ').map(nameIn))
  const logs = [lines, slow.lines, blackwell.lines, without.lines]
  const launched = new Set(logs.flatMap(log => log('launch ')).map(nameIn))
  t.ok(kernels.size > 50, `${kernels.size} kernels`)
  t.strictSame([...kernels].filter(kernel => !launched.has(kernel)).sort(), [], 'kernels nobody launches')
})
