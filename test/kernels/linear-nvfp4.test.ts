// Products of activations that are rounded to NVFP4: the CPU, TypeScript, and the same in single steps.

import { dequantizeNVFP4, quantizeNVFP4 } from 'dgx-spark'
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { decodeWeight } from '#lib/weights/encode.js'
import { releaseWeight } from '#lib/weights/weight.js'
import { identical } from '../fixtures/close.js'
import { agree } from '../fixtures/kernel-pair.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { normal, randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
const compute = 'nvfp4'
const sizes = [
  [1, 1, 16],
  [7, 17, 48],
  [0, 5, 32],
  [3, 5, 0],
  [19, 53, 272],
] as const

/** The power of two that is the tensor scale of a row. */
function rowScale(row: Float32Array): number {
  const least = Math.fround(row.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) / 2688)
  return Math.max(2 ** Math.ceil(Math.log2(least)), 2 ** -100)
}

/** Rows quantized to NVFP4, each with a tensor scale of its own or all with that of the largest element, and back. */
function roundedRows(x: Float32Array, cols: number, scaleOf: (row: Float32Array) => number): Float32Array {
  const rounded = new Float32Array(x.length)
  for (let at = 0; at < x.length; at += cols) {
    const row = x.subarray(at, at + cols)
    rounded.set(dequantizeNVFP4(quantizeNVFP4(row, [1, cols], { tensorScale: scaleOf(row) })), at)
  }
  return rounded
}

t.test('linear', t => {
  for (const [tokens, rows, cols] of sizes) {
    const random = randomGenerator(tokens + cols)
    const weight = randomWeight(random, 'nvfp4', rows, cols)
    const x = uniform(random, tokens * cols)
    x[Math.floor(x.length / 3)] = 50 // other blocks get small scales
    x.fill(0, cols, cols + 16)
    const bias = uniform(random, rows)
    const args = { weight, tokens, x, bias, compute, y: new Float32Array(tokens * rows) } as const
    const { y } = agree(t, 'linear', args, ['y'], 1e-6, `${tokens}x${rows}x${cols}`)
    const rounded = roundedRows(x, cols, rowScale)
    const steps = y.slice().fill(Number.NaN)
    addon.run('linear', { weight, tokens, x: rounded, bias, y: steps })
    identical(t, y, steps, 'the bits of a product with what was rounded before')
  }
  t.end()
})

t.test('one tensor scale for all rows', t => {
  const [tokens, rows, cols, xScale] = [5, 17, 48, 2 ** -10]
  const random = randomGenerator(21)
  const weight = randomWeight(random, 'nvfp4', rows, cols)
  const x = uniform(random, tokens * cols)
  x[cols + 3] = 50 // more than 2688 · xScale: clipped
  const args = { weight, tokens, x, xScale, compute, y: new Float32Array(tokens * rows) } as const
  const { y } = agree(t, 'linear', args, ['y'], 1e-6, 'with the scale')
  const steps = y.slice().fill(Number.NaN)
  addon.run('linear', { weight, tokens, x: roundedRows(x, cols, () => xScale), y: steps })
  identical(t, y, steps, 'the bits of a product with what was rounded before')
  const own = y.slice()
  addon.run('linear', { ...args, xScale: undefined, y: own })
  identical(
    t,
    y.subarray(0, rows),
    own.subarray(0, rows),
    'the bits of its own scale, where nothing is clipped',
  )
  t.ok(y[rows] !== own[rows], 'a row that is')
  for (const wrong of [0, -1, 3 * 2 ** -10, Number.NaN, Number.POSITIVE_INFINITY])
    for (const run of [addon.run.bind(addon), jsKernels.runSync] as const)
      t.throws(() => run('linear', { ...args, xScale: wrong }), {
        code: 'ERR_ARGUMENT',
        message: /^xScale is .*, not a power of two$/,
      })
  t.end()
})

t.test('a row does not depend on the rows beside it', t => {
  const random = randomGenerator(3)
  const weight = randomWeight(random, 'nvfp4', 9, 32)
  const x = uniform(random, 2 * 32)
  x[40] = 1e6
  for (const run of [addon.run.bind(addon), jsKernels.runSync] as const) {
    const row = (tokens: number) => {
      const y = new Float32Array(tokens * 9)
      run('linear', { weight, tokens, x: x.subarray(0, tokens * 32), compute, y })
      return y.slice(0, 9)
    }
    identical(t, row(2), row(1), 'beside a large one')
  }
  t.end()
})

t.test('magnitudes of rows from the smallest to the largest', t => {
  const weight = randomWeight(randomGenerator(10), 'nvfp4', 5, 32)
  for (const magnitude of [0, 2 ** -149, 2 ** -126, 2 ** -90, 2688 * 2 ** -20, 2689 * 2 ** -20, 1e38]) {
    const x = uniform(randomGenerator(11), 32).map(value => value * magnitude)
    x[7] = magnitude
    const args = { weight, tokens: 1, x, compute, y: new Float32Array(5) } as const
    const { y } = agree(t, 'linear', args, ['y'], 1e-6, `${magnitude}`)
    t.ok(y.every(Number.isFinite), `${magnitude}`)
  }
  t.end()
})

