// Products and attention of few rows that round their results to NVFP4, against the fake driver: no launch does only that.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

/** The kernels that a script launches where our kernel for FP4 tensor cores may be used. */
async function launched(script: string): Promise<string[]> {
  const { env, lines } = machine(fakeDriver, discrete)
  await scriptResult(
    `${scriptHead}
    await addon.openDevice(0)
    addon.allowFp4(0, true, false)
    ${script}
    print(null)`,
    env,
  )
  return lines('launch').map(line => line.split(' ')[1]!)
}

/** A product of rows with 64 columns that gives as many, in f32 beside the rounded ones or not. */
const product = (tokens: number, isBoth: boolean): Promise<string[]> =>
  launched(`
    const [tokens, rows, cols] = [${tokens}, 64, 64]
    const weight = { format: 'nvfp4', rows, cols, data: new Uint8Array(rows * cols / 2), blockScale: new Uint8Array(rows * cols / 16), tensorScale: 1 }
    const y = ${isBoth} ? { y: new Float32Array(tokens * rows) } : {}
    const yRounded = new Uint16Array(tokens * rows)
    await addon.runCuda(0, 'linear', { weight, tokens, x: new Float32Array(tokens * cols), compute: 'nvfp4', yScale: 1, yRounded, ...y })`)

/** Attention of the rows of one sequence. */
const attention = (tokens: number, depth: number, heads: number): Promise<string[]> =>
  launched(`
    const [tokens, depth, heads, blockSize, table] = [${tokens}, ${depth}, ${heads}, 16, 6]
    const rows = () => new Float32Array(tokens * heads * depth)
    const cache = () => new Uint16Array(table * blockSize * heads * depth)
    await addon.runCuda(0, 'pagedAttention', {
      tokens, heads, kvHeads: heads, depth, blockSize, table, blocks: table, cacheDtype: 'bf16', compute: 'bf16', sequences: 1, rotary: 0, scale: 1,
      query: rows(), key: rows(), value: rows(), y: undefined, yScale: 1, yRounded: new Uint16Array(tokens * heads * depth),
      starts: Int32Array.of(0, tokens), past: Int32Array.of(0), block: Int32Array.from({ length: table }, (_, i) => i),
      keyCache: cache(), valueCache: cache(),
    })`)

t.test('products', async t => {
  for (const isBoth of [false, true]) {
    t.strictSame(await product(1, isBoth), ['nvfp4_activation_bf16', 'linear_mma_8_nvfp4_rounded'])
    t.strictSame(await product(16, isBoth), ['nvfp4_activation_bf16', 'linear_mma_16_nvfp4_rounded'])
    t.strictSame(await product(17, isBoth), ['nvfp4_activation_codes', 'linear_fp4_mma_rounded'])
  }
})

t.test('attention', async t => {
  for (const [tokens, depth, heads] of [
    [1, 64, 2],
    [17, 64, 1],
    [64, 256, 1],
  ] as const)
    t.strictSame(await attention(tokens, depth, heads), [
      'paged_prepare_bf16',
      'paged_attention_bf16',
      'paged_merge_rounded',
    ])
  t.strictSame(await attention(65, 64, 2), ['paged_prepare_bf16', 'paged_attention_mma_bf16_bf16_64'])
  const apart = ['paged_prepare_bf16', 'paged_attention_bf16', 'paged_merge_f32', 'nvfp4_activation_bf16']
  t.strictSame(await attention(9, 8, 8), apart, 'heads that are no whole blocks')
})
