// Functions of f32 elements: how far they are from the true values, what they make of special ones, and that every
// instruction set gives the same bits.
import t from 'tap'
import { openKernels } from '#lib/kernels/open.js'
import { loadAddon, requireAddon } from '#lib/native.js'
import { scriptResult } from '../fixtures/child.js'
import { identical, within } from '../fixtures/close.js'
import { randomGenerator } from '../fixtures/values/random.js'

const skip = loadAddon().addon ? false : 'the addon does not load'

/** ulp: units in the last place of a result; the rest: absolute, in units of 2^-24 times max(1, |x|). */
const limits = {
  exp: { ulp: 1.5, rest: 0 },
  log: { ulp: 1, rest: 0 },
  tanh: { ulp: 2, rest: 0 },
  sigmoid: { ulp: 3, rest: 0 },
  silu: { ulp: 3.5, rest: 0 },
  swish: { ulp: 64, rest: 0 }, // the exponent α · x, up to 60, is rounded once more
  softplus: { ulp: 2.5, rest: 0 },
  mish: { ulp: 4, rest: 0 },
  elu: { ulp: 3, rest: 0 },
  celu: { ulp: 3, rest: 0 },
  selu: { ulp: 3.5, rest: 0 },
  leaky_relu: { ulp: 0.5, rest: 0 },
  thresholded_relu: { ulp: 0, rest: 0 },
  softsign: { ulp: 1.5, rest: 0 },
  hard_sigmoid: { ulp: 1, rest: 1 },
  hard_swish: { ulp: 2, rest: 1 },
  relu: { ulp: 0, rest: 0 },
  erf: { ulp: 0, rest: 4 },
  gelu: { ulp: 2, rest: 3 },
  gelu_tanh: { ulp: 4, rest: 4 },
} as const

const pairLimits = {
  pow: { ulp: 0.51, rest: 0 },
  gelu_grad: { ulp: 3, rest: 8 },
  gelu_tanh_grad: { ulp: 4, rest: 32 },
  silu_grad: { ulp: 4, rest: 12 },
} as const

const ulp = (value: number): number =>
  Math.max(2 ** -149, 2 ** (Math.floor(Math.log2(Math.max(Math.abs(value), 2 ** -126))) - 23))

/** Of both signs, from 1e-8 to 80. */
function samples(count: number, seed: number): Float32Array {
  const random = randomGenerator(seed)
  return Float32Array.from({ length: count }, () => (random() < 0.5 ? -1 : 1) * 80 * 1e-10 ** random())
}

const parameters = { alpha: 0.75, beta: 1.25 }

t.test('unary functions are as exact as promised', { skip }, async t => {
  const [cpu, js] = [requireAddon(), await openKernels({ backend: 'js' })]
  for (const [fn, { ulp: units, rest }] of Object.entries(limits)) {
    const x = samples(20011, 3).map(value => (fn === 'log' ? Math.abs(value) : value))
    const count = x.length
    const y = new Float32Array(count)
    cpu.run('unary', { fn, dtype: 'f32', count, ...parameters, x, y })
    // In f64 the other backend computes with Math.
    const exact = new Float64Array(count)
    js.runSync('unary', {
      fn: fn as 'exp',
      dtype: 'f64',
      count,
      ...parameters,
      x: Float64Array.from(x),
      y: exact,
    })
    const limit = (i: number): number =>
      units * ulp(exact[i]!) + rest * 2 ** -24 * Math.max(1, Math.abs(x[i]!))
    within(t, y, exact, limit, fn)
    for (const length of [1, 15, 16, 17, 31, 33]) {
      const start = new Float32Array(length)
      cpu.run('unary', { fn, dtype: 'f32', count: length, ...parameters, x: x.subarray(0, length), y: start })
      identical(t, start, y.slice(0, length), `${fn}: ${length} elements alone`)
    }
  }
})

t.test('binary functions are as exact as promised', { skip }, async t => {
  const [cpu, js] = [requireAddon(), await openKernels({ backend: 'js' })]
  const count = 20011
  for (const [fn, { ulp: units, rest }] of Object.entries(pairLimits)) {
    const a = samples(count, 4).map(value => (fn === 'pow' ? Math.abs(value) : value))
    const b = samples(count, 5).map(value => (fn === 'pow' ? value / 4 : value))
    const run = (aStrides: number[], bStrides: number[]): void => {
      const [y, exact] = [new Float32Array(count), new Float64Array(count)]
      const sizes = { shape: [count], aStrides, bStrides }
      cpu.run('binary', { fn, dtype: 'f32', ...sizes, a, b, y })
      const wide = { a: Float64Array.from(a), b: Float64Array.from(b) }
      js.runSync('binary', { fn: fn as 'pow', dtype: 'f64', ...sizes, ...wide, y: exact })
      const limit = (i: number): number => {
        const size = Math.abs(aStrides[0] === 0 ? a[0]! : a[i]!)
        return units * ulp(exact[i]!) + rest * 2 ** -24 * size
      }
      const finite = (values: Iterable<number>): number[] =>
        Array.from(values, value => Math.min(value, 3e38))
      within(t, finite(y), finite(exact), limit, `${fn}, strides ${aStrides} and ${bStrides}`)
    }
    run([1], [1])
    run([0], [1])
    run([1], [0])
  }
})

