// Products of quantized integers are exact.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { randomGenerator } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

const sizes = [
  [1, 1, 1],
  [0, 3, 5],
  [2, 3, 0],
  [7, 31, 33],
  [15, 33, 131],
  [70, 65, 1030],
  [257, 66, 19],
] as const

for (const [xSigned, wSigned] of [
  [false, false],
  [false, true],
  [true, false],
  [true, true],
] as const) {
  t.test(`${xSigned ? 'i8' : 'u8'} times ${wSigned ? 'i8' : 'u8'}`, async t => {
    for (const [tokens, rows, cols] of sizes) {
      const random = randomGenerator(tokens + cols)
      const codes = (count: number, signed: boolean) => {
        const bytes = Uint8Array.from({ length: count }, () => Math.floor(random() * 256))
        return signed ? new Int8Array(bytes.buffer) : bytes
      }
      const zeros = (count: number) =>
        Int32Array.from({ length: count }, () => Math.floor(random() * 256) - 128)
      const common = { tokens, rows, cols, xSigned, wSigned }
      const x = codes(tokens * cols, xSigned)
      const w = codes(rows * cols, wSigned)
      for (const zero of [{}, { xZero: zeros(tokens) }, { xZero: zeros(tokens), wZero: zeros(rows) }]) {
        const run = (run: typeof addon.run) => {
          const args: KernelArgs['linearInteger'] = {
            ...common,
            ...zero,
            x,
            w,
            y: new Int32Array(tokens * rows),
          }
          run('linearInteger', args)
          return args.y
        }
        const expected = run(jsKernels.runSync)
        for (const threads of [1, 3]) {
          addon.setThreads(threads)
          t.strictSame(run(addon.run), expected, `${[tokens, rows, cols]}, ${Object.keys(zero)}`)
        }
      }
    }
  })
}

t.test('the largest products do not saturate, and sums wrap', async t => {
  const cols = 70000
  const x = new Uint8Array(cols).fill(255)
  const y = new Int32Array(1)
  const common = { tokens: 1, rows: 1, cols, xSigned: false, x, y }
  addon.run('linearInteger', { ...common, wSigned: true, w: new Int8Array(cols).fill(-128) })
  t.equal(y[0], (255 * -128 * cols) | 0)
  addon.run('linearInteger', { ...common, wSigned: false, w: x })
  t.equal(y[0], (255 * 255 * cols) | 0, 'beyond 2^32')
})

t.test('operands that do not fit are refused', async t => {
  const common = { tokens: 2, rows: 3, cols: 4, xSigned: true, wSigned: true }
  const fits = { x: new Int8Array(8), w: new Int8Array(12), y: new Int32Array(6) }
  for (const run of [addon.run, jsKernels.runSync]) {
    t.doesNotThrow(() => run('linearInteger', { ...common, ...fits }))
    t.throws(() => run('linearInteger', { ...common, ...fits, w: new Int8Array(11) }), { code: 'ERR_SHAPE' })
    t.throws(() => run('linearInteger', { ...common, ...fits, tokens: -1 }), { code: 'ERR_ARGUMENT' })
  }
  t.throws(() => addon.run('linearInteger', { ...common, ...fits, xSigned: false }), { code: 'ERR_DTYPE' })
})
