// Products of activations that are rounded to NVFP4: the CPU, TypeScript, and the same in single steps.

import { dequantizeNVFP4, quantizeNVFP4 } from 'dgx-spark'
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { releaseWeight } from '#lib/weights/weight.js'
import { identical } from '../fixtures/close.js'
import { agree } from '../fixtures/kernel-pair.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
const compute = 'nvfp4'
const sizes = [
  [1, 1, 16],
  [7, 17, 48],
  [0, 5, 32],
  [3, 5, 0],
  [19, 53, 272],
] as const

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
    const rounded = x.length ? dequantizeNVFP4(quantizeNVFP4(x, [tokens, cols])) : x
    const steps = y.slice().fill(Number.NaN)
    addon.run('linear', { weight, tokens, x: rounded, bias, y: steps })
    identical(t, y, steps, 'the bits of a product with what was rounded before')
  }
  t.end()
})

t.test('x is rounded with one tensor scale for all rows', t => {
  const random = randomGenerator(3)
  const weight = randomWeight(random, 'nvfp4', 9, 32)
  const x = uniform(random, 2 * 32)
  const row = (tokens: number) => {
    const y = new Float32Array(tokens * 9)
    addon.run('linear', { weight, tokens, x, compute, y })
    return y.slice(0, 9)
  }
  x[40] = 1e6
  t.notSame(row(2), row(1), 'a row beside a large one')
  t.end()
})

t.test('no number, no result', t => {
  const weight = randomWeight(randomGenerator(4), 'nvfp4', 3, 32)
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const x = new Float32Array(64).fill(1)
    x[37] = bad
    for (const run of [addon.run.bind(addon), jsKernels.runSync] as const) {
      const y = new Float32Array(6)
      run('linear', { weight, tokens: 2, x, compute, y })
      t.ok(
        y.every(value => Number.isNaN(value)),
        `${bad}`,
      )
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