t.test('pow at its ends', { skip }, t => {
  const ends = [0, 1, 2, 0.5, 3, Number.POSITIVE_INFINITY, 1e-40, 2.5, 1e30, 16777217, 3e9]
  const all = [...ends, ...ends.map(value => -value), Number.NaN]
  const [a, b] = [
    Float32Array.from(all.flatMap(x => all.map(() => x))),
    Float32Array.from(all.flatMap(() => all)),
  ]
  const y = new Float32Array(a.length)
  requireAddon().run('binary', {
    fn: 'pow',
    dtype: 'f32',
    shape: [a.length],
    aStrides: [1],
    bStrides: [1],
    a,
    b,
    y,
  })
  for (const [i, actual] of y.entries()) {
    const [x, e] = [a[i]!, b[i]!]
    // C says 1 where ECMAScript says NaN.
    const one = x === 1 || (x === -1 && Math.abs(e) === Number.POSITIVE_INFINITY)
    const expected = one ? 1 : Math.fround(x ** e)
    const near = Object.is(actual, expected) || Math.abs(actual - expected) <= 6e-8 * Math.abs(expected)
    if (!near) t.fail(`pow(${x}, ${e}) is ${actual}, not ${expected}`)
  }
  t.end()
})

t.test('special values', { skip }, t => {
  const { POSITIVE_INFINITY: infinity, NaN: nan } = Number
  const x = Float32Array.of(0, -0, infinity, -infinity, nan, 1e-40, -1e-40, 3e38, -3e38)
  const expected: Record<string, number[]> = {
    exp: [1, 1, infinity, 0, nan, 1, 1, infinity, 0],
    log: [-infinity, -infinity, infinity, nan, nan, Math.log(1e-40), nan, Math.log(3e38), nan],
    tanh: [0, -0, 1, -1, nan, 1e-40, -1e-40, 1, -1],
    erf: [0, -0, 1, -1, nan, 1.128e-40, -1.128e-40, 1, -1],
    sigmoid: [0.5, 0.5, 1, 0, nan, 0.5, 0.5, 1, 0],
    softplus: [Math.LN2, Math.LN2, infinity, 0, nan, Math.LN2, Math.LN2, 3e38, 0],
    relu: [0, -0, infinity, 0, nan, 1e-40, 0, 3e38, 0],
    thresholded_relu: [0, 0, infinity, 0, nan, 0, 0, 3e38, 0],
    softsign: [0, -0, nan, nan, nan, 1e-40, -1e-40, 1, -1],
    elu: [0, -0, infinity, -1, nan, 1e-40, -1e-40, 3e38, -1],
    gelu: [0, -0, infinity, nan, nan, 5e-41, -5e-41, 3e38, -0],
  }
  for (const [fn, values] of Object.entries(expected)) {
    const y = new Float32Array(x.length)
    requireAddon().run('unary', { fn, dtype: 'f32', count: x.length, alpha: 1, beta: 1, x, y })
    for (const [i, value] of values.entries()) {
      const near = Object.is(y[i], value) || Math.abs(y[i]! - value) <= 1e-3 * Math.abs(value)
      if (!near) t.fail(`${fn}(${x[i]}) is ${y[i]}, not ${value}`)
    }
  }
  t.end()
})

/** Prints a digest of all functions on floats of any bits; all NaNs count as one. */
const script = `
import { createHash } from 'node:crypto'
import { requireAddon } from '#lib/native.js'
const addon = requireAddon()
const count = 70007
let state = 88172645
const floats = () => {
  const bits = Uint32Array.from({ length: count }, () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0))
  return new Float32Array(bits.buffer).map((x, i) => (i % 3 ? x : x % 50))
}
const [a, b] = [floats(), floats()]
const hash = createHash('sha256')
const y = new Float32Array(count)
const add = () => hash.update(new Uint8Array(y.map(x => (x === x ? x : NaN)).buffer))
for (const fn of ${JSON.stringify(Object.keys(limits))}) {
  addon.run('unary', { fn, dtype: 'f32', count, alpha: 0.75, beta: 1.25, x: a, y })
  add()
}
for (const fn of ${JSON.stringify(Object.keys(pairLimits))}) {
  addon.run('binary', { fn, dtype: 'f32', shape: [count], aStrides: [1], bStrides: [1], a, b, y })
  add()
}
console.log(JSON.stringify(hash.digest('hex')))
`

t.test('every instruction set gives the same bits', { skip }, async t => {
  const plain = await scriptResult(script, { DGX_SPARK_CPU_ISA: 'plain' })
  for (const isa of ['avx2', 'avx512', 'unknown']) {
    const digest = await scriptResult(script, { DGX_SPARK_CPU_ISA: isa })
    t.equal(digest, plain, `${isa}, or the widest where this machine lacks it`)
  }
})
