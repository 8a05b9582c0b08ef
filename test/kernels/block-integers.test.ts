// Products of weights in blocks with rows that are rounded to signed bytes: compute i8.
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Compute, Kernels, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { blockWeightFormats, formatInfo, hasIntegerCodes } from '#lib/weights/formats.js'
import { identical, maxAbs, within } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { normal, randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
const cpu = openCpuKernels()
t.teardown(() => addon.setThreads(0))

function linear(kernels: Kernels, weight: Weight, x: Float32Array, compute: Compute): Float32Array {
  const tokens = x.length / weight.cols
  const y = new Float32Array(tokens * weight.rows).fill(Number.NaN)
  kernels.runSync('linear', { weight, tokens, x, y, compute })
  return y
}

for (const format of blockWeightFormats.filter(hasIntegerCodes)) {
  const { block } = formatInfo(format)

  t.test(`${format}: products with bytes`, async t => {
    for (const [rows, blocks] of [
      [1, 1],
      [33, 3],
      [70, 8],
    ] as const) {
      const cols = blocks * block
      const random = randomGenerator(rows + cols)
      const weight = randomWeight(random, format, rows, cols)
      const packed = await holdWeight(cpu, weight)
      const x = uniform(random, 33 * cols)
      const y = linear(cpu, packed, x, 'i8')
      const expected = linear(jsKernels, weight, x, 'i8')
      const limit = 4e-6 * Math.sqrt(cols) * maxAbs(expected)
      within(t, y, expected, () => limit, `${rows} x ${cols}, as in TypeScript`)
      within(t, linear(cpu, weight, x, 'i8'), expected, () => limit, `${rows} x ${cols} in rows`)
      for (const tokens of [1, 2, 5, 9])
        identical(
          t,
          linear(cpu, packed, x.subarray(0, tokens * cols), 'i8'),
          y.subarray(0, tokens * rows),
          `${tokens}`,
        )
      for (const threads of [1, 3]) {
        addon.setThreads(threads)
        identical(t, linear(cpu, packed, x, 'i8'), y, `${threads} threads`)
      }
      addon.setThreads(0)
    }
  })

  t.test(`${format}: what rounding costs`, async t => {
    const [rows, cols] = [64, 2048]
    const random = randomGenerator(11)
    const packed = await holdWeight(cpu, randomWeight(random, format, rows, cols))
    const x = normal(random, 4 * cols)
    const exact = linear(cpu, packed, x, 'f32')
    const rounded = linear(cpu, packed, x, 'i8')
    const square = (values: Float32Array): number => values.reduce((sum, value) => sum + value * value, 0)
    const error = Math.sqrt(square(rounded.map((value, i) => value - exact[i]!)) / square(exact))
    t.comment(`relative error ${(100 * error).toFixed(2)} %`)
    t.ok(error > 0 && error < 0.02)
  })
}

t.test('rows that are not finite, and rows of zeros', async t => {
  const cols = 64
  const weight = randomWeight(randomGenerator(3), 'q4_0', 40, cols)
  const packed = await holdWeight(cpu, weight)
  const x = uniform(randomGenerator(4), 4 * cols)
  x[cols + 5] = Number.NaN
  x[2 * cols + 40] = Number.NEGATIVE_INFINITY
  x.fill(0, 3 * cols)
  for (const [kernels, table] of [
    [cpu, packed],
    [cpu, weight],
    [jsKernels, weight],
  ] as const) {
    const y = linear(kernels, table, x, 'i8')
    t.ok(y.subarray(0, 40).every(Number.isFinite))
    t.ok(y.subarray(40, 120).every(Number.isNaN))
    t.ok(y.subarray(120).every(value => value === 0))
  }
})

t.test('what is refused', async t => {
  const x = new Float32Array(96)
  for (const format of ['f8_32', 'f32', 'nvfp4'] as const) {
    const weight = randomWeight(randomGenerator(1), format, 3, 32)
    for (const kernels of [cpu, jsKernels])
      t.throws(() => linear(kernels, weight, x, 'i8'), {
        code: 'ERR_UNSUPPORTED',
        message: /blocks of integers/,
      })
  }
  const weight = randomWeight(randomGenerator(1), 'q4_0', 3, 32)
  const args = { weight, tokens: 1, x, dy: x, dx: x, compute: 'i8' } as never
  for (const kernels of [cpu, jsKernels])
    t.throws(() => kernels.runSync('linearBackward', args), { code: 'ERR_UNSUPPORTED', message: /gradients/ })
})
