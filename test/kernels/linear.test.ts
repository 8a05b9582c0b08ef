// The linear kernels: every stored format, odd sizes, gradients, and the promise about the order of sums.
import t from 'tap'
import type { Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { close, identical, maxAbs, within } from '../fixtures/close.js'
import { matrix, sum, weightValues } from '../fixtures/models/dora-layer.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

// Tokens, out, in: one element, odd, nothing, and across the kernel's slivers and chunks (32 rows, 256 of K).
const sizes = [
  [1, 1, 1],
  [7, 17, 31],
  [0, 5, 3],
  [3, 5, 0],
  [2, 3, 16],
  [67, 53, 272],
] as const

function linear(weight: Weight, x: Float32Array, bias?: Float32Array): Float32Array {
  const tokens = weight.cols ? x.length / weight.cols : 3
  const y = new Float32Array(tokens * weight.rows).fill(Number.NaN)
  addon.run('linear', { weight, tokens, x, bias, y })
  return y
}

for (const dtype of kernelFormats) {
  t.test(`linear ${dtype}`, t => {
    for (const [T, O, I] of sizes) {
      if (dtype === 'nvfp4' && I % 16) continue
      const random = randomGenerator(T * 1000 + I)
      const weight = randomWeight(random, dtype, O, I)
      const w = weightValues(weight)
      const x = uniform(random, T * I)
      const dy = uniform(random, T * O)
      const bias = uniform(random, O)
      const y = matrix(T, O, (t, o) => sum(I, i => x[t * I + i] * w[o * I + i]))
      close(t, linear(weight, x), y, 1e-6, `y of ${[T, O, I]}`)
      const biased = y.map((value, at) => value + bias[at % O])
      // The bias may cancel the product, so the limit is that of the product.
      within(t, linear(weight, x, bias), biased, () => 1e-6 * (1 + maxAbs(y)), `y with bias of ${[T, O, I]}`)

      const dx = new Float32Array(T * I).fill(Number.NaN)
      const dweight = new Float32Array(O * I).fill(Number.NaN)
      const dbias = new Float32Array(O).fill(Number.NaN)
      addon.run('linearBackward', { weight, tokens: T, x, dy, dx, dweight, dbias })
      close(
        t,
        dx,
        matrix(T, I, (t, i) => sum(O, o => dy[t * O + o] * w[o * I + i])),
        1e-6,
        'dx',
      )
      close(
        t,
        dweight,
        matrix(O, I, (o, i) => sum(T, t => dy[t * O + o] * x[t * I + i])),
        1e-6,
        'dweight',
      )
      close(
        t,
        dbias,
        matrix(1, O, (_, o) => sum(T, t => dy[t * O + o])),
        1e-6,
        'dbias',
      )
    }
    t.end()
  })
}

t.test('every code of every format is read', t => {
  const codes = (bits: number) => Uint16Array.from({ length: 2 ** bits }, (_, code) => code)
  const column = { rows: 2 ** 16, cols: 1 }
  const weights: Weight[] = [
    { ...column, format: 'f16', data: codes(16) },
    { ...column, format: 'bf16', data: codes(16) },
    {
      rows: 256,
      cols: 1,
      format: 'f8_e4m3',
      data: Uint8Array.from(codes(8)),
      rowScale: uniform(randomGenerator(1), 256, 0.1, 1),
    },
    {
      rows: 1,
      cols: 512 * 16,
      format: 'nvfp4', // each pair of elements under every block scale
      data: Uint8Array.from({ length: 512 * 8 }, (_, at) => at * 37),
      blockScale: Uint8Array.from({ length: 512 }, (_, at) => (at % 0x7f) + (at & 0x80)),
      tensorScale: 0.37,
    },
  ]
  for (const weight of weights) {
    const merged = new Float32Array(weight.rows * weight.cols)
    const none = { rank: 0, scale: 0, a: new Float32Array(), b: new Float32Array() }
    addon.run('doraMerge', { ...none, weight, gain: new Float32Array(weight.rows).fill(1), merged })
    const expected = Float32Array.from(weightValues(weight))
    const wrong = expected.findIndex((value, at) => !Object.is(value, merged[at]) && value !== merged[at])
    t.equal(wrong, -1, `${weight.format}: first code that is read wrongly`)
  }
  t.throws(
    () =>
      linear({ ...column, format: 'f8_e5m2' as 'f16', data: new Uint16Array(2 ** 16) }, new Float32Array(1)),
    {
      code: 'ERR_DTYPE',
    },
  )
  t.end()
})

t.test('weightNorm2', t => {
  for (const dtype of kernelFormats) {
    const weight = randomWeight(randomGenerator(5), dtype, 13, 528)
    const w = weightValues(weight)
    const out = new Float32Array(13)
    addon.run('weightNorm2', { weight, out })
    const expected = matrix(1, 13, (_, o) => sum(528, i => w[o * 528 + i] ** 2))
    within(t, out, expected, o => 1e-7 * expected[o], dtype)
  }
  t.end()
})

t.test('an unwanted gradient is left out', t => {
  const random = randomGenerator(2)
  const weight = randomWeight(random, 'f32', 5, 9)
  const args = { weight, tokens: 4, x: uniform(random, 36), dy: uniform(random, 20) }
  const dweight = new Float32Array(45)
  addon.run('linearBackward', { ...args, dweight })
  const [dx, dweightToo] = [new Float32Array(36), new Float32Array(45)]
  addon.run('linearBackward', { ...args, dx, dweight: dweightToo })
  t.same(dweightToo, dweight)
  t.end()
})

t.test('a result depends on neither the other tokens nor the threads', async t => {
  for (const dtype of kernelFormats) {
    const random = randomGenerator(11)
    const [T, O, I] = [263, 277, dtype === 'nvfp4' ? 592 : 595] // beyond a tile of 256 by 256
    const weight = randomWeight(random, dtype, O, I)
    const x = uniform(random, T * I)
    const dy = uniform(random, T * O)
    const all = linear(weight, x)
    for (const [first, end] of [
      [0, 1],
      [36, 38],
      [62, 65],
      [252, 256],
      [255, 260],
      [128, 263],
    ] as const) {
      const few = linear(weight, x.subarray(first * I, end * I))
      identical(t, few, all.subarray(first * O, end * O), `${dtype}: rows ${first} to ${end} alone`)
    }
    const backward = (threads: number) => {
      addon.setThreads(threads)
      const dx = new Float32Array(T * I)
      const dweight = new Float32Array(O * I)
      const dbias = new Float32Array(O)
      addon.run('linearBackward', { weight, tokens: T, x, dy, dx, dweight, dbias })
      return [linear(weight, x), dx, dweight, dbias]
    }
    const one = backward(1)
    identical(t, one[0], all, `${dtype}: as before`)
    for (const threads of [2, 5]) {
      backward(threads).forEach((result, at) => {
        identical(t, result, one[at], `${dtype}: result ${at} with ${threads} threads`)
      })
    }
    const y = new Float32Array(T * O)
    await addon.runAsync('linear', { weight, tokens: T, x, y })
    identical(t, y, all, `${dtype}: off the JavaScript thread`)
  }
})