/** How far products of rounded rows are from those in f64, in sizes of a result of their row. */
function productError(x: Float32Array, rounded: Float32Array, w: Float32Array, cols: number): number {
  const ratios: number[] = []
  for (let at = 0; at < x.length; at += cols) {
    let [sum, all] = [0, 0]
    for (let o = 0; o < w.length; o += cols) {
      let [exact, actual] = [0, 0]
      for (let i = 0; i < cols; i++) {
        exact += x[at + i]! * w[o + i]!
        actual += rounded[at + i]! * w[o + i]!
      }
      sum += (actual - exact) ** 2
      all += exact ** 2
    }
    ratios.push(sum / all)
  }
  return Math.sqrt(ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length)
}

t.test('the error of a scale for each row', t => {
  const [tokens, rows, cols] = [32, 48, 256]
  const random = randomGenerator(12)
  const w = decodeWeight(randomWeight(random, 'nvfp4', rows, cols))
  const values = normal(random, tokens * cols)
  for (const ratio of [1, 64]) {
    const x = values.map((value, i) => value * ratio ** (Math.floor(i / cols) % 4))
    const largest = (row: Float32Array) => row.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
    const errorOf = (scaleOf: (row: Float32Array) => number) =>
      productError(x, roundedRows(x, cols, scaleOf), w, cols)
    const [shared, exact, own] = [
      errorOf(() => largest(x) / 2688),
      errorOf(row => largest(row) / 2688),
      errorOf(rowScale),
    ] as const
    const shown = [shared, exact, own].map(error => error.toPrecision(3)).join(', ')
    t.comment(
      `rows up to ${ratio ** 3} times as large: error ${shown} with one scale, amax / 2688, its power of two`,
    )
    t.ok(own < 1.05 * exact, 'a power of two costs little')
    t.ok(ratio === 1 || own < shared, 'small rows beside large ones keep their bits')
  }
  t.end()
})

t.test('a row that is no number has no result', t => {
  const weight = randomWeight(randomGenerator(4), 'nvfp4', 3, 32)
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const x = new Float32Array(64).fill(1)
    x[37] = bad
    for (const run of [addon.run.bind(addon), jsKernels.runSync] as const) {
      const y = new Float32Array(6)
      run('linear', { weight, tokens: 2, x, compute, y })
      t.same(Array.from(y, Number.isNaN), [false, false, false, true, true, true], `${bad}`)
    }
  }
  t.end()
})

t.test('a DoRA layer', t => {
  const [tokens, rows, cols, rank] = [11, 37, 80, 3]
  const random = randomGenerator(5)
  const weight = randomWeight(random, 'nvfp4', rows, cols)
  const layer = { weight, rank, scale: 0.5, a: uniform(random, rank * cols), b: uniform(random, rows * rank) }
  const x = uniform(random, tokens * cols)
  const [bias, gain] = [uniform(random, rows), uniform(random, rows)]
  const outputs = {
    xa: new Float32Array(tokens * rank),
    z: new Float32Array(tokens * rows),
    y: new Float32Array(tokens * rows),
  }
  const args = { ...layer, tokens, x, bias, gain, compute, ...outputs } as const
  const { xa, z } = agree(t, 'doraForward', args, ['xa', 'z', 'y'], 1e-6, 'nvfp4')
  const plain = agree(t, 'doraForward', { ...args, compute: 'f32' as const }, ['xa', 'z', 'y'], 1e-6, 'f32')
  identical(t, xa, plain.xa, 'the path of the adapter sees x as it is')
  t.notSame(z, plain.z)
  t.end()
})

t.test('a weight in panels gives the same bits', async t => {
  const weight = randomWeight(randomGenerator(6), 'nvfp4', 37, 80)
  const held = await holdWeight(openCpuKernels(), weight)
  t.teardown(() => releaseWeight(held))
  const x = uniform(randomGenerator(7), 5 * 80)
  const product = (stored: typeof weight) => {
    const y = new Float32Array(5 * 37)
    addon.run('linear', { weight: stored, tokens: 5, x, compute, y })
    return y
  }
  identical(t, product(held), product(weight), 'y')
})

t.test('refused', t => {
  const random = randomGenerator(8)
  const f32 = {
    weight: randomWeight(random, 'f32', 3, 32),
    tokens: 2,
    x: uniform(random, 64),
    compute,
  } as const
  for (const run of [addon.run.bind(addon), jsKernels.runSync] as const) {
    t.throws(() => run('linear', { ...f32, y: new Float32Array(6) }), {
      code: 'ERR_UNSUPPORTED',
      message: /for weights of nvfp4; this one is f32/,
    })
    const weight = randomWeight(random, 'nvfp4', 3, 32)
    const dora = {
      ...f32,
      weight,
      rank: 0,
      scale: 1,
      a: f32.x,
      b: f32.x,
      gain: f32.x,
      mask: f32.x,
      xa: f32.x,
    }
    t.throws(() => run('doraForward', { ...dora, y: new Float32Array(6) }), {
      code: 'ERR_UNSUPPORTED',
      message: /no dropout/,
    })
  }
  t.end()
})
